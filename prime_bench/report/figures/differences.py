"""Paired differences summed up: estimates with intervals, controls, and gain against cost."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import blended_transform_factory

from prime_bench.base.words import counted
from prime_bench.findings import SubgroupFindings, SubgroupScore
from prime_bench.report.figures.pairs import PairedScores, paired_runs_of, paired_scores
from prime_bench.report.figures.style import (
    BLUE,
    COLOURS,
    COLUMN_IN,
    FAINT,
    INK,
    MARKERS,
    ORANGE,
    PAGE_IN,
    add_legend,
    add_note,
    difference_scale,
    empty_figure,
    limit_ticks,
    plot_dots,
    shorten,
    signed_number,
    signed_ticks,
    styled,
    unique,
)
from prime_bench.report.quantities import formulas
from prime_bench.report.quantities.grid import Grid, GridBlock
from prime_bench.report.quantities.layout import ArmColumn
from prime_bench.store.record import ProbeRecord, RunRecord

LARGEST_GROUPS = 8
"""Subgroups of a field that a figure has room for; tables have all."""
_PLOT_SIZE = (195.0, 145.0)
"""Width and height in points of a plot of gain and cost, to keep names apart."""
_LETTER_WIDTH = 3.8
"""Points."""


@dataclass(frozen=True, kw_only=True)
class ForestRow:
    """One estimate of a forest plot; its interval is None where n is too small for any."""

    label: str
    estimate: float
    low: float | None
    high: float | None
    n: int
    level: float | None
    """Coverage of the interval, such as 0.9375: exact intervals have the levels that n allows."""
    heading: str = ""
    """Printed above the rows that share it; empty: none."""
    overall: bool = False
    """Whether it is an estimate over the other rows, drawn as a diamond."""


def forest_rows(scores: Sequence[PairedScores], *, heading: str = "") -> list[ForestRow]:
    """Return the median difference of each backbone, then the estimate over backbones.

    The latter is the Hodges-Lehmann estimate of the backbones' medians.
    """
    rows = [
        median_row(list(item.differences.values()), label=item.backbone, heading=heading)
        for item in scores
        if item.differences
    ]
    if len(rows) > 1:
        medians = [row.estimate for row in rows]
        interval = formulas.hodges_lehmann_interval(medians)
        rows.append(
            ForestRow(
                label=f"Over backbones{' (skewed)' if formulas.is_skewed(medians) else ''}",
                estimate=formulas.hodges_lehmann(medians),
                low=interval.low,
                high=interval.high,
                n=len(medians),
                level=interval.confidence,
                heading=heading,
                overall=True,
            )
        )
    return rows


def median_row(differences: Sequence[float], *, label: str, heading: str = "") -> ForestRow:
    """Return the median of n differences with the range from the smallest to the largest.

    The range contains the true median unless all n differences fall on one side of it. Its coverage
    is therefore 1 - 2 / 2^n, whatever the distribution.
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


def subgroup_rows(
    records: Sequence[ProbeRecord], *, backbone: str, arms: tuple[str, str]
) -> list[ForestRow]:
    """Return the median paired difference of AUC in all rows and in each field's largest groups.

    `arms` are their names, the baseline first.
    """
    scores: dict[tuple[str, str], dict[tuple[str, int], SubgroupScore]] = {}
    for record in records:
        if record.job.backbone != backbone or not isinstance(record.findings, SubgroupFindings):
            continue
        run = (record.arm, record.job.seed)
        scores.setdefault(("", "All rows"), {})[run] = record.findings.overall
        for field in record.findings.fields:
            for group in field.groups:
                scores.setdefault((field.field, group.size.name), {})[run] = group
    rows = []
    for heading in unique(heading for heading, _ in scores):
        names = [key for key in scores if key[0] == heading]
        names.sort(key=lambda key: -_n_rows(scores[key].values()))
        for key in names[:LARGEST_GROUPS]:
            differences = _auc_differences(scores[key], arms)
            if differences:
                rows.append(median_row(differences, label=key[1], heading=heading))
    return rows


def _auc_differences(
    scores: dict[tuple[str, int], SubgroupScore], arms: tuple[str, str]
) -> list[float]:
    """The paired differences of one group by seed; `scores` has its scores by arm and seed."""
    differences = []
    for seed in sorted({seed for _, seed in scores}):
        baseline, arm = (scores.get((name, seed)) for name in arms)
        if baseline and arm and baseline.auc is not None and arm.auc is not None:
            differences.append(arm.auc - baseline.auc)
    return differences


def _n_rows(scores: Iterable[SubgroupScore]) -> int:
    """Rows of a group: the same in all arms that may be compared."""
    return max(score.size.rows for score in scores)


@styled
def draw_forest(
    rows: Sequence[ForestRow], *, axis_label: str, band: float | None = None, note: str = ""
) -> Figure:
    """Draw a forest plot: each estimate with its interval, from the top in the given order.

    `band` shades the differences that are called equivalent, from -band to +band.
    """
    shown = [row for row in rows if math.isfinite(row.estimate)]
    if not shown:
        return empty_figure(PAGE_IN, "no estimates")
    heights, headings = _heights(shown)
    figure = Figure(figsize=(PAGE_IN, 0.85 + 0.19 * (heights[-1] + 1)))
    axes = figure.subplots()
    if band is not None:
        axes.axvspan(-band, band, color=FAINT, alpha=0.16, linewidth=0)
    axes.axvline(0, color=INK, linewidth=0.7)
    for height, row in zip(heights, shown, strict=True):
        _plot_estimate(axes, height, row)
    axes.margins(x=0.06)
    scale = difference_scale(
        axes,
        [row.estimate for row in shown],
        ends=[end for row in shown for end in (row.low, row.high) if end is not None],
        horizontal=True,
    )
    _write_rows(axes, shown, heights, headings)
    axes.set_xlabel(axis_label + scale)
    axes.grid(axis="x")
    axes.set_ylim(heights[-1] + 0.7, -0.7)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    shaded = f"Shaded: within ±{band:g}." if band is not None else ""
    add_note(
        figure,
        " ".join(text for text in (_levels_text(shown), shaded, note) if text),
        left_out=len(rows) - len(shown),
    )
    return figure


def _heights(rows: Sequence[ForestRow]) -> tuple[list[float], dict[float, str]]:
    """The height of each row, counted from the top, and the headings by their height."""
    heights: list[float] = []
    headings: dict[float, str] = {}
    height, previous = 0.0, ""
    for row in rows:
        if row.heading != previous:
            height += 0.4 if heights else 0
            headings[height] = previous = row.heading
            height += 1
        elif row.overall and heights:
            height += 0.4
        heights.append(height)
        height += 1
    return heights, {height: text for height, text in headings.items() if text}


def _plot_estimate(axes: Axes, height: float, row: ForestRow) -> None:
    worse = row.estimate < 0
    colour = ORANGE if worse else BLUE
    if row.low is not None and row.high is not None:
        axes.hlines(height, row.low, row.high, color=colour, linewidth=1.6)
        axes.vlines([row.low, row.high], height - 0.18, height + 0.18, color=colour, linewidth=1)
    axes.plot(
        row.estimate,
        height,
        marker="D" if row.overall else "s" if worse else "o",
        markersize=6 if row.overall else 4.2,
        markerfacecolor="white" if worse else colour,
        markeredgecolor=colour,
        markeredgewidth=1.1,
        linestyle="",
    )


def _write_rows(
    axes: Axes, rows: Sequence[ForestRow], heights: Sequence[float], headings: dict[float, str]
) -> None:
    """Write names on the left, estimates and n on the right, and headings above their rows."""
    axes.set_yticks(heights, [shorten(row.label) for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.overall else "normal")
    # x in parts of the plot's width, y in rows.
    beside = blended_transform_factory(axes.transAxes, axes.transData)
    for height, row in zip(heights, rows, strict=True):
        interval = (
            f" [{signed_number(row.low, 4)}, {signed_number(row.high, 4)}]"
            if row.low is not None and row.high is not None
            else ""
        )
        axes.text(
            1.015,
            height,
            f"{signed_number(row.estimate, 4)}{interval}  n = {row.n}",
            transform=beside,
            va="center",
            fontsize=6.5,
        )
    for height, text in headings.items():
        axes.text(0.0, height, text, transform=beside, va="center", fontsize=7, fontweight="bold")


def _levels_text(rows: Sequence[ForestRow]) -> str:
    """The coverage of the intervals: it depends on n, so each is named."""
    levels = sorted({(row.level, row.n) for row in rows if row.level is not None})
    if not levels:
        return "No row has enough pairs for an interval."
    return "Exact intervals: " + ", ".join(f"{level:.2%} at n = {n}" for level, n in levels) + "."


@dataclass(frozen=True, kw_only=True)
class ControlBar:
    """One control: the reference's test AUC minus the control's."""

    label: str
    differences: dict[str, tuple[float, ...]]
    """Paired differences of each backbone over its seeds; NaN where a run has no score."""

    @property
    def pooled(self) -> list[float]:
        """Every pair of every backbone, without NaN."""
        values = (value for of_backbone in self.differences.values() for value in of_backbone)
        return [value for value in values if math.isfinite(value)]

    @property
    def means(self) -> list[float]:
        """The mean of each backbone that has a pair, without NaN."""
        finite = (
            [value for value in of_backbone if math.isfinite(value)]
            for of_backbone in self.differences.values()
        )
        return [float(np.mean(values)) for values in finite if values]


def control_bars(grid: Grid, block: GridBlock, *, baseline: str) -> list[ControlBar]:
    """Return how far the grid's own baseline, PRIME, is ahead of each arm but `baseline`."""
    return [
        ControlBar(
            label=arm.label,
            differences={
                row.label: tuple(
                    -value for value in block.comparisons[row.label, arm.name, "auc"].differences
                )
                for row in block.layout.rows
            },
        )
        for arm in grid.others
        if arm.name != baseline
    ]


@styled
def draw_controls(bars: Sequence[ControlBar], *, reference: str) -> Figure:
    """Draw the paper's Figure 4: how far `reference` is ahead of each control.

    A bar is the mean over all pairs, a dot the mean of one backbone.
    """
    shown = [bar for bar in bars if bar.pooled]
    if not shown:
        return empty_figure(COLUMN_IN, f"no pairs of {reference} with a control")
    figure = Figure(figsize=(COLUMN_IN, 0.75 + 0.28 * len(shown)))
    axes = figure.subplots()
    for height, bar in enumerate(shown):
        _plot_control(axes, height, bar)
    axes.set_yticks(
        range(len(shown)), [f"{shorten(bar.label)} (n = {len(bar.pooled)})" for bar in shown]
    )
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.6)
    axes.grid(axis="x")
    axes.margins(x=0.2)
    limit_ticks(axes, horizontal=True, at_most=4)
    signed_ticks(axes)
    axes.set_xlabel(f"Test AUC: {shorten(reference)} \N{MINUS SIGN} control")
    add_note(
        figure,
        "Bars: means over the n pairs of backbone and seed; dots: means of single backbones. "
        f"Above zero: {reference} is ahead.",
    )
    return figure


def _plot_control(axes: Axes, height: int, bar: ControlBar) -> None:
    mean = float(np.mean(bar.pooled))
    worse = mean < 0
    axes.barh(
        height,
        mean,
        0.62,
        color=ORANGE if worse else BLUE,
        hatch="////" if worse else "",
        edgecolor=INK,
        linewidth=0.6,
    )
    means = bar.means
    plot_dots(axes, means, [height] * len(means))
    axes.annotate(
        signed_number(mean, 4),
        xy=(max(mean, *means, 0.0), height),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """What an arm gains on one backbone, and what it costs there."""

    backbone: str
    """Printed name."""
    arm: str
    """Printed name."""
    difference: float
    """Median paired difference of test AUC."""
    added_parameters: float
    """Parameters of the plug-in as a share of the backbone's."""
    step_time_ratio: float | None
    """Median paired ratio of seconds a training step; None where the runs' devices differ."""
    n_pairs: int


def cost_points(
    block: GridBlock, baseline: ArmColumn, *, arms: Sequence[ArmColumn]
) -> list[CostPoint]:
    """Return gain and cost of every arm on every row that has a pair."""
    points = []
    for arm in arms:
        names = (baseline.name, arm.name)
        for scores in paired_scores(block, names, metric="auc"):
            if not scores.differences:
                continue
            pairs = paired_runs_of(block, scores.backbone, names)
            budget = pairs[0][1].budget
            points.append(
                CostPoint(
                    backbone=scores.backbone,
                    arm=arm.label,
                    difference=float(np.median(list(scores.differences.values()))),
                    added_parameters=budget.plugin_parameters / budget.backbone_parameters,
                    step_time_ratio=_step_time_ratio(pairs),
                    n_pairs=len(scores.differences),
                )
            )
    return points


def _step_time_ratio(pairs: Sequence[tuple[RunRecord, RunRecord]]) -> float | None:
    """Median over pairs of the arm's seconds a step over the baseline's, on the same device."""
    ratios = []
    for baseline, arm in pairs:
        environments = [
            (run.environment.device, run.environment.threads) for run in (baseline, arm)
        ]
        times = [_step_s(run) for run in (baseline, arm)]
        if environments[0] == environments[1] and times[0] and times[1]:
            ratios.append(times[1] / times[0])
    return float(np.median(ratios)) if ratios else None


def _step_s(run: RunRecord) -> float | None:
    """Seconds a training step, validations included; None without any."""
    last = run.history[-1] if run.history else None
    return last.wall_s / last.step if last and last.step else None


PlacedPoints = Sequence[tuple[float, CostPoint]]
"""Each point with its x coordinate."""


@styled
def draw_tradeoff(points: Sequence[CostPoint], *, baseline: str) -> Figure:
    """Draw gain in test AUC against added parameters, and against time of a training step."""
    if not points:
        return empty_figure(PAGE_IN, "no pairs")
    arms = unique(point.arm for point in points)
    figure = Figure(figsize=(PAGE_IN, 2.9))
    left, right = figure.subplots(1, 2, sharey=True)
    plots: list[tuple[Axes, PlacedPoints]] = [
        (left, [(100 * point.added_parameters, point) for point in points]),
        (right, [(point.step_time_ratio, point) for point in points if point.step_time_ratio]),
    ]
    for axes, placed in plots:
        _scatter(axes, placed, arms=arms)
    scale = difference_scale(left, [point.difference for point in points], horizontal=False)
    # The names of several arms' points would cover each other.
    for axes, placed in plots if len(arms) == 1 else ():
        _write_names(axes, placed)
    left.set_xlabel(f"Parameters added to {shorten(baseline)}")
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    right.set_xlabel(f"Time of a training step, {shorten(baseline)} = 1")
    right.axvline(1, color=INK, linewidth=0.6)
    left.set_ylabel("Test AUC: median paired difference" + scale.replace(" (", "\n("))
    add_legend(figure, left.get_legend_handles_labels()[0])
    pairs = sorted({point.n_pairs for point in points})
    n = counted(pairs[0], "pair", most=pairs[-1])
    untimed = sum(1 for point in points if point.step_time_ratio is None)
    add_note(
        figure,
        f"{counted(len(points), 'point')}; each is the median over n = {n}. Step time comes "
        "from whole runs with their validations, not from a benchmark."
        + (f" Without a time, since devices differ: {untimed}." if untimed else ""),
    )
    return figure


def _scatter(axes: Axes, placed: PlacedPoints, *, arms: Sequence[str]) -> None:
    for index, arm in enumerate(arms):
        own = [(x, point.difference) for x, point in placed if point.arm == arm]
        axes.plot(
            [x for x, _ in own],
            [difference for _, difference in own],
            linestyle="",
            marker=MARKERS[index % len(MARKERS)],
            color=COLOURS[index % len(COLOURS)],
            markeredgecolor=INK,
            markeredgewidth=0.5,
            markersize=4.5,
            label=shorten(arm),
        )
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.grid()
    axes.margins(x=0.16, y=0.1)
    limit_ticks(axes, horizontal=True)


def _write_names(axes: Axes, placed: PlacedPoints) -> None:
    """Write each backbone beside its point, where no other name or point is."""
    left, right = axes.get_xlim()

    def height_of(difference: float) -> float:
        pixel = axes.transData.transform((left, difference))
        return float(axes.transAxes.inverted().transform(pixel)[1])

    def position_of(x: float, point: CostPoint) -> tuple[float, float]:
        return (
            (x - left) / (right - left) * _PLOT_SIZE[0],
            height_of(point.difference) * _PLOT_SIZE[1],
        )

    # Left end, right end and height of all that a name must not cover: points, then names.
    taken = [(x - 3, x + 3, y - 2) for x, y in itertools.starmap(position_of, placed)]
    for data_x, point in sorted(placed, key=lambda item: item[1].difference):
        name = shorten(point.backbone)
        width = _LETTER_WIDTH * len(name)
        x, y = position_of(data_x, point)
        west = -4.0 - width
        offsets = [(4.0, 2.0), (west, 2.0), (4.0, -8.0), (west, -8.0), (4.0, 9.0), (west, 9.0)]
        free = [
            (dx, dy)
            for dx, dy in offsets
            if not any(
                x + dx < taken_right and taken_left < x + dx + width and abs(y + dy - taken_y) < 7
                for taken_left, taken_right, taken_y in taken
            )
        ]
        dx, dy = (free or offsets)[0]
        taken.append((x + dx, x + dx + width, y + dy))
        axes.annotate(
            name,
            xy=(data_x, point.difference),
            xytext=(dx, dy),
            textcoords="offset points",
            fontsize=6,
        )
