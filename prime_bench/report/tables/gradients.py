"""Competition gap of every arm, a row a backbone (paper, Figures 1 and 3)."""

from collections.abc import Iterator, Sequence
from statistics import mean

from prime_bench.findings import Gap
from prime_bench.report.quantities.formulas import SeedNoise, moments, t_interval
from prime_bench.report.quantities.gaps import (
    FieldGap,
    comparable,
    field_gaps,
    gaps_by_seed,
    mean_gap,
    null_gaps,
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
    blocks, notes = [], []
    for group in measurements(probes):
        gaps = field_gaps(group.records)
        arms = [arm for arm in definition.arms if any(gap.arm == arm for gap in gaps)]
        compared = comparable(gaps, arms)
        left_out = len({(g.backbone, g.seed, g.field) for g in gaps}) - len(
            {(g.backbone, g.seed, g.field) for g in compared}
        )
        if left_out:
            notes.append(
                note(
                    "missing",
                    f"{group.label}: {left_out} comparisons of backbone, seed and field are left "
                    "out: not every arm has them on the same rows",
                )
            )
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
            *probe_notes(probes, noun="gradients probe"),
            *notes,
            *null_note(null_gaps(probes), decimals=definition.decimals),
            note("measurement", WHAT_ELSE),
        ],
        records=probes,
        words={"datasets": series([group.label for group in measurements(probes)])},
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
        cells = _cells(gaps, arms, definition)
        yield Row(key="mean", cells=(words("Mean"), *cells), ruled=True)


def _cells(
    gaps: Sequence[FieldGap], arms: Sequence[str], definition: GradientsDefinition
) -> Iterator[Cell]:
    by_arm = {arm: [gap for gap in gaps if gap.arm == arm] for arm in arms}
    dense, decimals = by_arm.get(definition.baseline, []), definition.decimals
    places = {(gap.backbone, gap.seed, gap.field) for gap in gaps}
    yield shown(count(len(places), jobs=_jobs(gaps)), decimals)
    for values in ([gap.semantic for gap in dense], [gap.random for gap in dense]):
        average = sum(values) / len(values) if values else None
        yield shown(Level(value=average, jobs=_jobs(dense)), decimals)
    for unit in ("block", "example"):
        baseline = mean_gap(dense, unit=unit)
        for arm, own in by_arm.items():
            value = mean_gap(own, unit=unit)
            by_seed = gaps_by_seed(own, unit=unit)
            level = Level(
                value=value,
                interval=t_interval(by_seed),
                noise=moments(by_seed).noise if by_seed else None,
                jobs=_jobs(own),
            )
            yield shown(level, decimals)
            if arm != definition.baseline:
                smaller = Level(
                    value=reduction(value, baseline),
                    noise=_noise_of_reduction(by_seed, gaps_by_seed(dense, unit=unit)),
                    jobs=_jobs([*own, *dense]),
                )
                yield shown(smaller, 1)


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
