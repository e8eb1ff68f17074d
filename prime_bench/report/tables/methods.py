"""Methods below their backbones, with costs and seeds: the paper's comparison with APG.

Δ is the first arm less the second in every column, so LogLoss and costs are better below zero: the
directions are the definition's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import mean

from prime_bench.base.words import counted
from prime_bench.findings import Metric
from prime_bench.report.quantities.costs import CostBesideDense, CostKey, measured_costs
from prime_bench.report.quantities.grid import Grid, GridBlock
from prime_bench.report.quantities.layout import ArmColumn, BackboneRow, BlockLayout
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.statistics import Selection, difference, level
from prime_bench.report.quantities.values import MISSING, Difference, Level, Quantity
from prime_bench.report.tables.body import (
    TableBody,
    absent_note,
    arms_named,
    grid_body,
    keyed_blocks,
)
from prime_bench.report.tables.definition import MethodColumn, MethodsDefinition
from prime_bench.report.tables.model import (
    Block,
    Column,
    Row,
    TableNote,
    note,
    shown,
    words,
)
from prime_bench.store.record import ProbeRecord

_LABELS: dict[MethodColumn, str] = {
    "auc": "AUC",
    "logloss": "LogLoss",
    "parameters": "Params (M)",
    "latency": "Latency (ms)",
}


def build(records: ReportRecords, definition: MethodsDefinition) -> TableBody:
    """Build the table. Latencies are those of one device: times of two do not compare."""
    grid = records.grid(baseline=definition.delta[1])
    devices = measured_costs(records.probes_of("cost"))
    device = max(devices, key=lambda name: len(devices[name]), default=None)
    costs = devices[device] if device is not None else {}
    labels = {column.name: column.label for column in grid.arms}
    arm, versus = (labels.get(name, name) for name in definition.delta)
    maker = _Rows(records, grid, definition, costs)
    blocks = [
        Block(
            key=key,
            label=block.layout.label,
            columns=tuple(_columns(definition, block.layout)),
            rows=tuple(row for own in block.layout.rows for row in maker.rows(block, own)),
        )
        for key, block in keyed_blocks(grid)
    ]
    return grid_body(
        records,
        grid,
        blocks=blocks,
        definition=definition,
        notes=[*absent_note(grid, definition.arms), *_latency_note(devices, device)],
        probes=maker.used,
        bold=f"values of {arm} that are better than {versus}'s, and Δ where they are",
    )


def _columns(definition: MethodsDefinition, layout: BlockLayout) -> Iterator[Column]:
    yield Column(key="backbone", label="Backbone", kind="words")
    yield Column(key="method", label="Method", kind="words")
    for key, better in definition.directions.items():
        group = (
            f"Mean of {counted(len(layout.seeds), 'seed')}"
            if key in ("auc", "logloss")
            else "Deployment"
        )
        yield Column(key=key, label=_LABELS[key], kind="number", group=group, better=better)
    for seed in layout.seeds:
        yield Column(
            key=f"seed.{seed}",
            label=str(seed),
            kind="number",
            group="Test AUC by seed",
            better="higher",
        )


class _Rows:
    """Makes the rows of each backbone; `used` collects the records of the costs shown."""

    def __init__(
        self,
        records: ReportRecords,
        grid: Grid,
        definition: MethodsDefinition,
        costs: Mapping[CostKey, CostBesideDense],
    ) -> None:
        self.records, self.grid, self.definition, self.costs = records, grid, definition, costs
        self.used: list[ProbeRecord] = []

    def rows(self, block: GridBlock, row: BackboneRow) -> Iterator[Row]:
        """A row for each method, and Δ where both of its arms are there."""
        arms, decimals = arms_named(self.grid, self.definition.arms), self.definition.decimals
        lines = {arm.name: list(self._line(block, row, arm)) for arm in arms}
        first, second = (lines.get(name) for name in self.definition.delta)
        delta = list(self._delta(block, row, first, second)) if first and second else []
        for number, arm in enumerate(arms):
            cells = [shown(quantity, decimals) for quantity in lines[arm.name]]
            if delta and arm.name == self.definition.delta[0]:
                cells = [
                    replace(cell, emphasised=difference.improves)
                    for cell, difference in zip(cells, delta, strict=True)
                ]
            yield Row(
                key=f"{row.key}.{arm.name}",
                cells=(words("" if number else row.label), words(arm.label), *cells),
                ruled=number == 0 and row is not block.layout.rows[0],
            )
        if delta:
            cells = [shown(quantity, decimals) for quantity in delta]
            yield Row(key=f"{row.key}.delta", cells=(words(""), words("Δ"), *cells))

    def _line(self, block: GridBlock, row: BackboneRow, arm: ArmColumn) -> Iterator[Quantity]:
        for key in self.definition.directions:
            if key == "auc" or key == "logloss":
                yield replace(level(self._selection(block, row, arm, metric=key)), sd=None)
            elif key == "parameters":
                yield self._parameters(block, row, arm)
            else:
                yield self._latency(row, arm)
        for seed in block.layout.seeds:
            yield level(self._selection(block, row, arm, seed=seed))

    def _selection(
        self,
        block: GridBlock,
        row: BackboneRow,
        arm: ArmColumn,
        *,
        metric: Metric = "auc",
        seed: int | None = None,
    ) -> Selection:
        return Selection(
            records=self.records,
            block=block,
            backbones=(row,),
            arm=arm,
            metric=metric,
            split=self.grid.split,
            seed=seed,
        )

    def _parameters(self, block: GridBlock, row: BackboneRow, arm: ArmColumn) -> Level:
        runs = list(self.records.runs_of(row, arm, seeds=block.layout.seeds).values())
        counts = [run.budget.backbone_parameters + run.budget.plugin_parameters for run in runs]
        return Level(
            value=counts[0] / 1e6 if counts else None, jobs=tuple(run.job_id for run in runs)
        )

    def _latency(self, row: BackboneRow, arm: ArmColumn) -> Level:
        key = row.comparison
        found = key and self.costs.get(
            CostKey(key.variant, key.backbone, key.backbone_settings, arm.key)
        )
        if not found:
            return MISSING
        self.used.append(found.record)
        return Level(value=found.inference_ms, jobs=(found.record.job_id,))

    def _delta(
        self, block: GridBlock, row: BackboneRow, first: list[Quantity], second: list[Quantity]
    ) -> Iterator[Difference]:
        """Scores over complete pairs, costs as they are, seeds only where they pair."""
        arm = next(arm for arm in self.grid.arms if arm.name == self.definition.delta[0])
        n = len(self.definition.directions)
        for (key, better), a, b in zip(
            self.definition.directions.items(), first[:n], second[:n], strict=True
        ):
            if key == "auc" or key == "logloss":
                found = block.comparisons[row.label, arm.name, key]
                # Stored so that positive is an improvement; here it is arm less arm.
                raw = [value if key == "auc" else -value for value in found.differences]
                yield Difference(
                    value=mean(raw) if raw else None,
                    noise=found.noise,
                    n=len(raw),
                    planned=len(block.layout.seeds),
                    better=better,
                    degenerate=bool(found.degenerate_seeds),
                    jobs=found.jobs,
                )
            else:
                yield Difference(
                    value=None if a.value is None or b.value is None else a.value - b.value,
                    better=better,
                    jobs=(*a.jobs, *b.jobs),
                )
        for seed, a, b in zip(block.layout.seeds, first[n:], second[n:], strict=True):
            yield replace(
                difference(self._selection(block, row, arm, seed=seed)),
                degenerate=a.degenerate or b.degenerate,
                jobs=(*a.jobs, *b.jobs),
            )


def _latency_note(devices: Mapping[str, object], device: str | None) -> list[TableNote]:
    if device is None:
        text = "No latency: no measurement of cost among the records; prime-bench profile makes one"
        return [note("measurement", text)]
    others = [name for name in devices if name != device]
    left_out = f"; left out, as times of two devices do not compare: {', '.join(others)}"
    text = f"Latency is the median of the repetitions on {device}" + (left_out if others else "")
    return [note("measurement", text)]
