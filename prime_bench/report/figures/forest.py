"""Forest plot: an estimate with its interval a row, under headings, on one scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from prime_bench.report.figures.style import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    PAGE_IN,
    difference_text,
    few_ticks,
    nothing_to_show,
    say_n,
    short,
    sign_ticks,
    styled,
)

_WIDE_RATIO = 8
"""Largest against median estimate beyond which a linear scale would hide most rows."""


@dataclass(frozen=True, kw_only=True)
class ForestRow:
    """One estimate; its interval is None where n is too small for any."""

    label: str
    estimate: float
    low: float | None
    high: float | None
    n: int
    level: float | None
    """Coverage of the interval, such as 0.9375: exact ones have the levels that n allows."""
    heading: str = ""
    """Rows of one heading stand together; an empty one prints none."""
    overall: bool = False
    """Drawn as a diamond: an estimate over the other rows."""


@styled
def draw_forest(
    rows: Sequence[ForestRow], *, axis_label: str, band: float | None = None, note: str = ""
) -> Figure:
    """Rows top down as given; `band` shades what is called equivalent, from -band to +band.

    The scale is linear, or linear near zero and logarithmic beyond where one row would dwarf the
    others; the axis says so.
    """
    shown = [row for row in rows if math.isfinite(row.estimate)]
    if not shown:
        return nothing_to_show(PAGE_IN, "no estimates")
    places, headings = _places(shown)
    height = 0.85 + 0.19 * (places[-1] + 1)
    figure = Figure(figsize=(PAGE_IN, height))
    axes = figure.subplots()
    if band is not None:
        axes.axvspan(-band, band, color=FAINT, alpha=0.16, linewidth=0)
    axes.axvline(0, color=INK, linewidth=0.7)
    for place, row in zip(places, shown, strict=True):
        _row(axes, place, row)
    beyond = _scale(axes, shown)
    _labels(axes, shown, places, headings)
    axes.set_xlabel(axis_label + (f" (logarithmic beyond ±{beyond:g})" if beyond else ""))
    axes.grid(axis="x")
    axes.set_ylim(places[-1] + 0.7, -0.7)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    left_out = len(rows) - len(shown)
    words = [_levels(shown), f"Shaded: within ±{band:g}." if band is not None else "", note]
    words.append(f"Left out, not a number: {left_out}." if left_out else "")
    say_n(figure, " ".join(word for word in words if word))
    return figure


def _places(rows: Sequence[ForestRow]) -> tuple[list[float], dict[float, str]]:
    """The height of each row, counted from the top, and where headings stand."""
    places: list[float] = []
    headings: dict[float, str] = {}
    at, before = 0.0, ""
    for row in rows:
        if row.heading != before:
            headings[at] = before = row.heading
            at += 1
        elif row.overall and places:
            at += 0.4
        places.append(at)
        at += 1
    return places, {place: text for place, text in headings.items() if text}


def _row(axes: Axes, place: float, row: ForestRow) -> None:
    behind = row.estimate < 0
    colour = ORANGE if behind else BLUE
    if row.low is not None and row.high is not None:
        axes.hlines(place, row.low, row.high, color=colour, linewidth=1.6)
        axes.vlines([row.low, row.high], place - 0.18, place + 0.18, color=colour, linewidth=1)
    axes.plot(
        row.estimate,
        place,
        marker="D" if row.overall else "s" if behind else "o",
        markersize=6 if row.overall else 4.2,
        markerfacecolor="white" if behind else colour,
        markeredgecolor=colour,
        markeredgewidth=1.1,
        linestyle="",
    )


def _scale(axes: Axes, rows: Sequence[ForestRow]) -> float | None:
    """Set a scale on which most rows can be told apart; where it bends, or None if linear."""
    ends = [abs(end) for row in rows for end in (row.estimate, row.low, row.high) if end]
    sizes = [abs(row.estimate) for row in rows]
    middle = float(np.median(sizes))
    if not ends or middle == 0 or max(ends) < _WIDE_RATIO * middle:
        axes.margins(x=0.06)
        few_ticks(axes, horizontal=True, at_most=7)
        sign_ticks(axes)
        return None
    # Linear up to the decade of the smaller estimates, so that these are not squeezed.
    small = float(np.quantile(sizes, 0.25)) or middle
    bend = 10.0 ** math.floor(math.log10(small))
    top = max(ends) * 1.5
    powers = [bend * 10**step for step in range(int(math.log10(top / bend)) + 1)]
    lowest = min((end for row in rows for end in (row.estimate, row.low) if end), default=0.0)
    ticks = [*(-power for power in powers[::-1] if power <= -lowest * 1.5), 0.0, *powers]
    axes.set_xscale("symlog", linthresh=bend)
    axes.set_xlim(min(lowest * 1.5, -bend), top)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    sign_ticks(axes)
    return bend


def _labels(
    axes: Axes, rows: Sequence[ForestRow], places: Sequence[float], headings: dict[float, str]
) -> None:
    """Names at the left, estimates and n at the right, headings above their rows."""
    axes.set_yticks(places, [short(row.label) for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.overall else "normal")
    beside = blended_transform_factory(axes.transAxes, axes.transData)
    for place, row in zip(places, rows, strict=True):
        interval = (
            f" [{difference_text(row.low, 4)}, {difference_text(row.high, 4)}]"
            if row.low is not None and row.high is not None
            else ""
        )
        axes.text(
            1.015,
            place,
            f"{difference_text(row.estimate, 4)}{interval}  n = {row.n}",
            transform=beside,
            va="center",
            fontsize=6.5,
            fontweight="bold" if row.overall else "normal",
        )
    for place, text in headings.items():
        axes.text(0.0, place, text, transform=beside, va="center", fontsize=7, fontweight="bold")


def _levels(rows: Sequence[ForestRow]) -> str:
    """What the intervals are: levels differ with n, so each is named."""
    by_level = sorted({(row.level, row.n) for row in rows if row.level is not None})
    if not by_level:
        return "No row has enough pairs for an interval."
    return "Exact intervals: " + ", ".join(f"{level:.2%} at n = {n}" for level, n in by_level) + "."
