"""Whether a prepared table has the groups of rows that a probe measures, told before arms are
trained for it.

The probes themselves choose groups by the same numbers (`probes.groups.choose`); what they would
leave out is named here, with the key to change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prime_bench.base.errors import DataError
from prime_bench.base.words import counted
from prime_bench.settings.probes import (
    GradientsSettings,
    ProbedSplit,
    ProbeSettings,
    RoutingSettings,
    SubgroupsSettings,
)

_CHUNK_ROWS = 1 << 16
"""Rows that are counted at once: large logs have enough rows of the largest groups in a few."""


@dataclass(frozen=True, kw_only=True)
class Fitness:
    """What a table lacks for a probe."""

    unfit: str = ""
    """Why the probe cannot measure anything on the table, and the keys to change; empty if it can.
    """
    skipped: tuple[str, ...] = ()
    """Why fields are left out, a text each, where the others can be measured."""


@dataclass(frozen=True, kw_only=True)
class _Need:
    """What a probe needs of a field."""

    split: ProbedSplit
    groups: int
    """Number of groups that are large enough."""
    rows: int = 0
    """Rows of each."""
    positives: int = 0
    """Rows with a click of each."""
    negatives: int = 0


@dataclass(frozen=True, kw_only=True)
class _Group:
    rows: int
    positives: int

    @property
    def negatives(self) -> int:
        return self.rows - self.positives

    def share(self, need: _Need) -> float:
        """The smallest ratio of what it has to what is needed; 1 and more is enough."""
        pairs = (
            (self.rows, need.rows),
            (self.positives, need.positives),
            (self.negatives, need.negatives),
        )
        return min((has / wanted for has, wanted in pairs if wanted), default=float(self.rows > 0))


@dataclass(frozen=True, kw_only=True)
class _Field:
    """A field whose groups do not suffice."""

    name: str
    groups: tuple[_Group, ...] | None
    """Those with any row, the most suitable first; None where the table has no such field."""


def fitness_of(probe: ProbeSettings, *, folder: Path) -> Fitness:
    """Compare the groups of the table in `folder` with those that a probe needs.

    A table whose files cannot be read is taken to fit: the job then says what is wrong with it.
    """
    need = _need_of(probe)
    if need is None or not isinstance(
        probe, GradientsSettings | RoutingSettings | SubgroupsSettings
    ):
        return Fitness()
    try:
        lacking = _lacking(probe.fields, need, folder=folder)
    except DataError:
        return Fitness()
    texts = [f"{field.name}: {_what_there_is(field, need)}" for field in lacking]
    if len(lacking) < len(probe.fields) or not lacking or isinstance(probe, RoutingSettings):
        # Routing over all rows needs no group.
        return Fitness(skipped=tuple(texts))
    return Fitness(unfit="; ".join([_wanted(probe, need), *texts, _advice(probe, need, lacking)]))


def _need_of(probe: ProbeSettings) -> _Need | None:
    if isinstance(probe, GradientsSettings):
        return _Need(
            split="valid",
            groups=2,
            positives=probe.blocks * probe.positives_per_block,
            negatives=probe.blocks * probe.negatives_per_block,
        )
    if isinstance(probe, RoutingSettings | SubgroupsSettings):
        return _Need(split=probe.split, groups=1, rows=probe.min_rows)
    return None


def _lacking(fields: Sequence[str], need: _Need, *, folder: Path) -> list[_Field]:
    """The fields that have too few groups of the size that is needed. Raises DataError."""
    import numpy as np

    from prime_bench.data.table import PreparedTable

    table = PreparedTable.open(folder)
    split = table.split(need.split)
    columns: dict[str | None, int] = {}
    for place, field in enumerate(table.schema.categorical):
        columns.setdefault(field.semantic, place)  # the first of a meaning, as the probes take it
    lacking = []
    for name in fields:
        if name not in columns:
            lacking.append(_Field(name=name, groups=None))
            continue
        size = table.schema.categorical[columns[name]].vocabulary_size or 0
        counts = np.zeros(2 * size, dtype=np.int64)
        for start in range(0, len(split), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            both = 2 * split.ids[rows, columns[name]].astype(np.int64) + split.labels[rows]
            counts += np.bincount(both, minlength=2 * size)[: 2 * size]
            groups = [
                _Group(rows=int(pair.sum()), positives=int(pair[1]))
                for pair in counts.reshape(-1, 2)
                if pair.any()
            ]
            if sum(group.share(need) >= 1 for group in groups) >= need.groups:
                break
        else:
            ordered = sorted(groups, key=lambda group: group.share(need), reverse=True)
            lacking.append(_Field(name=name, groups=tuple(ordered)))
    return lacking


def _wanted(probe: ProbeSettings, need: _Need) -> str:
    if isinstance(probe, GradientsSettings):
        return (
            f"needs, in one field, two groups of {need.split} rows with "
            f"{counted(need.positives, 'click')} "
            f"(`probe.blocks` x `positives_per_block`) and {counted(need.negatives, 'other row')} "
            "(x `negatives_per_block`) each"
        )
    rows = counted(need.rows, f"{need.split} row")
    return f"needs a group of {rows} (`probe.min_rows`) in one field"


def _what_there_is(field: _Field, need: _Need) -> str:
    if field.groups is None:
        return "no field of the table has this meaning"
    shown = field.groups[: need.groups]
    if need.rows:
        sizes = [counted(group.rows, "row") for group in shown]
    else:
        sizes = [
            f"{counted(group.positives, 'click')} and {counted(group.negatives, 'other')}"
            for group in shown
        ]
    largest = f", the largest with {' and '.join(sizes)}" if shown else ""
    return f"{counted(len(field.groups), 'group')}{largest}"


def _advice(probe: ProbeSettings, need: _Need, lacking: Sequence[_Field]) -> str:
    """The key to change, and its largest value with which a field can be measured."""
    candidates = [
        (field.groups[need.groups - 1].share(need), field)
        for field in lacking
        if field.groups is not None and len(field.groups) >= need.groups
    ]
    share, field = max(candidates, key=lambda pair: pair[0], default=(0.0, None))
    if field is None or share == 0:
        return "name other fields in `probe.fields`, by the meanings that the card gives to columns"
    if not isinstance(probe, GradientsSettings):
        rows = field.groups[0].rows if field.groups else 0
        return f"`--set probe.min_rows={rows}` suffices for {field.name}"
    blocks = int(share * probe.blocks)
    if blocks:
        return f"`--set probe.blocks={blocks}` suffices for {field.name}"
    positives = int(share * need.positives)
    negatives = int(share * need.negatives)
    if positives and negatives:
        return (
            f"`--set probe.blocks=1 --set probe.positives_per_block={positives} --set "
            f"probe.negatives_per_block={negatives}` suffices for {field.name}"
        )
    return "prepare more rows"
