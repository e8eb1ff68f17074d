"""Competition gap of every arm, a row a backbone (paper, Figures 1 and 3)."""

from collections.abc import Iterable, Iterator, Sequence, Set
from statistics import mean
from typing import Literal

from prime_bench.findings import Gap
from prime_bench.report.quantities.formulas import SeedNoise, moments, t_interval
from prime_bench.report.quantities.gaps import (
    FieldGap,
    by_seed,
    comparable,
    field_gaps,
    null_gaps,
    of_every_backbone,
    reduction,
)
from prime_bench.report.quantities.layout import arm_label, backbone_label, catalogue_rank
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.values import Difference, Level, count
from prime_bench.report.tables.body import TableBody, measurements, probe_notes
from prime_bench.report.tables.definition import GradientsDefinition
from prime_bench.report.tables.model import (
    Block,
    Cell,
    Column,
    Row,
    TableNote,
    note,
    series,
    shown,
    words,
)

WHAT_ELSE = (
    "The gap also measures how the groups' covariates differ: where a group's rows look alike, its "
    "gradients do too, and the gap need not be zero where nothing competes"
)


def build(records: ReportRecords, definition: GradientsDefinition) -> TableBody:
    """Build the table from checkpoints and fields that all arms have on the same rows."""
    probes = records.probes_of("gradients")
    groups = measurements(probes, labels=records.dataset_labels)
    blocks: list[Block] = []
    notes: list[TableNote] = []
    for group in groups:
        gaps = field_gaps(group.records)
        arms = [arm for arm in definition.arms if any(gap.arm == arm for gap in gaps)]
        compared = comparable(gaps, arms)
        notes += _missing_notes(gaps, compared, label=group.label)
        blocks.append(
            Block(
                key=group.key,
                label=group.label,
                columns=tuple(_columns(arms, definition.baseline)),
                rows=tuple(_rows(compared, arms, definition)),
            )
        )
    return TableBody(
        blocks=blocks,
        notes=[
            *probe_notes(probes, noun="gradients probe", labels=records.dataset_labels),
            *notes,
            *null_note(null_gaps(probes), decimals=definition.decimals),
            note("measurement", WHAT_ELSE),
        ],
        records=probes,
        words={"datasets": series([group.label for group in groups])},
    )


def _columns(arms: Sequence[str], baseline: str) -> Iterator[Column]:
    yield Column(key="backbone", label="Backbone", kind="words")
    yield Column(key="n", label="n", kind="count")
    yield Column(
        key="semantic", label="Semantic", kind="number", group=f"Cosine, {arm_label(baseline)}"
    )
    yield Column(
        key="random", label="Random", kind="number", group=f"Cosine, {arm_label(baseline)}"
    )
    for unit, group in (("block", "Gap, blocks"), ("example", "Gap, examples")):
        for arm in arms:
            yield Column(
                key=f"{unit}.{arm}",
                label=arm_label(arm),
                kind="number",
                group=group,
                better="lower",
            )
            if arm != baseline:
                yield Column(
                    key=f"{unit}.{arm}.reduction",
                    label="Smaller by (%)",
                    kind="number",
                    group=group,
                    better="higher",
                )


def _rows(
    gaps: Sequence[FieldGap], arms: Sequence[str], definition: GradientsDefinition
) -> Iterator[Row]:
    names = sorted({gap.backbone for gap in gaps}, key=catalogue_rank)
    for name in names:
        own = [gap for gap in gaps if gap.backbone == name]
        cells = _cells(own, arms, definition)
        yield Row(key=name, cells=(words(backbone_label(name)), *cells))
    if gaps:
        cells = _cells(of_every_backbone(gaps), arms, definition)
        yield Row(key="mean", cells=(words("Mean"), *cells), ruled=True)


def _cells(
    gaps: Sequence[FieldGap], arms: Sequence[str], definition: GradientsDefinition
) -> Iterator[Cell]:
    by_arm = {arm: [gap for gap in gaps if gap.arm == arm] for arm in arms}
    dense, decimals = by_arm.get(definition.baseline, []), definition.decimals
    yield shown(count(len(_places(gaps)), jobs=_jobs(gaps)), decimals)
    for cosine in (by_seed(dense, "semantic"), by_seed(dense, "random")):
        yield shown(Level(value=mean(cosine) if cosine else None, jobs=_jobs(dense)), decimals)
    for measure in _GAPS:
        values = {arm: by_seed(own, measure) for arm, own in by_arm.items()}
        means = {arm: mean(own) if own else None for arm, own in values.items()}
        for arm, own in by_arm.items():
            level = Level(
                value=means[arm],
                interval=t_interval(values[arm]),
                noise=moments(values[arm]).noise if values[arm] else None,
                jobs=_jobs(own),
            )
            yield shown(level, decimals)
            if arm != definition.baseline:
                smaller = Level(
                    value=reduction(means[arm], means.get(definition.baseline)),
                    noise=_noise_of_reduction(values[arm], values.get(definition.baseline, ())),
                    jobs=_jobs([*own, *dense]),
                )
                yield shown(smaller, 1)


_GAPS: tuple[Literal["block_gap", "example_gap"], ...] = ("block_gap", "example_gap")
GapKey = tuple[str, int, str]
"""Backbone, seed and field."""


def _places(gaps: Iterable[FieldGap]) -> set[GapKey]:
    return {(gap.backbone, gap.seed, gap.field) for gap in gaps}


def _missing_notes(
    gaps: Sequence[FieldGap], compared: Sequence[FieldGap], *, label: str
) -> Iterator[TableNote]:
    """Name what is measured and in no row, and what is missing in the Mean row."""
    if left_out := _places(gaps) - _places(compared):
        text = "left out, since not every arm has it on the same rows"
        yield note("missing", f"{label}: {text}: {_named(left_out, compared or gaps)}")
    every = {(b, s, f) for b, _, _ in _places(compared) for _, s, f in _places(compared)}
    if missing := every - _places(compared):
        text = "the Mean row covers seeds and fields that every backbone has; missing"
        yield note("mean", f"{label}: {text}: {_named(missing, compared)}")


def _named(places: Set[GapKey], among: Sequence[FieldGap]) -> str:
    """`DNN, seed 2`, with the fields where these are not all that the seed has."""
    parts = []
    for backbone, seed in sorted({(b, s) for b, s, _ in places}, key=_checkpoint_rank):
        fields = {f for b, s, f in places if (b, s) == (backbone, seed)}
        every = {gap.field for gap in among if gap.seed == seed}
        some = f" ({', '.join(sorted(fields))})" if every - fields else ""
        parts.append(f"{backbone_label(backbone)}, seed {seed}{some}")
    return "; ".join(parts)


def _checkpoint_rank(checkpoint: tuple[str, int]) -> tuple[tuple[int, str], int]:
    return catalogue_rank(checkpoint[0]), checkpoint[1]


def _noise_of_reduction(gaps: Sequence[float], dense: Sequence[float]) -> SeedNoise | None:
    """How the reduction varies over seeds, from that of each; None where a seed has none."""
    if len(gaps) != len(dense):
        return None
    values = [reduction(gap, other) for gap, other in zip(gaps, dense, strict=True)]
    known = [value for value in values if value is not None]
    return moments(known).noise if known and len(known) == len(values) else None


def _jobs(gaps: Sequence[FieldGap]) -> tuple[str, ...]:
    return tuple(sorted({gap.job for gap in gaps}))


def null_note(nulls: Sequence[Gap], *, decimals: int) -> Iterator[TableNote]:
    """What labels that no model sees have for a gap: a check of the measurement itself."""
    if not nulls:
        return
    gaps, p_values = [null.gap for null in nulls], [null.p_value for null in nulls]
    average, low, high = (
        shown(Difference(value=value), decimals) for value in (mean(gaps), min(gaps), max(gaps))
    )
    least, largest = (shown(Level(value=p), 3) for p in (min(p_values), max(p_values)))
    yield note(
        "measurement",
        *("A random label that no model sees has a gap of ", average, " on average (", low, " to "),
        *(high, f" in {len(gaps)} measurements, p from ", least, " to ", largest),
        "): what is noise",
    )
