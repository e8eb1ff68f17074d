"""The routers over training: the largest load and the entropy of each bag, a line a bag."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from prime_bench.report.figures.evidence import LoadCurve, in_order
from prime_bench.report.figures.style import (
    COLOURS,
    COLUMN_IN,
    DASHES,
    FAINT,
    INK,
    legend_above,
    nothing_to_show,
    say_n,
    short,
    styled,
)


@styled
def draw_load(curves: Sequence[LoadCurve]) -> Figure:
    """A column a backbone: above the largest load, below the entropy in nats; a line a run.

    A line is the mean over bags, the band behind it their range.
    """
    shown = [curve for curve in curves if curve.epochs]
    if not shown:
        return nothing_to_show(COLUMN_IN, "no routing history")
    backbones = in_order(curve.backbone for curve in shown)
    figure = Figure(figsize=(max(COLUMN_IN, 1.65 * len(backbones) + 0.4), 3.1))
    grid = figure.subplots(2, len(backbones), squeeze=False, sharex="col", sharey="row")
    seeds = in_order(str(curve.seed) for curve in shown)
    for column, backbone in enumerate(backbones):
        own = [curve for curve in shown if curve.backbone == backbone]
        for curve in own:
            index = seeds.index(str(curve.seed))
            _lines(grid[0][column], curve, np.array(curve.largest_load), index=index)
            _lines(grid[1][column], curve, np.array(curve.entropy_nats), index=index)
        experts = {curve.n_experts for curve in own}
        for n in experts:
            grid[0][column].axhline(1 / n, color=INK, linewidth=0.7, linestyle=":")
            grid[1][column].axhline(math.log(n), color=INK, linewidth=0.7, linestyle=":")
        grid[0][column].set_title(short(backbone)[:18])
        grid[1][column].set_xlabel("Epoch")
    grid[0][0].set_ylabel("Largest mean load")
    grid[1][0].set_ylabel("Entropy (nats)")
    legend_above(
        figure,
        [Line2D([], [], **_look(index), label=f"seed {seed}") for index, seed in enumerate(seeds)],
    )
    bags = sorted({len(curve.largest_load[0]) for curve in shown})
    say_n(
        figure,
        f"n = {len(shown)} runs; line: mean over the {', '.join(map(str, bags))} bags of a run, "
        "band: their range; dotted: every expert used alike.",
    )
    return figure


def _lines(axes: Axes, curve: LoadCurve, values: NDArray[np.float64], *, index: int) -> None:
    """One run: `values` is (E, G)."""
    look = _look(index)
    axes.fill_between(
        curve.epochs,
        values.min(axis=1),
        values.max(axis=1),
        color=look["color"],
        alpha=0.12,
        linewidth=0,
    )
    # A run of a single epoch has no line to see.
    marker = "o" if len(curve.epochs) == 1 else ""
    axes.plot(curve.epochs, values.mean(axis=1), marker=marker, **look)
    axes.grid(color=FAINT)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))


def _look(index: int) -> dict[str, Any]:
    """Colour and dash of a seed: each pair of them comes once in sixteen seeds."""
    round_of_colours = index // len(COLOURS)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[(index + round_of_colours) % len(DASHES)],
    }
