"""A table `grid` of a recipe: the values of several keys, and the points that they stand for."""

import functools
import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pydantic

from prime_bench.base.errors import did_you_mean
from prime_bench.base.frozen import Fault, Frozen, JsonTable
from prime_bench.base.streams import derive

MOST_POINTS = 1_000
"""Points of one grid."""
DRAW = ("samples", "seed")
"""Keys of a grid that are none of the arm or backbone."""


class GridPoint(Frozen):
    """A point of a grid: the arm or backbone of a recipe that one combination of values makes."""

    of: str
    """Name of the arm or backbone whose table has the grid."""
    label: str
    """Its printed name."""
    values: JsonTable
    """Value of each key of the grid."""

    @property
    def name(self) -> str:
        """`p[rank=4,bags=2]`: a name that a shell, a CSV file and a path take."""
        return f"{self.of}[{','.join(f'{k}={value_name(v)}' for k, v in self.values.items())}]"

    @property
    def full_label(self) -> str:
        """`PRIME (rank = 4, bags = 2)`."""
        return f"{self.label} ({self.settings})"

    @property
    def settings(self) -> str:
        """`rank = 4, bags = 2`."""
        return ", ".join(f"{key} = {value_name(value)}" for key, value in self.values.items())


class CandidateBudget(Frozen):
    """`[budget]`: how many candidates `choose` has of every arm on every backbone."""

    candidates: int = pydantic.Field(ge=1, le=MOST_POINTS)
    """Largest number of points that an arm has on a backbone: those of its grid times those of the
    backbone's. Where there are more, this many are drawn: a common budget of arms with grids of
    different sizes."""
    seed: int = pydantic.Field(2021, ge=0)
    """Seed of the draw."""

    def drawn(self, n_backbones: int, n_arms: int) -> set[tuple[int, int]]:
        """The pairs (point of the backbone, point of the arm) that are trained, by their numbers
        from 0.

        The points of the backbone come from one random stream, the same for all arms.
        """
        n_pairs = n_backbones * n_arms
        if n_pairs <= self.candidates:
            return set(itertools.product(range(n_backbones), range(n_arms)))
        pairs = set[tuple[int, int]]()
        for number in itertools.count():
            if len(pairs) == self.candidates:
                break
            backbone = _place(self.seed, f"budget/backbone/{number}", n_backbones)
            pairs.add((backbone, _place(self.seed, f"budget/arm/{number}", n_arms)))
        return pairs


def _place(seed: int, stream: str, n: int) -> int:
    """A number in [0, n) that depends on the seed and the name of the stream alone."""
    return derive(seed, stream) * n >> 63  # of 63 bits, so that none is likelier by 1 in 2^50


def value_name(value: pydantic.JsonValue) -> str:
    """A value as a part of a name: a text as it is, a list with hyphens, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "-".join(value_name(item) for item in value)
    return json.dumps(value)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A checked table `grid`."""

    values: Mapping[str, Sequence[pydantic.JsonValue]]
    """The values of each key, in the order of the file."""
    samples: int | None
    """How many distinct points are drawn; None: all."""
    seed: int

    @property
    def n_points(self) -> int:
        """Number of points that the grid stands for."""
        return self.n_product if self.samples is None else self.samples

    @property
    def n_product(self) -> int:
        """Number of all combinations of values; `samples` are drawn from them."""
        return math.prod(map(len, self.values.values()))

    @functools.cached_property
    def _places(self) -> dict[tuple[str, str], int]:
        return {
            (key, json.dumps(value)): number
            for key, values in self.values.items()
            for number, value in enumerate(values)
        }

    def place(self, key: str, value: pydantic.JsonValue) -> int:
        """Where a value stands in the list of its key, from 0."""
        return self._places[key, json.dumps(value)]

    def points(self) -> list[JsonTable]:
        """The values of each point: of all points the last key's change first, drawn points in the
        order in which they were drawn, so that more samples go on where fewer end.
        """
        if self.samples is None:
            products = itertools.product(*self.values.values())
            return [dict(zip(self.values, product, strict=True)) for product in products]
        return list(itertools.islice(self._drawn(), self.samples))

    def _drawn(self) -> Iterator[JsonTable]:
        """Distinct points without end. Each key has a stream of its own, so that neither the order
        of the keys nor a further key changes what is drawn of another.
        """
        seen = set()
        for number in itertools.count():
            positions = tuple(
                _place(self.seed, f"grid/{key}/{number}", len(values))
                for key, values in self.values.items()
            )
            if positions not in seen:
                seen.add(positions)
                pairs = zip(self.values.items(), positions, strict=True)
                yield {key: values[position] for (key, values), position in pairs}


def read_sweep(
    table: pydantic.JsonValue, *, also_set: Collection[str]
) -> tuple[Sweep | None, list[Fault]]:
    """Check a table `grid`; `also_set` has the keys that the tables around it set.

    Returns the sweep, or None and all faults, whose paths begin at the grid's keys.
    """
    if not isinstance(table, dict):
        return None, [Fault((), "must be a table with a list of values for each key")]
    keys = {key: values for key, values in table.items() if key not in DRAW}
    if not keys:
        return None, [Fault((), "has no key: give each that it varies a list of values")]
    faults = list(_value_faults(keys, also_set=also_set))
    samples, seed = table.get("samples"), table.get("seed", 2021)
    faults += [
        Fault((key,), f"must be a whole number of at least {least}, got {json.dumps(number)}")
        for key, number, least in (("samples", samples, 1), ("seed", seed, 0))
        if key in table and (type(number) is not int or number < least)
    ]
    if "seed" in table and "samples" not in table:
        faults.append(Fault(("seed",), "has no effect without `samples`: nothing is drawn"))
    if faults or not isinstance(seed, int):
        return None, faults
    sweep = Sweep(
        values={key: values for key, values in keys.items() if isinstance(values, list)},
        samples=samples if isinstance(samples, int) else None,
        seed=seed,
    )
    if fault := _size_fault(sweep):
        return None, [fault]
    return sweep, []


def _value_faults(keys: JsonTable, *, also_set: Collection[str]) -> Iterator[Fault]:
    for key, values in keys.items():
        if key in also_set:
            yield Fault((key,), "is set beside the grid too: leave it out in one of both places")
        if not isinstance(values, list):
            near = did_you_mean(key, DRAW)
            yield Fault((key,), f"must be a list of values, got {json.dumps(values)}{near}")
        elif not values:
            yield Fault((key,), "has no value")
        else:
            # As JSON, since Python takes `true` and `1` as one value.
            texts = [json.dumps(value) for value in values]
            for number, text in enumerate(texts):
                if not _is_finite(values[number]):
                    yield Fault((key, str(number)), f"must be finite, got {text}")
                elif text in texts[:number]:
                    yield Fault((key, str(number)), f"{text} is listed twice")


def _is_finite(value: pydantic.JsonValue) -> bool:
    """Whether a value has no NaN and no infinity, which a job's identity cannot have."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _size_fault(sweep: Sweep) -> Fault | None:
    if sweep.samples is None and sweep.n_points > MOST_POINTS:
        why = f"has {sweep.n_points:,} points, at most {MOST_POINTS:,}: draw some with `samples`"
        return Fault((), why)
    if sweep.n_points > min(MOST_POINTS, sweep.n_product):
        few = sweep.n_product < MOST_POINTS
        most = f"the grid has {sweep.n_product:,}" if few else f"at most {MOST_POINTS:,}"
        return Fault(("samples",), f"{sweep.n_points:,} points are asked for, {most}")
    return None
