"""The paper's Figure 4: what PRIME, or the mechanism it keeps, is ahead of each control."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from prime_bench.report.figures.style import (
    BLUE,
    COLUMN_IN,
    INK,
    ORANGE,
    difference_text,
    dots,
    few_ticks,
    nothing_to_show,
    say_n,
    short,
    sign_ticks,
    styled,
)


@dataclass(frozen=True, kw_only=True)
class ControlBar:
    """One control: the reference minus the control, by backbone."""

    label: str
    differences: dict[str, tuple[float, ...]]
    """Backbone -> paired differences of test AUC over its seeds."""

    @property
    def pooled(self) -> list[float]:
        """Every pair of every backbone that is a number."""
        every = (value for values in self.differences.values() for value in values)
        return [value for value in every if math.isfinite(value)]

    @property
    def means(self) -> list[float]:
        """Each backbone's mean over its pairs that are numbers."""
        sound = (
            [value for value in values if math.isfinite(value)]
            for values in self.differences.values()
        )
        return [float(np.mean(values)) for values in sound if values]


@styled
def draw_controls(bars: Sequence[ControlBar], *, reference: str) -> Figure:
    """A horizontal bar a control: the mean over all pairs; a dot a backbone: its own mean."""
    shown = [bar for bar in bars if bar.pooled]
    if not shown:
        return nothing_to_show(COLUMN_IN, f"no pairs of {reference} with a control")
    figure = Figure(figsize=(COLUMN_IN, 0.75 + 0.28 * len(shown)))
    axes = figure.subplots()
    means = [float(np.mean(bar.pooled)) for bar in shown]
    for place, (bar, mean) in enumerate(zip(shown, means, strict=True)):
        behind = mean < 0
        axes.barh(
            place,
            mean,
            0.62,
            color=ORANGE if behind else BLUE,
            hatch="////" if behind else "",
            edgecolor=INK,
            linewidth=0.6,
        )
        means_of_backbones = bar.means
        dots(axes, means_of_backbones, [place] * len(means_of_backbones))
        edge = max(mean, *means_of_backbones, 0.0)
        axes.annotate(
            difference_text(mean, 4),
            xy=(edge, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axes.set_yticks(
        range(len(shown)), [f"{short(bar.label)} (n = {len(bar.pooled)})" for bar in shown]
    )
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.6)
    axes.grid(axis="x")
    axes.margins(x=0.2)
    few_ticks(axes, horizontal=True, at_most=4)
    sign_ticks(axes)
    axes.set_xlabel(f"Test AUC: {short(reference)} \N{MINUS SIGN} control")
    say_n(
        figure,
        "Bars: means over the n pairs of backbone and seed; dots: means of single backbones. "
        f"Above zero: {reference} is ahead.",
    )
    return figure
