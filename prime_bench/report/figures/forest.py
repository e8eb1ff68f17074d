"""Forest plot: an estimate with its interval a row, under headings, on one scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from prime_bench.report.figures.scale import bend_words, difference_scale
from prime_bench.report.figures.style import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    PAGE_IN,
    difference_text,
    nothing_to_show,
    say_n,
    short,
    styled,
)


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
    axes.margins(x=0.06)
    bend = difference_scale(
        axes,
        [row.estimate for row in shown],
        ends=[end for row in shown for end in (row.low, row.high) if end is not None],
        horizontal=True,
    )
    _labels(axes, shown, places, headings)
    axes.set_xlabel(axis_label + bend_words(bend))
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
            at += 0.4 if places else 0
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
        )
    for place, text in headings.items():
        axes.text(0.0, place, text, transform=beside, va="center", fontsize=7, fontweight="bold")


def _levels(rows: Sequence[ForestRow]) -> str:
    """What the intervals are: levels differ with n, so each is named."""
    by_level = sorted({(row.level, row.n) for row in rows if row.level is not None})
    if not by_level:
        return "No row has enough pairs for an interval."
    return "Exact intervals: " + ", ".join(f"{level:.2%} at n = {n}" for level, n in by_level) + "."
