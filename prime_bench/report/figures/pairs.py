"""Every pair of runs: both scores of each seed, and which pairs the arm wins."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prime_bench.base.words import counted
from prime_bench.findings import Metric
from prime_bench.report.figures.style import (
    BLUE,
    COLUMN_IN,
    FAINT,
    ORANGE,
    PAGE_IN,
    add_legend,
    add_note,
    empty_figure,
    label_outer,
    limit_ticks,
    shorten,
    small_multiples,
    styled,
    unique,
)
from prime_bench.report.quantities.formulas import improvements
from prime_bench.report.quantities.grid import GridBlock, score_of
from prime_bench.store.record import RunRecord

_UNITS_PER_ONE = 10_000
"""A square shows whole ten-thousandths: `12` is +0.0012."""
_TEXT_ON_COLOUR = "#111111"
"""Text on a coloured square: dark, even where the page replaces INK by a light colour."""


@dataclass(frozen=True, kw_only=True)
class PairedScores:
    """One metric of one backbone in two arms, seed by seed; the three tuples have one length."""

    backbone: str
    """Printed name."""
    metric: Metric
    seeds: tuple[int, ...]
    baseline: tuple[float, ...]
    """NaN where the run has no score."""
    arm: tuple[float, ...]
    """NaN where the run has no score."""

    @property
    def differences(self) -> dict[int, float]:
        """Difference by seed, positive where the arm is better; without those that are NaN."""
        found = improvements(self.metric, baseline=self.baseline, arm=self.arm).tolist()
        differences = dict(zip(self.seeds, found, strict=True))
        return {seed: value for seed, value in differences.items() if math.isfinite(value)}


def paired_runs_of(
    block: GridBlock, row: str, arms: tuple[str, str]
) -> list[tuple[RunRecord, RunRecord]]:
    """Return the paired runs of a row in two arms, the baseline's first."""
    return [
        (pair.runs[arms[0]], pair.runs[arms[1]])
        for pair in block.pairs
        if pair.row.label == row and arms[1] in pair.runs
    ]


def paired_scores(block: GridBlock, arms: tuple[str, str], *, metric: Metric) -> list[PairedScores]:
    """Return the test scores of every row that has a pair of these arms, the baseline first."""
    paired = []
    for row in block.layout.rows:
        pairs = paired_runs_of(block, row.label, arms)
        if pairs:
            scores = [[_score(run, metric) for run in pair] for pair in pairs]
            paired.append(
                PairedScores(
                    backbone=row.label,
                    metric=metric,
                    seeds=tuple(run.job.seed for run, _ in pairs),
                    baseline=tuple(baseline for baseline, _ in scores),
                    arm=tuple(arm for _, arm in scores),
                )
            )
    return paired


@styled
def draw_paired_dots(
    scores: Sequence[PairedScores], *, baseline: str, arm: str, metric_label: str
) -> Figure:
    """Draw each pair as a line from the baseline's score to the arm's, a small plot a backbone.

    Each backbone has its own scale. A line is solid where the arm is better.
    """
    shown = [item for item in scores if item.differences]
    if not shown:
        return empty_figure(PAGE_IN, f"no pairs of {baseline} and {arm}")
    figure, plots = small_multiples(len(shown))
    for axes, item in zip(plots, shown, strict=True):
        _plot_pairs(axes, item, names=(baseline, arm))
    label_outer(plots, y=metric_label)
    name = shorten(arm)
    better = Line2D([], [], color=BLUE, marker="o", label=f"{name} is better")
    worse = Line2D([], [], color=ORANGE, marker="s", linestyle="--", label=f"{name} is worse")
    tie = Line2D([], [], color=FAINT, marker="D", linestyle=":", label="tie")
    any_tie = any(0 in item.differences.values() for item in shown)
    add_legend(figure, [better, worse, *([tie] if any_tie else [])])
    n = sum(len(item.differences) for item in shown)
    add_note(
        figure,
        f"n = {counted(n, 'pair')}, a line a seed; each backbone has its own scale.",
        left_out=sum(len(item.seeds) for item in scores) - n,
    )
    return figure


def _plot_pairs(axes: Axes, scores: PairedScores, *, names: tuple[str, str]) -> None:
    both = {
        seed: (baseline, arm)
        for seed, baseline, arm in zip(scores.seeds, scores.baseline, scores.arm, strict=True)
    }
    for seed, difference in scores.differences.items():
        if difference > 0:
            colour, dash, marker = BLUE, "-", "o"
        elif difference < 0:
            colour, dash, marker = ORANGE, "--", "s"
        else:
            colour, dash, marker = FAINT, ":", "D"
        axes.plot([0, 1], both[seed], color=colour, linestyle=dash, marker=marker, clip_on=False)
    axes.set_xlim(-0.25, 1.25)
    axes.set_xticks([0, 1], [shorten(name)[:14] for name in names])
    axes.margins(y=0.12)
    axes.grid(axis="y")
    limit_ticks(axes, horizontal=False, at_most=4)
    axes.ticklabel_format(axis="y", useOffset=False)
    wins = sum(1 for value in scores.differences.values() if value > 0)
    axes.set_title(f"{shorten(scores.backbone)[:18]}: {wins}/{len(scores.differences)}")


@styled
def draw_win_grid(
    scores: Mapping[str, Sequence[PairedScores]], *, seeds: Sequence[int], arm: str
) -> Figure:
    """Draw a square for each backbone and seed, coloured by sign and size of the difference.

    `scores` has the pairs of each metric under its printed name; each metric is a plot of its own.
    `arm` is its printed name. A seed without a pair is shown as `·`.
    """
    backbones = unique(item.backbone for of_metric in scores.values() for item in of_metric)
    if not backbones or not seeds:
        return empty_figure(PAGE_IN, "no pairs")
    width = min(PAGE_IN, max(COLUMN_IN, 1.6 + 0.43 * len(seeds) * len(scores)))
    figure = Figure(figsize=(width, 1.35 + 0.23 * len(backbones)))
    plots = figure.subplots(1, len(scores), squeeze=False, sharey=True)
    counts = []
    for axes, (title, of_metric) in zip(plots.flat, scores.items(), strict=True):
        wins, n = _plot_squares(axes, of_metric, backbones=backbones, seeds=seeds)
        axes.set_title(f"{title}: {wins} of {n} won")
        counts.append(n)
    plots[0][0].set_yticks(np.arange(len(backbones)) + 0.5, [shorten(name) for name in backbones])
    add_note(
        figure,
        f"n = {counted(min(counts), 'pair', most=max(counts))} a metric. Differences in units of "
        f"0.0001, positive where {shorten(arm)} is better; ▲ won, ▽ lost, = tied, · no pair. "
        "Deeper shades: larger differences.",
    )
    return figure


def _plot_squares(
    axes: Axes,
    scores: Sequence[PairedScores],
    *,
    backbones: Sequence[str],
    seeds: Sequence[int],
) -> tuple[int, int]:
    """Plot one metric; return the pairs won and the pairs compared."""
    values = np.full((len(backbones), len(seeds)), np.nan)
    for item in scores:
        for seed, difference in item.differences.items():
            if seed in seeds:
                values[backbones.index(item.backbone), list(seeds).index(seed)] = difference
    known = values[np.isfinite(values)]
    # Square roots, up to that of twice the 90th percentile: a small difference is still visible
    # beside large ones, and text can be read on the darkest square.
    size = (float(np.quantile(np.abs(known), 0.9)) if len(known) else 0.0) or 1.0
    shades = np.clip(np.sign(values) * np.sqrt(np.abs(values) / (2 * size)), -1, 1)
    colours = LinearSegmentedColormap.from_list("lost to won", [ORANGE, "#ffffff", BLUE])
    # A mesh, not an image: squares stay squares in SVG and PDF. NaN is left transparent.
    axes.pcolormesh(
        np.ma.masked_invalid(shades),
        cmap=colours,
        vmin=-1.3,
        vmax=1.3,
        edgecolor="white",
        linewidth=1.2,
    )
    for (row, column), value in np.ndenumerate(values):
        axes.text(
            column + 0.5,
            row + 0.5,
            _square_text(float(value)),
            ha="center",
            va="center",
            fontsize=6.3,
            color=FAINT if np.isnan(value) else _TEXT_ON_COLOUR,
        )
    axes.set_xticks(
        np.arange(len(seeds)) + 0.5, [str(seed) for seed in seeds], rotation=45, ha="right"
    )
    axes.set_ylim(len(backbones), 0)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return int(np.sum(known > 0)), len(known)


def _square_text(difference: float) -> str:
    """Return `▲ 12` or `▽ 3`: the sign is a shape, which a grey print keeps."""
    if np.isnan(difference):
        return "·"
    if difference == 0:
        return "="
    units = abs(round(difference * _UNITS_PER_ONE))
    return f"{'▲' if difference > 0 else '▽'} {units or '<1'}"


def _score(run: RunRecord, metric: Metric) -> float:
    score = score_of(run, metric, "test")
    return float("nan") if score is None else score
