"""The competition gap of every arm, a row a backbone: the numbers of the paper's Figures 1, 3."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from prime_bench.report.formats.numbers import series
from prime_bench.report.quantities.design import arm_label, backbone_label, catalogue_rank
from prime_bench.report.quantities.gaps import (
    FieldGap,
    comparable,
    field_gaps,
    gaps_by_seed,
    mean_gap,
    null_note,
    reduction,
)
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.quantities.stats import t_interval
from prime_bench.report.tables.cells import count, level, words
from prime_bench.report.tables.content import Content, measurements, probe_notes
from prime_bench.report.tables.definition import GradientsDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Row

WHAT_ELSE = (
    "The gap also measures how the groups' covariates differ: where a group's rows look alike, its "
    "gradients do too, and the gap need not be zero where nothing competes"
)


def build(evidence: Evidence, definition: GradientsDefinition) -> Content:
    """Gaps over checkpoints and fields that all arms have on the same rows."""
    records = evidence.probes_of("gradients")
    blocks, notes = [], []
    for group in measurements(records):
        gaps = field_gaps(group.records)
        arms = [arm for arm in definition.arms if any(gap.arm == arm for gap in gaps)]
        shown = comparable(gaps, arms)
        left_out = len({(g.backbone, g.seed, g.field) for g in gaps}) - len(
            {(g.backbone, g.seed, g.field) for g in shown}
        )
        if left_out:
            notes.append(
                f"{group.label}: {left_out} comparisons of backbone, seed and field are left out: "
                "not every arm has them on the same rows"
            )
        blocks.append(
            Block(
                key=group.key,
                label=group.label,
                columns=tuple(_columns(arms, definition.baseline)),
                rows=tuple(_rows(shown, arms, definition)),
            )
        )
    return Content(
        blocks=blocks,
        notes=[
            *probe_notes(records, noun="gradient diagnosis"),
            *notes,
            *null_note(records, decimals=definition.decimals),
            WHAT_ELSE,
        ],
        records=records,
        words={"datasets": series([group.label for group in measurements(records)])},
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
    dense = by_arm.get(definition.baseline, [])
    decimals, jobs = definition.decimals, [gap.job for gap in dense]
    places = {(gap.backbone, gap.seed, gap.field) for gap in gaps}
    yield count(len(places), None, jobs=sorted({gap.job for gap in gaps}))
    for values in ([gap.semantic for gap in dense], [gap.random for gap in dense]):
        mean = sum(values) / len(values) if values else None
        yield level(mean, decimals=decimals, jobs=sorted(set(jobs)))
    for unit in ("block", "example"):
        baseline = mean_gap(dense, unit=unit)
        for arm, own in by_arm.items():
            value = mean_gap(own, unit=unit)
            both = sorted({gap.job for gap in (*own, *dense)})
            cell = level(value, decimals=decimals, jobs=sorted({gap.job for gap in own}))
            interval = t_interval(gaps_by_seed(own, unit=unit))
            yield replace(cell, aside=interval.words(decimals) if interval else "")
            if arm != definition.baseline:
                yield level(reduction(value, baseline), decimals=1, jobs=both)
