"""Statistics over architectures: a row a comparison and metric, a block a data set.

One value an architecture, the median of its pairs: pairs of one architecture are a cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from prime_bench.base.words import counted
from prime_bench.findings import METRIC_LABELS, Metric
from prime_bench.report.quantities import formulas
from prime_bench.report.quantities.formulas import (
    SKEWED,
    Interval,
    guarded_equivalence,
    hodges_lehmann_interval,
    holm,
    leave_one_out,
    sign_interval,
)
from prime_bench.report.quantities.grid import Grid, GridBlock, Summary
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.values import (
    MISSING,
    Difference,
    EquivalenceVerdict,
    Extent,
    Level,
    Quantity,
    count,
)
from prime_bench.report.tables.body import TableBody, covering, grid_body, keyed_blocks
from prime_bench.report.tables.definition import FamilyDefinition
from prime_bench.report.tables.model import (
    Block,
    Column,
    ColumnKind,
    Row,
    TableNote,
    note,
    shown,
    words,
)


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """One arm against another on one data set, by one metric."""

    block_key: str
    arm: str
    versus: str
    label: str
    metric: Metric
    block: GridBlock
    summary: Summary

    @property
    def rows(self) -> list[str]:
        """Labels of the architectures that have a pair."""
        found = self.block.comparisons.items()
        return [row for (row, *of), item in found if of == [self.arm, self.metric] and item.seeds]

    @property
    def mean_difference(self) -> float | None:
        """Mean over these architectures of their mean differences."""
        own = [self.block.comparisons[row, self.arm, self.metric] for row in self.rows]
        return float(np.mean([np.mean(item.differences) for item in own])) if own else None

    @property
    def seed_sd(self) -> float | None:
        """Median over architectures of the reference arm's SD over seeds; None where one has none.

        Runs that collapsed on a few architectures make their SDs as large as the scores, and with
        them a mean, under which any difference would be small.
        """
        scores = [self.block.scores[row, self.versus, self.metric].moments for row in self.rows]
        sds = [moments.sd for moments in scores if moments and moments.sd is not None]
        return median(sds) if sds and len(sds) == len(scores) else None

    @property
    def p(self) -> float:
        """Exact p over the architectures' medians; 1 without any."""
        return formulas.guarded_p(self.summary.backbone_medians)


def build(records: ReportRecords, definition: FamilyDefinition) -> TableBody:
    """Build the rows of the recipe's family, or of every arm against the baseline without one.

    Holm counts all comparisons of the family on all data sets, each metric on its own.
    """
    base = records.grid(baseline=definition.baseline)
    family = records.recipe.family if records.recipe else ()
    family = family or [(arm.name, definition.baseline) for arm in base.others if base.baseline]
    grids = {name: records.grid(baseline=name) for _, name in family}
    every = list(_comparing(grids, family))
    adjusted: dict[tuple[str, str, str, str], float] = {}
    for metric in records.metrics:
        own = [item for item in every if item.metric == metric and item.summary.backbone_medians]
        adjusted |= dict(zip(map(_key, own), holm([item.p for item in own]), strict=True))
    blocks = [
        Block(
            key=key,
            label=block.layout.label,
            columns=tuple(_columns(definition)),
            rows=tuple(
                Row(
                    key=f"{item.arm}.{item.versus}.{item.metric}",
                    cells=(
                        words(covering(item.label, len(item.rows), len(block.layout.rows))),
                        words(METRIC_LABELS[item.metric]),
                        *(
                            shown(quantity, definition.decimals)
                            for quantity in _quantities(item, adjusted.get(_key(item)), definition)
                        ),
                    ),
                )
                for item in every
                if item.block_key == key
            ),
        )
        for key, block in keyed_blocks(base)
    ]
    return grid_body(
        records, base, blocks=blocks, definition=definition, notes=_notes(every, definition)
    )


def _comparing(grids: dict[str, Grid], family: Sequence[tuple[str, str]]) -> Iterator[Comparing]:
    for arm, versus in family:
        grid = grids[versus]
        labels = {column.name: column.label for column in grid.arms}
        if arm not in labels or grid.baseline is None:
            continue
        for key, block in keyed_blocks(grid):
            for metric in grid.metrics:
                yield Comparing(
                    block_key=key,
                    arm=arm,
                    versus=versus,
                    label=f"{labels[arm]} \N{MINUS SIGN} {labels[versus]}",
                    metric=metric,
                    block=block,
                    summary=block.summaries[arm, metric],
                )


def _columns(definition: FamilyDefinition) -> Iterator[Column]:
    yield Column(key="comparison", label="Comparison", kind="words")
    yield Column(key="metric", label="Metric", kind="words")
    others: list[tuple[str, str, ColumnKind]] = [
        ("delta", "Mean Δ", "change"),
        ("median", "Median Δ", "change"),
        ("won", "Won", "count"),
        ("hodges_lehmann", "HL", "change"),
        ("interval", "Interval (level)", "words"),
        ("leave_one_out", "One left out", "words"),
        ("skewness", "Skewness", "number"),
        ("wilcoxon", "Wilcoxon p", "number"),
        ("sign", "Sign p", "number"),
        ("sign_interval", "Sign interval (level)", "words"),
        ("floor", "Least p", "number"),
        ("holm", "Holm p", "number"),
        ("by_sd", "At seed SD", "words"),
        ("by_margin", f"At {definition.margin:g}", "words"),
    ]
    for key, label, kind in others:
        yield Column(key=key, label=label, kind=kind, better="higher" if kind == "change" else None)


def _quantities(
    item: Comparing, adjusted: float | None, definition: FamilyDefinition
) -> Iterator[Quantity]:
    summary, medians = item.summary, item.summary.backbone_medians
    jobs = tuple(item.block.jobs_of(item.arm, item.metric))
    degenerate = item.block.has_degenerate(item.arm, item.metric)
    yield Difference(value=item.mean_difference, degenerate=degenerate, jobs=jobs)
    yield Difference(value=summary.paired_median, degenerate=degenerate, jobs=jobs)
    yield count(summary.backbones_won, summary.backbones_compared, jobs=jobs)
    if not medians:
        yield from [MISSING] * 11
        return
    estimate, left = formulas.hodges_lehmann(medians), leave_one_out(medians)
    yield Difference(value=estimate, degenerate=degenerate, jobs=jobs)
    yield _extent(hodges_lehmann_interval(medians), jobs)
    yield Extent(low=left[0], high=left[1], jobs=jobs) if left else MISSING
    yield Level(value=formulas.skewness(medians), jobs=jobs)
    yield Level(value=formulas.wilcoxon(medians), jobs=jobs)
    yield Level(value=formulas.sign_test(medians), jobs=jobs)
    yield _extent(sign_interval(medians), jobs)
    yield Level(value=formulas.smallest_p(medians), jobs=jobs)
    yield Level(value=adjusted, jobs=jobs)
    margin = item.seed_sd
    if margin:
        yield EquivalenceVerdict(
            verdict=guarded_equivalence(medians, margin=margin),
            margin=margin,
            degenerate=degenerate,
            jobs=jobs,
        )
    else:
        yield MISSING
    verdict = guarded_equivalence(medians, margin=definition.margin)
    yield EquivalenceVerdict(verdict=verdict, degenerate=degenerate, jobs=jobs)


def _extent(interval: Interval, jobs: tuple[str, ...]) -> Extent:
    return Extent(low=interval.low, high=interval.high, confidence=interval.confidence, jobs=jobs)


def _notes(every: Sequence[Comparing], definition: FamilyDefinition) -> list[TableNote]:
    first = every[0].metric if every else ""
    compared = sum(item.metric == first and bool(item.summary.backbone_medians) for item in every)
    return [
        note(
            "statistics",
            f"Holm p counts {counted(compared, 'comparison')}, on all data sets, for each metric "
            "on its own; tests and intervals are over architectures, one median each, never over "
            "pooled pairs",
        ),
        note(
            "statistics",
            "An interval's level is the exact one of the signed-rank distribution, at least 95% or "
            "the most that so few architectures allow; a verdict is better, worse or equivalent "
            "where the whole interval lies beyond or within the margin on either side (the median "
            "over architectures of the reference arm's SD over seeds, and "
            f"{definition.margin:g}), else unclear; too few architectures for an interval of 95% "
            "have no verdict",
        ),
        note(
            "statistics",
            "Wilcoxon p and the interval of HL take the medians as symmetric about their centre; "
            "the sign test and its interval, of the median, do not. Where they are skewed (a "
            f"sample skewness beyond {SKEWED:g} on either side) Holm p takes the larger p of the "
            "two, and a verdict needs both intervals",
        ),
    ]


def _key(item: Comparing) -> tuple[str, str, str, str]:
    return item.block_key, item.arm, item.versus, item.metric
