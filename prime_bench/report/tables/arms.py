"""A row an arm: levels over all backbones, with the settings that set arms apart."""

import json
from collections.abc import Iterator, Sequence
from statistics import mean, stdev

from prime_bench.report.quantities.design import ArmColumn, PanelDesign, RowDesign
from prime_bench.report.quantities.grid import score_of
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.quantities.stats import error_of_mean, moments
from prime_bench.report.tables.cells import level, words
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import ArmsDefinition, LevelColumn
from prime_bench.report.tables.model import Better, Block, Cell, Column, Row
from prime_bench.report.tables.names import absent_note, arms_named
from prime_bench.store.record import RunRecord

_BETTER: dict[str, Better] = {"auc": "higher", "logloss": "lower"}


def build(evidence: Evidence, definition: ArmsDefinition) -> Content:
    """Every arm that the definition names, on every data set."""
    grid = evidence.grid(baseline=definition.baseline, split=definition.columns[0].split)
    blocks = [
        Block(
            key=key,
            label=panel.design.label,
            columns=tuple(_columns(definition, panel.design)),
            rows=tuple(
                _row(evidence, definition, panel.design, arm)
                for arm in arms_named(grid, definition.arms)
            ),
        )
        for key, panel in keyed_panels(grid)
    ]
    notes = absent_note(grid, definition.arms)
    if any(column.shows in ("entropy", "largest_load") for column in definition.columns):
        notes.append(
            "Entropy (in nats, mean over bags) and largest load (over bags) are those of the "
            "routing diagnosis where it was made, else of the training batches of the best epoch"
        )
    return grid_content(evidence, grid, blocks=blocks, definition=definition, notes=notes)


def _columns(definition: ArmsDefinition, design: PanelDesign) -> Iterator[Column]:
    yield Column(key="arm", label="Configuration", kind="words")
    for head, key in definition.settings.items():
        yield Column(key=key, label=head, kind="words")
    for column in definition.columns:
        better = _BETTER.get(column.shows)
        yield Column(
            key=column.key,
            label=column.label,
            kind="number",
            group=column.group,
            better=better,
        )
        if column.by_backbone:
            for row in design.rows:
                yield Column(
                    key=f"{column.key}.{row.key}",
                    label=row.label,
                    kind="number",
                    group=column.group,
                    better=better,
                )


def _row(
    evidence: Evidence, definition: ArmsDefinition, design: PanelDesign, arm: ArmColumn
) -> Row:
    settings = json.loads(arm.key.settings)
    cells = [words(definition.labels.get(arm.name, arm.label))]
    for key in definition.settings.values():
        value = str(settings[key]) if key in settings else ""
        cells.append(words(definition.values.get(value, value) or "--"))
    for column in definition.columns:
        cells.append(_level(evidence, column, design, design.rows, arm, definition.decimals))
        if column.by_backbone:
            cells += [
                _level(evidence, column, design, [row], arm, definition.decimals)
                for row in design.rows
            ]
    return Row(key=arm.name, cells=tuple(cells))


def _level(
    evidence: Evidence,
    column: LevelColumn,
    design: PanelDesign,
    rows: Sequence[RowDesign],
    arm: ArmColumn,
    decimals: int,
) -> Cell:
    """Mean of the backbones' means ± mean of their SDs."""
    seeds = design.seeds if column.seed is None else (column.seed,)
    by_row: list[dict[str, float]] = []
    flagged = False
    for row in rows:
        runs = evidence.grouped.get(row.comparison, {}).get(arm.key, {}) if row.comparison else {}
        own = {seed: run for seed, run in runs.items() if seed in seeds}
        values = {run.job_id: _value(run, column, evidence) for run in own.values()}
        flagged |= any(run.result.degenerate for run in own.values())
        by_row.append({job: value for job, value in values.items() if value is not None})
    found = [list(values.values()) for values in by_row if values]
    n = sum(len(values) for values in found)
    spread = len(seeds) > 1 and found and all(len(values) > 1 for values in found)
    return level(
        mean(mean(values) for values in found) if found else None,
        sd=mean(stdev(values) for values in found) if spread else None,
        noise=error_of_mean([moments(values).error for values in found]),
        decimals=decimals,
        remark=f"n={n}" if n < len(seeds) * len(rows) else "",
        flagged=flagged,
        jobs=[job for values in by_row for job in values],
    )


def _value(run: RunRecord, column: LevelColumn, evidence: Evidence) -> float | None:
    if column.shows == "auc" or column.shows == "logloss":
        return score_of(run, column.shows, column.split)
    if (found := evidence.routing_of(run)) is not None:
        return found.entropy if column.shows == "entropy" else found.largest_load
    best = [item.routing for item in run.history if item.epoch == run.result.best_epoch]
    if not best or best[0] is None:
        return None
    routing = best[0]
    return mean(routing.entropy) if column.shows == "entropy" else max(routing.largest_load)
