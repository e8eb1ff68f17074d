"""Statistics of each cell, AUC and LogLoss side by side, and every paired difference."""

from collections.abc import Callable, Iterator

from prime_bench.report.formats.numbers import signed
from prime_bench.report.quantities import stats
from prime_bench.report.quantities.design import ArmColumn, RowDesign
from prime_bench.report.quantities.grid import Panel
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.quantities.stats import METRIC_LABELS, METRICS, Metric
from prime_bench.report.tables.cells import change, count, level, tallied, words
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import CellsDefinition, PairsDefinition, TableDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Row

Columns = Callable[[Panel], Iterator[Column]]
MakeRow = Callable[[Panel, RowDesign, ArmColumn, int], Iterator[Cell]]
P_DECIMALS = 4
LOOSE_DECIMALS = 2
"""Digits of a probability of improvement and of a correlation: five seeds tell no more."""


def build(evidence: Evidence, definition: CellsDefinition) -> Content:
    """Median, range, wins, exact tests with their floor, improvement and correlation."""
    return _content(evidence, definition, columns=_columns, row=_row)


def build_pairs(evidence: Evidence, definition: PairsDefinition) -> Content:
    """Every seed's difference, so that nothing has to be taken on trust."""
    return _content(evidence, definition, columns=_pair_columns, row=_pair_row)


def _content(
    evidence: Evidence, definition: TableDefinition, *, columns: Columns, row: MakeRow
) -> Content:
    grid = evidence.grid(baseline=definition.baseline)
    blocks = [
        Block(
            key=key,
            label=panel.design.label,
            columns=tuple(columns(panel)),
            rows=tuple(
                Row(
                    key=f"{own.key}.{arm.name}",
                    cells=(
                        words("" if number else own.label),
                        words(arm.label),
                        *row(panel, own, arm, definition.decimals),
                    ),
                    ruled=number == 0 and own is not panel.design.rows[0] and len(grid.others) > 1,
                )
                for own in panel.design.rows
                for number, arm in enumerate(grid.others)
                if grid.baseline
            ),
        )
        for key, panel in keyed_panels(grid)
    ]
    return grid_content(evidence, grid, blocks=blocks, definition=definition)


def _columns(panel: Panel) -> Iterator[Column]:  # noqa: ARG001  # as `_pair_columns`
    yield from _names()
    yield Column(key="n", label="n", kind="count")
    yield Column(key="floor", label="Least p", kind="number")
    for metric in METRICS:
        group = METRIC_LABELS[metric]
        yield Column(key=f"{metric}.median", label="Median Δ", kind="change", group=group)
        yield Column(key=f"{metric}.range", label="Range of Δ", kind="words", group=group)
        yield Column(key=f"{metric}.won", label="Won", kind="count", group=group)
        yield Column(key=f"{metric}.wilcoxon", label="Wilcoxon p", kind="number", group=group)
        yield Column(key=f"{metric}.sign", label="Sign p", kind="number", group=group)
        yield Column(key=f"{metric}.improvement", label="P(better)", kind="number", group=group)
        yield Column(key=f"{metric}.correlation", label="r", kind="number", group=group)


def _row(panel: Panel, row: RowDesign, arm: ArmColumn, decimals: int) -> Iterator[Cell]:
    auc = panel.comparisons[row.label, arm.name, "auc"]
    yield count(len(auc.seeds), None, jobs=auc.jobs)
    yield level(stats.smallest_p(auc.differences) if auc.seeds else None, decimals=P_DECIMALS)
    for metric in METRICS:
        yield from _statistics(panel, row, arm, metric, decimals)


def _statistics(
    panel: Panel, row: RowDesign, arm: ArmColumn, metric: Metric, decimals: int
) -> Iterator[Cell]:
    found = panel.comparisons[row.label, arm.name, metric]
    values, jobs = found.differences, found.jobs
    flagged = bool(found.degenerate_seeds)
    yield change(found.median, decimals=decimals, flagged=flagged, jobs=jobs)
    if not values:
        yield from [Cell()] * 6
        return
    extent = f"{signed(min(values), decimals)} to {signed(max(values), decimals)}"
    yield Cell(text=extent, jobs=jobs)
    yield tallied(found.tally, jobs=jobs)
    yield level(stats.wilcoxon(values), decimals=P_DECIMALS, jobs=jobs)
    yield level(stats.sign_test(values), decimals=P_DECIMALS, jobs=jobs)
    sides = {"baseline": found.baseline_scores, "arm": found.arm_scores}
    improvement = stats.probability_of_improvement(metric, **sides)
    yield level(improvement, decimals=LOOSE_DECIMALS, jobs=jobs)
    yield level(stats.correlation(**sides), decimals=LOOSE_DECIMALS, jobs=jobs)


def _pair_columns(panel: Panel) -> Iterator[Column]:
    yield from _names()
    for metric in METRICS:
        for seed in panel.design.seeds:
            yield Column(
                key=f"{metric}.{seed}",
                label=str(seed),
                kind="change",
                group=f"Δ {METRIC_LABELS[metric]} by seed",
                better="higher",
            )


def _pair_row(panel: Panel, row: RowDesign, arm: ArmColumn, decimals: int) -> Iterator[Cell]:
    for metric in METRICS:
        found = panel.comparisons[row.label, arm.name, metric]
        by_seed = dict(zip(found.seeds, found.differences, strict=True))
        runs = zip(found.jobs[::2], found.jobs[1::2], strict=True)
        jobs = dict(zip(found.seeds, runs, strict=True))
        for seed in panel.design.seeds:
            yield change(
                by_seed.get(seed),
                decimals=decimals,
                flagged=seed in found.degenerate_seeds,
                jobs=jobs.get(seed, ()),
            )


def _names() -> Iterator[Column]:
    yield Column(key="backbone", label="Backbone", kind="words")
    yield Column(key="arm", label="Arm", kind="words")
