"""Competition gaps of trained arms by semantic field, from the records of gradient probes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from prime_bench.findings import EQUAL_COSINES, Gap, GradientFindings
from prime_bench.settings.probes import NULL_FIELD
from prime_bench.store.record import ProbeRecord


@dataclass(frozen=True, kw_only=True)
class FieldGap:
    """The gap of one trained arm by one semantic field, from a probe of its run."""

    backbone: str
    arm: str
    seed: int
    field: str
    semantic: float
    """Mean pairwise cosine of semantic groups."""
    random: float
    """The same of matched random groups of blocks."""
    block_gap: float
    """Competition gap over random groupings of whole blocks: `random` less `semantic`."""
    example_gap: float | None
    """The same over random groupings of rows; None where it was not measured."""
    rows: str
    """Digest of the rows: gaps of two arms compare only on the same rows."""
    job: str
    """Id of the probe's job."""


def field_gaps(records: Iterable[ProbeRecord]) -> list[FieldGap]:
    """Return the gap of every field over the weights of the Top-NN, without random labels."""
    gaps = []
    for record in records:
        findings = record.findings
        if not isinstance(findings, GradientFindings):
            continue
        for field in findings.fields:
            measure = next((m for m in field.measures if m.parameters == "top"), None)
            if measure is None or field.field.startswith(NULL_FIELD):
                continue
            gaps.append(
                FieldGap(
                    backbone=record.job.backbone,
                    arm=record.arm,
                    seed=record.job.seed,
                    field=field.field,
                    semantic=measure.semantic,
                    random=measure.block.random,
                    block_gap=measure.block.gap,
                    example_gap=measure.example.gap if measure.example else None,
                    rows=findings.rows,
                    job=record.job_id,
                )
            )
    return gaps


def comparable(gaps: Sequence[FieldGap], arms: Sequence[str]) -> list[FieldGap]:
    """Return the gaps of backbones, seeds and fields that every arm has on the same rows."""
    arms_of: dict[tuple[str, int, str, str], set[str]] = {}
    for gap in gaps:
        key = (gap.backbone, gap.seed, gap.field, gap.rows)
        arms_of.setdefault(key, set()).add(gap.arm)
    return [
        gap
        for gap in gaps
        if gap.arm in arms and arms_of[gap.backbone, gap.seed, gap.field, gap.rows] >= set(arms)
    ]


def of_every_backbone(gaps: Sequence[FieldGap]) -> list[FieldGap]:
    """Return the gaps of seeds and fields that every backbone has."""
    backbones_of: dict[tuple[int, str], set[str]] = {}
    for gap in gaps:
        backbones_of.setdefault((gap.seed, gap.field), set()).add(gap.backbone)
    every = {gap.backbone for gap in gaps}
    return [gap for gap in gaps if backbones_of[gap.seed, gap.field] == every]


def by_seed(
    gaps: Sequence[FieldGap],
    measure: Literal["semantic", "random", "block_gap", "example_gap"] = "block_gap",
) -> list[float]:
    """The mean over backbones of their means over fields for each seed; seeds without the measure
    are left out.

    Seeds are the repetitions because checkpoints vary independently, and fields of one checkpoint
    do not. The mean of these is the one average of all measures: cosines differ by the gap.
    """
    values: dict[int, dict[str, list[float]]] = {}
    for gap in gaps:
        value = getattr(gap, measure)
        if value is not None:
            values.setdefault(gap.seed, {}).setdefault(gap.backbone, []).append(value)
    return [mean(map(mean, values[seed].values())) for seed in sorted(values)]


def null_gaps(records: Iterable[ProbeRecord]) -> list[Gap]:
    """Gaps of labels that no model sees, where they were measured: what is noise."""
    return [
        measure.block
        for record in records
        if isinstance(record.findings, GradientFindings)
        for field in record.findings.fields
        if field.field.startswith(NULL_FIELD)
        for measure in field.measures
        if measure.parameters == "top"
    ]


def reduction(gap: float | None, dense: float | None) -> float | None:
    """By how much of Dense's gap another is smaller, in per cent; None without a positive gap."""
    if gap is None or dense is None or dense <= EQUAL_COSINES:
        return None
    return 100 * (1 - gap / dense)
