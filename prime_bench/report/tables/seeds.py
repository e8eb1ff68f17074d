"""A row a seed, a column an arm: the paper's seed table of GDCN on Criteo."""

from collections.abc import Iterator, Sequence

from prime_bench.report.quantities.design import ArmColumn, RowDesign
from prime_bench.report.quantities.grid import Grid, Panel, score_of
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.tables.cells import averaged, level, words
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import SeedsDefinition
from prime_bench.report.tables.model import Block, Column, Row
from prime_bench.report.tables.names import absent_note, arms_named


def build(evidence: Evidence, definition: SeedsDefinition) -> Content:
    """A block a backbone and data set."""
    grid = evidence.grid(baseline=definition.baseline)
    arms = arms_named(grid, definition.arms)
    blocks = [
        Block(
            key=f"{key}.{row.key}",
            label=f"{row.label}, {panel.design.label}",
            columns=(
                Column(key="seed", label="Seed", kind="words"),
                *(
                    Column(
                        key=arm.name,
                        label=definition.labels.get(arm.name, arm.label),
                        kind="number",
                        better="higher" if definition.metric == "auc" else "lower",
                    )
                    for arm in arms
                ),
            ),
            rows=tuple(_rows(evidence, grid, panel, row, arms, definition)),
        )
        for key, panel in keyed_panels(grid)
        for row in panel.design.rows
    ]
    notes = absent_note(grid, definition.arms)
    return grid_content(evidence, grid, blocks=blocks, definition=definition, notes=notes)


def _rows(
    evidence: Evidence,
    grid: Grid,
    panel: Panel,
    row: RowDesign,
    arms: Sequence[ArmColumn],
    definition: SeedsDefinition,
) -> Iterator[Row]:
    metric, decimals = definition.metric, definition.decimals
    grouped = evidence.grouped.get(row.comparison, {}) if row.comparison else {}
    for seed in panel.design.seeds:
        cells = [words(str(seed))]
        for arm in arms:
            run = grouped.get(arm.key, {}).get(seed)
            cells.append(
                level(
                    score_of(run, metric, grid.split) if run else None,
                    decimals=decimals,
                    flagged=bool(run and run.result.degenerate),
                    jobs=[run.job_id] if run else [],
                )
            )
        yield Row(key=str(seed), cells=tuple(cells))
    n_seeds = len(panel.design.seeds)
    means = [
        averaged(panel.cells[row.label, arm.name, metric], n_seeds=n_seeds, decimals=decimals)
        for arm in arms
    ]
    yield Row(key="mean", cells=(words("Mean"), *means), ruled=True)
