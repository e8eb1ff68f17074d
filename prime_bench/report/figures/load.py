"""The routers over training: the largest load of each run, a small plot a backbone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from prime_bench.report.figures.inputs import LoadCurve, in_order
from prime_bench.report.figures.style import (
    COLOURS,
    DASHES,
    INK,
    PAGE_IN,
    PER_ROW,
    few_ticks,
    legend_above,
    nothing_to_show,
    say_n,
    short,
    small_plots,
    styled,
)


@styled
def draw_load(curves: Sequence[LoadCurve]) -> Figure:
    """A line a run, the mean over its bags; the band behind it is their range."""
    shown = [curve for curve in curves if curve.epochs]
    if not shown:
        return nothing_to_show(PAGE_IN, "no routing history")
    backbones = in_order(curve.backbone for curve in shown)
    seeds = in_order(str(curve.seed) for curve in shown)
    figure, every = small_plots(len(backbones))
    for axes, backbone in zip(every, backbones, strict=True):
        own = [curve for curve in shown if curve.backbone == backbone]
        for curve in own:
            _line(axes, curve, index=seeds.index(str(curve.seed)))
        for n_experts in {curve.n_experts for curve in own}:
            axes.axhline(1 / n_experts, color=INK, linewidth=0.7, linestyle=":")
        axes.set_title(short(backbone)[:18])
        axes.set_ylim(bottom=0)
        axes.grid()
        few_ticks(axes, horizontal=False, at_most=4)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    for axes in every[::PER_ROW]:
        axes.set_ylabel("Largest mean load")
    for axes in every[-PER_ROW:]:
        axes.set_xlabel("Epoch")
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


def _line(axes: Axes, curve: LoadCurve, *, index: int) -> None:
    look = _look(index)
    loads = np.array(curve.largest_load)  # (E, G)
    axes.fill_between(
        curve.epochs,
        loads.min(axis=1),
        loads.max(axis=1),
        color=look["color"],
        alpha=0.12,
        linewidth=0,
    )
    # A run of a single epoch has no line to see.
    marker = "o" if len(curve.epochs) == 1 else ""
    axes.plot(curve.epochs, loads.mean(axis=1), marker=marker, **look)


def _look(index: int) -> dict[str, Any]:
    """Colour and dash of a seed: each pair of them comes once in sixteen seeds."""
    round_of_colours = index // len(COLOURS)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[(index + round_of_colours) % len(DASHES)],
    }
