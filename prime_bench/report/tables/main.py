"""The main table: a row a backbone, a block a data set, each arm's level and what it changes."""

from collections.abc import Iterator
from dataclasses import replace

from prime_bench.report.quantities.design import RowDesign
from prime_bench.report.quantities.grid import Grid, Panel
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.quantities.stats import METRIC_LABELS, METRICS, error_of_mean
from prime_bench.report.tables.cells import (
    MISSING_CELL,
    averaged,
    change,
    count,
    level,
    tallied,
    won,
    words,
)
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import DatasetsDefinition, MainDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Row


def build(evidence: Evidence, definition: MainDefinition) -> Content:
    """All arms against the baseline on test rows."""
    grid = evidence.grid(baseline=definition.baseline)
    decimals = definition.decimals
    blocks = [
        Block(
            key=key,
            label=panel.design.label,
            columns=tuple(columns(grid)),
            rows=(
                *(_row(grid, panel, row, decimals) for row in panel.design.rows),
                *_summary_rows(grid, panel, decimals),
            ),
        )
        for key, panel in keyed_panels(grid)
    ]
    return grid_content(evidence, grid, blocks=blocks, definition=definition)


def build_datasets(evidence: Evidence, definition: DatasetsDefinition) -> Content:
    """The Mean row of every data set: what remains of a gain when the data are coded otherwise."""
    grid = evidence.grid(baseline=definition.baseline)
    head, *rest = columns(grid)
    block = Block(
        key="means",
        label="",
        columns=(replace(head, key="data", label="Data"), *rest),
        rows=tuple(
            Row(key=key, cells=(words(panel.design.label), *cells))
            for key, panel in keyed_panels(grid)
            for cells in [list(_mean_cells(grid, panel, definition.decimals))[1:]]
        ),
    )
    return grid_content(evidence, grid, blocks=[block], definition=definition)


def columns(grid: Grid) -> Iterator[Column]:
    """Backbone, then metric by metric each arm and its Δ."""
    yield Column(key="backbone", label="Backbone", kind="words")
    for metric in METRICS:
        for arm in grid.arms:
            yield Column(
                key=f"{metric}.{arm.name}",
                label=arm.label,
                kind="number",
                group=METRIC_LABELS[metric],
                better="higher" if metric == "auc" else "lower",
            )
            if grid.baseline and arm is not grid.baseline:
                yield Column(
                    key=f"{metric}.{arm.name}.delta",
                    label="Δ",
                    kind="change",
                    group=METRIC_LABELS[metric],
                    aside="won",
                    better="higher",
                )


def _row(grid: Grid, panel: Panel, row: RowDesign, decimals: int) -> Row:
    label, cells = row.label, [words(row.label)]
    n_seeds = len(panel.design.seeds)
    for metric in METRICS:
        for arm in grid.arms:
            scores = panel.cells[label, arm.name, metric]
            cells.append(averaged(scores, n_seeds=n_seeds, decimals=decimals, with_sd=True))
            if (label, arm.name, metric) in panel.comparisons:
                comparison = panel.comparisons[label, arm.name, metric]
                n = len(comparison.seeds)
                cells.append(
                    change(
                        comparison.mean,
                        noise=comparison.error,
                        decimals=decimals,
                        remark=f"n={n}" if n < n_seeds else "",
                        aside=won(comparison.tally),
                        flagged=bool(comparison.degenerate_seeds),
                        jobs=comparison.jobs,
                    )
                )
    return Row(key=row.key, cells=tuple(cells))


def _summary_rows(grid: Grid, panel: Panel, decimals: int) -> Iterator[Row]:
    """The paper's Mean and paired median, and what the pairs say."""
    yield Row(key="mean", cells=tuple(_mean_cells(grid, panel, decimals)), ruled=True)
    if grid.baseline is None:
        return
    medians, pairs, backbones = (
        [words(label)] for label in ("Paired median Δ", "Pairs won", "Backbones won")
    )
    for metric in METRICS:
        for arm in grid.arms:
            if arm is grid.baseline:
                for row in (medians, pairs, backbones):
                    row.append(MISSING_CELL)
                continue
            summary = panel.summaries[arm.name, metric]
            jobs = panel.jobs_of(arm.name, metric)
            flagged = panel.flagged(arm.name, metric)
            median = change(summary.paired_median, decimals=decimals, flagged=flagged, jobs=jobs)
            # They stand under Δ, where the pairs' other numbers are.
            medians += [MISSING_CELL, median]
            pairs += [MISSING_CELL, tallied(summary.tally, jobs=jobs)]
            backbones += [
                MISSING_CELL,
                count(summary.backbones_won, summary.backbones_compared, jobs=jobs),
            ]
    for key, row in (
        ("paired_median", medians),
        ("pairs_won", pairs),
        ("backbones_won", backbones),
    ):
        yield Row(key=key, cells=tuple(row))


def _mean_cells(grid: Grid, panel: Panel, decimals: int) -> Iterator[Cell]:
    yield words("Mean")
    for metric in METRICS:
        for arm in grid.arms:
            summary = panel.summaries[arm.name, metric]
            own = [panel.cells[row, arm.name, metric] for row in panel.mean_rows]
            yield level(
                summary.mean.mean if summary.mean else None,
                sd=summary.mean.sd if summary.mean else None,
                noise=error_of_mean([cell.moments.error for cell in own if cell.moments]),
                decimals=decimals,
                flagged=any(cell.degenerate for cell in own),
                jobs=[job for cell in own for job in cell.jobs],
            )
            if grid.baseline and arm is not grid.baseline:
                compared = [panel.comparisons[row, arm.name, metric] for row in panel.mean_rows]
                yield change(
                    summary.delta,
                    noise=error_of_mean([item.error for item in compared]),
                    decimals=decimals,
                    flagged=panel.flagged(arm.name, metric),
                    jobs=panel.jobs_of(arm.name, metric),
                )
