"""A row an arm: pairs in which both validation metrics are better than the baseline's."""

from collections.abc import Iterator, Sequence
from statistics import mean

from prime_bench.report.quantities.design import ArmColumn
from prime_bench.report.quantities.grid import Grid, Panel
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.quantities.stats import METRICS
from prime_bench.report.tables.cells import count, words
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import WinsDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Row
from prime_bench.report.tables.names import absent_note, arms_named


def build(evidence: Evidence, definition: WinsDefinition) -> Content:
    """A win needs AUC and LogLoss; each alone stands beside it."""
    grid = evidence.grid(baseline=definition.baseline, split="valid")
    blocks = [
        Block(
            key=key,
            label=panel.design.label,
            columns=tuple(_columns(panel)),
            rows=tuple(_rows(grid, panel, definition)),
        )
        for key, panel in keyed_panels(grid)
    ]
    asked = [*definition.arms, *(arm for arms in definition.best_of.values() for arm in arms)]
    notes = absent_note(grid, asked)
    return grid_content(evidence, grid, blocks=blocks, definition=definition, notes=notes)


def _columns(panel: Panel) -> Iterator[Column]:
    yield Column(key="arm", label="Arm", kind="words")
    for key, label in (("both", "Both better"), ("auc", "AUC"), ("logloss", "LogLoss")):
        yield Column(key=key, label=label, kind="count", group="All", better="higher")
    for row in panel.design.rows:
        yield Column(
            key=f"both.{row.key}",
            label=row.label,
            kind="count",
            group="Both better",
            better="higher",
        )


def _rows(grid: Grid, panel: Panel, definition: WinsDefinition) -> Iterator[Row]:
    if grid.baseline is None:
        return
    shown = [arm for arm in arms_named(grid, definition.arms) if arm is not grid.baseline]
    for arm in shown:
        yield Row(key=arm.name, cells=(words(arm.label), *_cells(panel, arm)))
    for label, names in definition.best_of.items():
        rivals = arms_named(grid, names)
        if best := _best(panel, rivals):
            yield Row(
                key=f"best.{label}",
                cells=(words(f"{label} ({best.label})"), *_cells(panel, best)),
                ruled=True,
            )


def _best(panel: Panel, arms: Sequence[ArmColumn]) -> ArmColumn | None:
    """The arm with the highest mean validation AUC over backbones; None where none has one."""
    means = {}
    for arm in arms:
        moments = [panel.cells[row.label, arm.name, "auc"].moments for row in panel.design.rows]
        if all(moments):
            means[arm.name] = mean(item.mean for item in moments if item)
    return max(
        (arm for arm in arms if arm.name in means), key=lambda a: means[a.name], default=None
    )


def _cells(panel: Panel, arm: ArmColumn) -> list[Cell]:
    by_row = []
    for row in panel.design.rows:
        auc, logloss = (panel.comparisons[row.label, arm.name, metric] for metric in METRICS)
        by_row.append((list(zip(auc.differences, logloss.differences, strict=True)), auc.jobs))
    pairs = [pair for own, _ in by_row for pair in own]
    jobs = [job for _, own in by_row for job in own]
    return [
        count(sum(auc > 0 and logloss > 0 for auc, logloss in pairs), len(pairs), jobs=jobs),
        count(sum(auc > 0 for auc, _ in pairs), len(pairs), jobs=jobs),
        count(sum(logloss > 0 for _, logloss in pairs), len(pairs), jobs=jobs),
        *(
            count(sum(auc > 0 and logloss > 0 for auc, logloss in own), len(own), jobs=own_jobs)
            for own, own_jobs in by_row
        ),
    ]
