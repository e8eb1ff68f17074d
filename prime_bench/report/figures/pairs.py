"""Pairs of a grid as what figures are drawn from."""

from collections.abc import Sequence

import numpy as np

from prime_bench.report.figures.controls import ControlBar
from prime_bench.report.figures.forest import ForestRow
from prime_bench.report.figures.inputs import CostPoint, PairedScores
from prime_bench.report.quantities import stats
from prime_bench.report.quantities.design import ArmColumn
from prime_bench.report.quantities.grid import Grid, Panel, score_of
from prime_bench.report.quantities.stats import Metric, hodges_lehmann_interval
from prime_bench.store.record import RunRecord


def leading_arm(grid: Grid) -> ArmColumn | None:
    """The arm whose pairs are drawn one by one: PRIME's, else the first; None without any."""
    prime = [arm for arm in grid.others if arm.key.plugin == "prime"]
    return next(iter([*prime, *grid.others]), None)


def runs_of(panel: Panel, row: str, arms: tuple[str, str]) -> list[tuple[RunRecord, RunRecord]]:
    """The paired runs of a row in both arms, the baseline first."""
    return [
        (pair.runs[arms[0]], pair.runs[arms[1]])
        for pair in panel.pairs
        if pair.row.label == row and arms[1] in pair.runs
    ]


def paired_scores(panel: Panel, arms: tuple[str, str], *, metric: Metric) -> list[PairedScores]:
    """A cell a row that has a pair of these arms, the baseline first; a missing score is NaN."""
    cells = []
    for row in panel.design.rows:
        pairs = runs_of(panel, row.label, arms)
        if pairs:
            scores = [[_number(score_of(run, metric, "test")) for run in pair] for pair in pairs]
            cells.append(
                PairedScores(
                    backbone=row.label,
                    metric=metric,
                    seeds=tuple(run.job.seed for run, _ in pairs),
                    baseline=tuple(left for left, _ in scores),
                    arm=tuple(right for _, right in scores),
                )
            )
    return cells


def forest_rows(cells: Sequence[PairedScores], *, heading: str = "") -> list[ForestRow]:
    """A row a backbone: the median of its differences; below them, what holds over backbones."""
    rows = [
        spread_row(list(cell.differences.values()), label=cell.backbone, heading=heading)
        for cell in cells
        if cell.differences
    ]
    if len(rows) > 1:
        medians = [row.estimate for row in rows]
        interval = hodges_lehmann_interval(medians)
        rows.append(
            ForestRow(
                label="Over backbones",
                estimate=stats.hodges_lehmann(medians),
                low=interval.low,
                high=interval.high,
                n=len(medians),
                level=interval.level,
                heading=heading,
                overall=True,
            )
        )
    return rows


def spread_row(differences: Sequence[float], *, label: str, heading: str = "") -> ForestRow:
    """The median of n differences, from the least to the largest of them.

    That range covers the true median unless all n fall on one side of it: 1 - 2 / 2^n of the time,
    whatever the distribution.
    """
    n = len(differences)
    return ForestRow(
        label=label,
        estimate=float(np.median(differences)),
        low=min(differences) if n > 1 else None,
        high=max(differences) if n > 1 else None,
        n=n,
        level=1 - 2.0 ** (1 - n) if n > 1 else None,
        heading=heading,
    )


def cost_points(panel: Panel, baseline: ArmColumn, *, arms: Sequence[ArmColumn]) -> list[CostPoint]:
    """Every arm on every row that has a pair."""
    points = []
    for arm in arms:
        names = (baseline.name, arm.name)
        for cell in paired_scores(panel, names, metric="auc"):
            if not cell.differences:
                continue
            pairs = runs_of(panel, cell.backbone, names)
            budget = pairs[0][1].budget
            points.append(
                CostPoint(
                    backbone=cell.backbone,
                    arm=arm.label,
                    difference=float(np.median(list(cell.differences.values()))),
                    added_parameters=budget.plugin_parameters / budget.backbone_parameters,
                    step_time_ratio=_step_time_ratio(pairs),
                    n_pairs=len(cell.differences),
                )
            )
    return points


def control_bars(grid: Grid, panel: Panel, *, baseline: str) -> list[ControlBar]:
    """What the grid's own baseline, PRIME, is ahead of each other arm but `baseline`."""
    return [
        ControlBar(
            label=arm.label,
            differences={
                row.label: tuple(
                    -value for value in panel.comparisons[row.label, arm.name, "auc"].differences
                )
                for row in panel.design.rows
            },
        )
        for arm in grid.others
        if arm.name != baseline
    ]


def _step_time_ratio(pairs: Sequence[tuple[RunRecord, RunRecord]]) -> float | None:
    """Median over pairs of the arm's seconds a step over the baseline's; runs of one machine."""
    ratios = []
    for left, right in pairs:
        here, there = left.environment, right.environment
        if (here.device, here.threads) != (there.device, there.threads):
            continue
        base, arm = _step_s(left), _step_s(right)
        if base and arm:
            ratios.append(arm / base)
    return float(np.median(ratios)) if ratios else None


def _step_s(run: RunRecord) -> float | None:
    last = run.history[-1] if run.history else None
    return last.wall_s / last.step if last and last.step else None


def _number(score: float | None) -> float:
    return float("nan") if score is None else score
