"""Statistics over architectures: a row a comparison and metric, a block a data set.

One value an architecture, the median of its pairs: pairs of one architecture are a cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prime_bench.report.formats.numbers import fixed, signed
from prime_bench.report.quantities import stats
from prime_bench.report.quantities.grid import Grid, Panel, Summary
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.quantities.stats import (
    METRIC_LABELS,
    METRICS,
    Metric,
    equivalence,
    hodges_lehmann_interval,
    holm,
    leave_one_out,
)
from prime_bench.report.tables.cells import change, count, level, words
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import FamilyDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Kind, Row
from prime_bench.report.tables.statistics import P_DECIMALS


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """One arm against another on one data set, by one metric."""

    block: str
    arm: str
    versus: str
    label: str
    metric: Metric
    panel: Panel
    summary: Summary
    seed_sd: float | None
    """Mean over architectures of the reference arm's SD over seeds."""

    @property
    def p(self) -> float:
        """Exact Wilcoxon p over the architectures' medians; 1 without any."""
        return stats.wilcoxon(self.summary.backbone_medians)


def build(evidence: Evidence, definition: FamilyDefinition) -> Content:
    """The recipe's family, or every arm against the baseline where none is declared.

    Holm counts all comparisons of the family on all data sets, each metric on its own.
    """
    base = evidence.grid(baseline=definition.baseline)
    family = evidence.cells.family if evidence.cells else ()
    family = family or [(arm.name, definition.baseline) for arm in base.others if base.baseline]
    grids = {name: evidence.grid(baseline=name) for _, name in family}
    every = list(_comparing(grids, family))
    adjusted: dict[tuple[str, str, str, str], float] = {}
    for metric in METRICS:
        own = [item for item in every if item.metric == metric and item.summary.backbone_medians]
        adjusted |= dict(zip(map(_key, own), holm([item.p for item in own]), strict=True))
    blocks = [
        Block(
            key=key,
            label=panel.design.label,
            columns=tuple(_columns(definition)),
            rows=tuple(
                Row(
                    key=f"{item.arm}.{item.versus}.{item.metric}",
                    cells=tuple(_cells(item, adjusted.get(_key(item)), definition)),
                )
                for item in every
                if item.block == key
            ),
        )
        for key, panel in keyed_panels(base)
    ]
    return grid_content(
        evidence, base, blocks=blocks, definition=definition, notes=_notes(every, definition)
    )


def _comparing(grids: dict[str, Grid], family: Sequence[tuple[str, str]]) -> Iterator[Comparing]:
    for arm, versus in family:
        grid = grids[versus]
        labels = {column.name: column.label for column in grid.arms}
        if arm not in labels or grid.baseline is None:
            continue
        for key, panel in keyed_panels(grid):
            for metric in METRICS:
                reference = panel.summaries[versus, metric].mean
                yield Comparing(
                    block=key,
                    arm=arm,
                    versus=versus,
                    label=f"{labels[arm]} \N{MINUS SIGN} {labels[versus]}",
                    metric=metric,
                    panel=panel,
                    summary=panel.summaries[arm, metric],
                    seed_sd=reference.sd if reference else None,
                )


def _columns(definition: FamilyDefinition) -> Iterator[Column]:
    yield Column(key="comparison", label="Comparison", kind="words")
    yield Column(key="metric", label="Metric", kind="words")
    others: list[tuple[str, str, Kind]] = [
        ("delta", "Mean Δ", "change"),
        ("median", "Median Δ", "change"),
        ("won", "Won", "count"),
        ("hodges_lehmann", "HL", "change"),
        ("interval", "Interval (level)", "words"),
        ("leave_one_out", "One left out", "words"),
        ("wilcoxon", "Wilcoxon p", "number"),
        ("sign", "Sign p", "number"),
        ("floor", "Least p", "number"),
        ("holm", "Holm p", "number"),
        ("by_sd", "At seed SD", "words"),
        ("by_margin", f"At {definition.margin:g}", "words"),
    ]
    for key, label, kind in others:
        yield Column(key=key, label=label, kind=kind, better="higher" if kind == "change" else None)


def _cells(item: Comparing, adjusted: float | None, definition: FamilyDefinition) -> Iterator[Cell]:
    summary, decimals = item.summary, definition.decimals
    jobs = item.panel.jobs_of(item.arm, item.metric)
    flagged = item.panel.flagged(item.arm, item.metric)
    medians = summary.backbone_medians
    yield words(item.label)
    yield words(METRIC_LABELS[item.metric])
    yield change(summary.delta, decimals=decimals, flagged=flagged, jobs=jobs)
    yield change(summary.paired_median, decimals=decimals, flagged=flagged, jobs=jobs)
    yield count(summary.backbones_won, summary.backbones_compared, jobs=jobs)
    if not medians:
        yield from [Cell()] * 9
        return
    interval = hodges_lehmann_interval(medians)
    yield change(stats.hodges_lehmann(medians), decimals=decimals, flagged=flagged, jobs=jobs)
    extent = _extent(interval.low, interval.high, decimals)
    yield Cell(text=f"{extent} ({fixed(100 * interval.level, 1)}%)", jobs=tuple(jobs))
    left = leave_one_out(medians)
    yield Cell(text=_extent(*left, decimals), jobs=tuple(jobs)) if left else Cell()
    yield level(item.p, decimals=P_DECIMALS, jobs=jobs)
    yield level(stats.sign_test(medians), decimals=P_DECIMALS, jobs=jobs)
    yield level(stats.smallest_p(medians), decimals=P_DECIMALS)
    yield level(adjusted, decimals=P_DECIMALS, jobs=jobs)
    if item.seed_sd:
        verdict = equivalence(interval, margin=item.seed_sd)
        text = f"{verdict} ({fixed(item.seed_sd, decimals)})"
        yield Cell(text=text, flagged=flagged, jobs=tuple(jobs))
    else:
        yield Cell()
    verdict = equivalence(interval, margin=definition.margin)
    yield Cell(text=verdict, flagged=flagged, jobs=tuple(jobs))


def _notes(every: Sequence[Comparing], definition: FamilyDefinition) -> list[str]:
    counted = sum(item.metric == "auc" and bool(item.summary.backbone_medians) for item in every)
    return [
        f"Holm p counts {counted} comparisons, on all data sets, for each metric on its own; tests "
        "and intervals are over architectures, one median each, never over pooled pairs",
        "An interval's level is the exact one of the signed-rank distribution, at least 95% or the "
        "most that so few architectures allow; a verdict is better, worse or equivalent where the "
        "whole interval lies beyond or within the margin on either side (the reference arm's mean "
        f"SD over seeds, and {definition.margin:g}), else unclear; too few architectures for an "
        "interval of 95% have no verdict",
    ]


def _extent(low: float, high: float, decimals: int) -> str:
    return f"{signed(low, decimals)} to {signed(high, decimals)}"


def _key(item: Comparing) -> tuple[str, str, str, str]:
    return item.block, item.arm, item.versus, item.metric
