"""Methods below their backbones, with costs and seeds: the paper's comparison with APG.

Δ is the first arm less the second in every column, so LogLoss and costs are better below zero: the
directions are the definition's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import mean

from prime_bench.report.quantities.costs import MeasuredCost, Spot, measured_costs
from prime_bench.report.quantities.design import ArmColumn, PanelDesign, RowDesign
from prime_bench.report.quantities.grid import Grid, Panel
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.tables.cells import MISSING_CELL, averaged, change, level, words
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import Measured, MethodsDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Row
from prime_bench.report.tables.names import absent_note, arms_named
from prime_bench.store.record import ProbeRecord, RunRecord

_LABELS: dict[Measured, str] = {
    "auc": "AUC",
    "logloss": "LogLoss",
    "parameters": "Params (M)",
    "latency": "Latency (ms)",
}


def build(evidence: Evidence, definition: MethodsDefinition) -> Content:
    """Means, costs and each seed's test AUC; one device's latencies, since two do not compare."""
    grid = evidence.grid(baseline=definition.delta[1])
    devices = measured_costs(evidence.probes_of("cost"))
    device = max(devices, key=lambda name: len(devices[name]), default=None)
    costs = devices[device] if device is not None else {}
    maker = _Rows(evidence, grid, definition, costs)
    blocks = [
        Block(
            key=key,
            label=panel.design.label,
            columns=tuple(_columns(definition, panel.design)),
            rows=tuple(row for own in panel.design.rows for row in maker.rows(panel, own)),
        )
        for key, panel in keyed_panels(grid)
    ]
    return grid_content(
        evidence,
        grid,
        blocks=blocks,
        definition=definition,
        notes=[*absent_note(grid, definition.arms), *_latency_note(devices, device)],
        probes=maker.used,
    )


def _columns(definition: MethodsDefinition, design: PanelDesign) -> Iterator[Column]:
    yield Column(key="backbone", label="Backbone", kind="words")
    yield Column(key="method", label="Method", kind="words")
    for key, better in definition.directions.items():
        group = f"Mean of {len(design.seeds)} seeds" if key in ("auc", "logloss") else "Deployment"
        yield Column(key=key, label=_LABELS[key], kind="number", group=group, better=better)
    for seed in design.seeds:
        yield Column(
            key=f"seed.{seed}",
            label=str(seed),
            kind="number",
            group="Test AUC by seed",
            better="higher",
        )


class _Rows:
    """Rows of one backbone after the other; remembers which measurements it has used."""

    def __init__(
        self,
        evidence: Evidence,
        grid: Grid,
        definition: MethodsDefinition,
        costs: Mapping[Spot, MeasuredCost],
    ) -> None:
        self.evidence, self.grid, self.definition, self.costs = evidence, grid, definition, costs
        self.used: list[ProbeRecord] = []

    def rows(self, panel: Panel, row: RowDesign) -> Iterator[Row]:
        """One a method, and Δ where both of its arms are there."""
        arms = arms_named(self.grid, self.definition.arms)
        lines = {arm.name: self._line(panel, row, arm) for arm in arms}
        first, second = (lines.get(name) for name in self.definition.delta)
        delta = list(self._delta(panel, row, first, second)) if first and second else []
        if first and delta:
            lines[self.definition.delta[0]] = [
                replace(cell, bold=better.bold) for cell, better in zip(first, delta, strict=True)
            ]
        for number, arm in enumerate(arms):
            yield Row(
                key=f"{row.key}.{arm.name}",
                cells=(words("" if number else row.label), words(arm.label), *lines[arm.name]),
                ruled=number == 0 and row is not panel.design.rows[0],
            )
        if delta:
            yield Row(key=f"{row.key}.delta", cells=(words(""), words("Δ"), *delta))

    def _line(self, panel: Panel, row: RowDesign, arm: ArmColumn) -> list[Cell]:
        runs = self._runs(panel, row, arm)
        cells = [self._quantity(key, panel, row, arm) for key in self.definition.directions]
        for seed in panel.design.seeds:
            run = runs.get(seed)
            cells.append(
                level(
                    run.result.test.auc if run else None,
                    decimals=self.definition.decimals,
                    flagged=bool(run and run.result.degenerate),
                    jobs=[run.job_id] if run else [],
                )
            )
        return cells

    def _quantity(self, key: Measured, panel: Panel, row: RowDesign, arm: ArmColumn) -> Cell:
        decimals = self.definition.decimals
        if key in ("auc", "logloss"):
            scores = panel.cells[row.label, arm.name, key]
            return averaged(scores, n_seeds=len(panel.design.seeds), decimals=decimals)
        if key == "parameters":
            runs = list(self._runs(panel, row, arm).values())
            counts = [run.budget.backbone_parameters + run.budget.plugin_parameters for run in runs]
            value = counts[0] / 1e6 if counts else None
            return level(value, decimals=decimals, jobs=[run.job_id for run in runs])
        found = self._cost(row, arm)
        if found is None:
            return MISSING_CELL
        self.used.append(found.record)
        return level(found.inference_ms, decimals=decimals, jobs=[found.record.job_id])

    def _cost(self, row: RowDesign, arm: ArmColumn) -> MeasuredCost | None:
        if row.comparison is None:
            return None
        place = row.comparison
        return self.costs.get((place.variant, place.backbone, place.backbone_settings, arm.key))

    def _runs(self, panel: Panel, row: RowDesign, arm: ArmColumn) -> dict[int, RunRecord]:
        if row.comparison is None:
            return {}
        runs = self.evidence.grouped.get(row.comparison, {}).get(arm.key, {})
        return {seed: run for seed, run in runs.items() if seed in panel.design.seeds}

    def _delta(
        self, panel: Panel, row: RowDesign, first: list[Cell], second: list[Cell]
    ) -> Iterator[Cell]:
        """Scores over complete pairs, costs as they are, seeds only where they pair."""
        decimals, arm = self.definition.decimals, self.definition.delta[0]
        comparison = panel.comparisons[row.label, arm, "auc"]
        paired = dict(zip(comparison.seeds, comparison.differences, strict=True))
        n = len(self.definition.directions)
        for (key, better), a, b in zip(
            self.definition.directions.items(), first[:n], second[:n], strict=True
        ):
            if key in ("auc", "logloss"):
                own = panel.comparisons[row.label, arm, key]
                # Stored so that positive is an improvement; here it is arm less arm.
                raw = [value if key == "auc" else -value for value in own.differences]
                yield change(
                    mean(raw) if raw else None,
                    noise=own.error,
                    decimals=decimals,
                    better=better,
                    remark=f"n={len(raw)}" if len(raw) < len(panel.design.seeds) else "",
                    flagged=bool(own.degenerate_seeds),
                    jobs=own.jobs,
                )
            else:
                jobs = (*a.jobs, *b.jobs)
                yield change(_difference(a, b), decimals=decimals, better=better, jobs=jobs)
        for seed, a, b in zip(panel.design.seeds, first[n:], second[n:], strict=True):
            yield change(
                paired.get(seed),
                decimals=decimals,
                flagged=a.flagged or b.flagged,
                jobs=(*a.jobs, *b.jobs),
            )


def _difference(a: Cell, b: Cell) -> float | None:
    return None if a.value is None or b.value is None else a.value - b.value


def _latency_note(devices: Mapping[str, object], device: str | None) -> list[str]:
    if device is None:
        return [
            "No latency: no measurement of cost among the records; prime-bench profile makes one"
        ]
    others = [name for name in devices if name != device]
    left_out = f"; left out, as times of two devices do not compare: {', '.join(others)}"
    return [f"Latency is the median of the repetitions on {device}" + (left_out if others else "")]
