"""Numbers to compare a report with, from a file, and a verdict for each."""

import fnmatch
import math
import tomllib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import pydantic

from prime_bench.base.errors import UsageError
from prime_bench.base.files import bundled_folder
from prime_bench.base.frozen import Frozen
from prime_bench.report.quantities.formulas import (
    SeedNoise,
    combined_noise,
    moments,
    noise_bound,
    noise_of,
    noise_of_mean,
    same_spread,
)
from prime_bench.report.quantities.values import Quantity
from prime_bench.report.tables.addresses import Place, places_of
from prime_bench.report.tables.model import Cell, Report

NumberVerdict = Literal[
    "inside",
    "inside seed noise",
    "not above",
    "not judged",
    "outside",
    "other SD",
    "above",
    "noise unknown",
    "degenerate run",
    "no value",
]
AGREEMENTS: tuple[NumberVerdict, ...] = ("inside", "inside seed noise", "not above")
MISMATCHES: tuple[NumberVerdict, ...] = tuple(
    verdict for verdict in get_args(NumberVerdict) if verdict not in (*AGREEMENTS, "not judged")
)


class ExpectedNumbers(Frozen):
    """A file of printed numbers, such as the paper's, and how they are judged."""

    expected_schema: Literal[1] = pydantic.Field(alias="schema")
    title: str
    software: str = ""
    accelerator: str = ""
    tolerance: pydantic.NonNegativeFloat | Literal["printed"]
    """Absolute difference that passes, of a number and of its standard deviation; 0 is exact.
    `printed`: half a unit of the last digit in which each is written here."""
    noise: Literal["none", "seeds"] = "none"
    """`seeds`: the numbers are of other runs than the report's, and a difference that seeds can
    make passes too. `none`: only the tolerance decides."""
    runs: int | None = pydantic.Field(None, ge=1)
    """With `noise = "seeds"`: how many runs with different seeds each number is the mean of."""
    other_runs: dict[str, pydantic.PositiveInt] = {}
    """Addresses, with `*`, of numbers that are means of another number of runs -> of how many."""
    exact: list[str] = []
    """Addresses, with `*`, of numbers that no seed changes, such as counts of parameters: only the
    tolerance decides."""
    means: list[str] = []
    """Addresses, with `*`, of means over the other rows of their block: their noise is made of the
    standard deviations of those rows."""
    differences: dict[str, tuple[str, str]] = {}
    """Column -> the two columns of whose numbers it shows the difference: where it has no standard
    deviation, its noise is made of theirs, as if they were independent."""
    decimals: int | None = pydantic.Field(None, ge=1, le=17)
    """Digits in which the numbers are compared in print; None: as they are written here."""
    not_judged: list[str] = []
    """Addresses, with `*`, of numbers that no verdict is given on."""
    one_sided: list[str] = []
    """Addresses, with `*`, of costs: only more than expected, beyond the tolerance, is wrong."""
    explained: dict[str, str] = {}
    """Addresses, with `*`, of numbers that are known to differ -> why; a note says it where one of
    them does. The verdict stays."""
    values: dict[str, Any]
    """Nested tables that end in a number, in `[mean, SD]`, or in `{ runs = [...] }` with the number
    of each run; their keys joined by `.` address a cell: table, block, row, column."""

    @pydantic.field_validator("tolerance", mode="wrap")
    @classmethod
    def _number_or_word(cls, value: object, check: pydantic.ValidatorFunctionWrapHandler) -> object:
        try:
            return check(value)
        except pydantic.ValidationError as error:
            raise ValueError('expected a number from 0 on, or "printed"') from error

    def printed(self) -> dict[str, "PrintedNumber"]:
        """All numbers by address. Raises UsageError for what is none, and for a second one."""
        found: dict[str, PrintedNumber] = {}
        for address, value in _flattened(self.values, ""):
            if address in found:
                raise UsageError(f"values.{address}: it is there twice")
            found[address] = _number(address, value, runs=self._runs_of(address))
        return found

    def _runs_of(self, address: str) -> int | None:
        other = [n for pattern, n in self.other_runs.items() if matches(address, [pattern])]
        return other[0] if other else self.runs


@dataclass(frozen=True, kw_only=True)
class PrintedNumber:
    """A number as printed, with its standard deviation where that is printed too."""

    value: float
    decimals: int
    """Digits after the point in which it is printed."""
    sd: float | None = None
    sd_decimals: int = 0
    runs: int | None = None
    """How many runs it is the mean of; None where the file does not say."""

    @property
    def noise(self) -> SeedNoise | None:
        """How the mean of `runs` runs varies; None without a standard deviation of two or more."""
        known = self.sd is not None and self.runs is not None and self.runs > 1
        return noise_of(self.sd, n=self.runs) if known else None  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class JudgedNumber:
    """One number of the file, the cell of the report with the same address, and the verdict."""

    address: str
    place: Place
    printed: PrintedNumber
    verdict: NumberVerdict

    @property
    def difference(self) -> float | None:
        """The report's value minus the printed one; None where the report has none."""
        value = self.place.cell.value
        return None if value is None else value - self.printed.value


@dataclass(frozen=True, kw_only=True)
class JudgedNumbers:
    """All numbers of a file beside a report."""

    judged: tuple[JudgedNumber, ...]
    """Those that have a cell."""
    missing: tuple[str, ...]
    """Addresses of those that have none."""

    def of(self, *verdicts: NumberVerdict) -> list[JudgedNumber]:
        """The numbers with one of these verdicts."""
        return [item for item in self.judged if item.verdict in verdicts]

    def agrees(self, *, allow_missing: bool) -> bool:
        """Whether no number differs, and at least one was compared."""
        found_all = allow_missing or not self.missing
        return found_all and not self.of(*MISMATCHES) and bool(self.of(*AGREEMENTS))


def load_paper() -> ExpectedNumbers:
    """The paper's printed numbers."""
    return read_expected(bundled_folder("reports") / "paper" / "prime2026.toml")


def load_bars() -> ExpectedNumbers:
    """The runs of the Dense arm that BARS publishes."""
    return read_expected(bundled_folder("reports") / "paper" / "bars.toml")


def read_expected(path: Path) -> ExpectedNumbers:
    """The numbers in a file. Raises UsageError with every fault."""
    try:
        text = path.read_text(encoding="utf-8")
        table, written = tomllib.loads(text), tomllib.loads(text, parse_float=Decimal)
    except (OSError, ValueError, RecursionError, ArithmeticError) as error:
        raise UsageError(f"{path}: cannot read the expected numbers: {error}") from error
    try:
        expected = ExpectedNumbers.parse(table, where="")
        # As decimals, since 0.7600 has four digits and the float 0.76 no longer knows.
        expected = expected.model_copy(update={"values": written["values"]})
        _check(expected)
    except UsageError as error:
        faults = [f"{path}: {fault}" for fault in error.message.splitlines()]
        raise UsageError("\n".join(faults)) from error
    return expected


def judge(
    report: Report,
    expected: ExpectedNumbers,
    *,
    spreads: bool,
    generated: Set[str] = frozenset(),
) -> JudgedNumbers:
    """Judge every number of the file by the report's cell of the same address.

    `spreads` has standard deviations judged too where seed noise passes, by a test that takes runs
    as normally distributed. Numbers with a job of `generated` behind them are not judged: the file
    is of real rows, theirs were generated.
    """
    printed, places = expected.printed(), places_of(report)
    judge_one = _Judge(report, expected, printed, spreads=spreads, generated=generated)
    judged = [
        JudgedNumber(
            address=address,
            place=places[address],
            printed=number,
            verdict=judge_one(address, places[address], number),
        )
        for address, number in printed.items()
        if address in places
    ]
    missing = tuple(address for address in printed if address not in places)
    return JudgedNumbers(judged=tuple(judged), missing=missing)


class _Judge:
    """Gives the verdict of one number after the other."""

    def __init__(
        self,
        report: Report,
        expected: ExpectedNumbers,
        printed: Mapping[str, PrintedNumber],
        *,
        spreads: bool,
        generated: Set[str],
    ) -> None:
        self.degenerate, self.expected, self.printed = report.degenerate, expected, printed
        self.spreads, self.generated = spreads, generated

    def __call__(self, address: str, place: Place, number: PrintedNumber) -> NumberVerdict:
        expected, cell = self.expected, place.cell
        if matches(address, expected.not_judged) or not self.generated.isdisjoint(cell.jobs):
            return "not judged"
        if cell.value is None:
            return "no value"
        # First, as such a run makes noise enough to be inside it.
        if cell.quantity.degenerate or not self.degenerate.isdisjoint(cell.jobs):
            return "degenerate run"
        if matches(address, expected.one_sided):
            slack = self._slack(number.decimals, cell.value, number.value)
            return "not above" if cell.value - number.value <= slack else "above"
        by_tolerance = self._within_tolerance(cell.value, number.value, number.decimals)
        if expected.noise == "none" or matches(address, expected.exact):
            return self._by_tolerance(cell, number, inside=by_tolerance)
        return self._by_noise(address, place, number, inside=by_tolerance)

    def _by_tolerance(self, cell: Cell, number: PrintedNumber, *, inside: bool) -> NumberVerdict:
        if not inside:
            return "outside"
        if number.sd is None:
            return "inside"
        sd = cell.quantity.sd
        same = sd is not None and self._within_tolerance(sd, number.sd, number.sd_decimals)
        return "inside" if same else "other SD"

    def _by_noise(
        self, address: str, place: Place, number: PrintedNumber, *, inside: bool
    ) -> NumberVerdict:
        quantity = place.cell.quantity
        if self.spreads and _other_spread(quantity, number):
            return "other SD"
        if inside:
            return "inside"
        ours, theirs = quantity.noise, self._noise(address, place)
        n_ours, n_theirs = quantity.n or 1, number.runs or 1
        bound = noise_bound(ours, theirs, n_ours=n_ours, n_theirs=n_theirs)
        if bound is None:
            return "noise unknown"
        assert quantity.value is not None  # noqa: S101  # checked above
        # Theirs is rounded, which moves it by up to half a unit beyond what seeds do.
        reach = bound + self._slack(number.decimals, quantity.value, number.value)
        return "inside seed noise" if abs(quantity.value - number.value) <= reach else "outside"

    def _noise(self, address: str, place: Place) -> SeedNoise | None:
        """How their number varies over seeds, from the SDs that the file has."""
        number = self.printed.get(address)
        if matches(address, self.expected.means):
            column, above = f".{place.column.key}", f"{place.table.name}.{place.block.key}."
            rows = [
                other
                for other in self.printed
                if other.startswith(above)
                and other.endswith(column)
                and not matches(other, self.expected.means)
            ]
            parts = [self._own_noise(other, place.column.key) for other in rows]
            return noise_of_mean([part for part in parts if part is not None])
        return self._own_noise(address, place.column.key) if number else None

    def _own_noise(self, address: str, column: str) -> SeedNoise | None:
        number = self.printed[address]
        if number.noise is not None or column not in self.expected.differences:
            return number.noise
        row = address.removesuffix(column)
        sides = [self.printed.get(row + side) for side in self.expected.differences[column]]
        return combined_noise([side.noise if side else None for side in sides])

    def _within_tolerance(self, ours: float, theirs: float, decimals: int) -> bool:
        return abs(ours - theirs) <= self._slack(decimals, ours, theirs)

    def _slack(self, decimals: int, ours: float, theirs: float) -> float:
        """What a difference may be; exactly the tolerance passes, whatever its last bit."""
        tolerance = self.expected.tolerance
        if tolerance == 0:
            return 0.0
        allowed = 0.5 * 10.0**-decimals if tolerance == "printed" else tolerance
        return allowed + 2 * math.ulp(max(abs(ours), abs(theirs), allowed))


def _other_spread(quantity: Quantity, number: PrintedNumber) -> bool:
    """Whether both SDs are those of runs, and cannot be of one distribution."""
    noise, theirs = quantity.noise, number.noise
    if noise is None or theirs is None or quantity.sd is None or number.sd is None:
        return False
    n = round(noise.n)
    # The SD of a mean over backbones is a mean of SDs, whose distribution is no F.
    if not math.isclose(noise.error * math.sqrt(n), quantity.sd, rel_tol=1e-9):
        return False
    # Theirs is rounded: the nearest of the SDs that it can stand for.
    half = 0.5 * 10.0**-number.sd_decimals
    nearest = min(max(quantity.sd, number.sd - half), number.sd + half)
    return not same_spread(quantity.sd, nearest, n=n, n_other=round(theirs.n))


def matches(address: str, patterns: list[str]) -> bool:
    """Whether one of the patterns, with `*`, is the address."""
    return any(fnmatch.fnmatchcase(address, pattern) for pattern in patterns)


def _check(expected: ExpectedNumbers) -> None:
    """Raise UsageError for numbers that are none, and patterns that no number has."""
    printed = expected.printed()
    if not printed:
        raise UsageError("values: no number to compare is there")
    if expected.noise == "seeds" and any(number.runs is None for number in printed.values()):
        raise UsageError('runs: missing, and noise = "seeds" needs it')
    for key in ("not_judged", "one_sided", "exact", "means", "other_runs", "explained"):
        for pattern in getattr(expected, key):
            if not fnmatch.filter(printed, pattern):
                raise UsageError(f"{key}: no number has the address `{pattern}`")


RUNS = "runs"
"""Key of a table that has a number for each run, in place of their mean and SD."""


def _flattened(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        address = f"{above}.{key}" if above else key
        if isinstance(value, Mapping) and value.keys() != {RUNS}:
            yield from _flattened(value, address)
        else:
            yield address, value


def _number(address: str, value: Any, *, runs: int | None) -> PrintedNumber:
    if isinstance(value, Mapping):
        return _mean_of_runs(f"{address}.{RUNS}", value[RUNS])
    parts = value if isinstance(value, list) and len(value) == 2 else [value]
    if not all(map(_is_number, parts)):
        wanted = "a number, [mean, SD] or { runs = [...] }"
        raise UsageError(f"values.{address}: expected {wanted}, got {_written(value)}")
    if len(parts) > 1 and parts[1] < 0:
        raise UsageError(f"values.{address}: a standard deviation is not below 0, got {parts[1]}")
    return PrintedNumber(
        value=float(parts[0]),
        decimals=_decimals(parts[0]),
        sd=float(parts[1]) if len(parts) > 1 else None,
        sd_decimals=_decimals(parts[1]) if len(parts) > 1 else 0,
        runs=runs,
    )


def _mean_of_runs(address: str, values: Any) -> PrintedNumber:
    if not isinstance(values, list) or not values or not all(map(_is_number, values)):
        raise UsageError(f"values.{address}: expected [a number a run], got {_written(values)}")
    found, decimals = moments([float(value) for value in values]), max(map(_decimals, values))
    return PrintedNumber(
        value=found.mean,
        decimals=decimals,
        sd=found.sd,
        sd_decimals=decimals,
        runs=found.n,
    )


def _decimals(number: float | Decimal) -> int:
    """Digits after the point in which it is written."""
    if isinstance(number, int):
        return 0
    exponent = Decimal(str(number)).as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101  # it is finite
    return max(-exponent, 0)


def _is_number(value: object) -> bool:
    known = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return known and math.isfinite(float(str(value)))


def _written(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return str(value) if isinstance(value, Decimal) else repr(value)
