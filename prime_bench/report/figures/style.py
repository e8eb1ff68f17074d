"""What all figures share: sizes, type, colours, axes of differences, legends and notes.

Colours differ in lightness too, and a shape, dash or hatch goes with each, so that a figure can be
read in grey and with any common kind of colour blindness.
"""

import contextlib
import functools
import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, TypedDict

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from prime_bench.base.characters import visible, visible_lines
from prime_bench.report.formats.numbers import signed

COLUMN_IN = 3.35
"""Width of a text column of the paper's class, in inches."""
PAGE_IN = 7.0
"""Width of the text on a page of the paper's class, in inches."""
PLOTS_PER_ROW = 5
"""Small plots side by side."""
PNG_DPI = 200
LONGEST_LABEL = 30
"""Letters of the longest label that is not cut."""

INK = "#1c1c22"
"""Text and axes. A page replaces it by its own text colour, so nothing else is drawn in it."""
FAINT = "#7d7d86"
"""Reference lines, notes and ties."""
# Okabe and Ito, "Color universal design" (2008): distinct for all common kinds of colour blindness.
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
GREY = "#c4c4cb"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
Dash = Literal["-", "--", ":", "-."]
DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.")

_MIN_THRESHOLD = 1e-3
"""Smallest threshold of a symmetric logarithmic scale: `gallery.EQUIVALENT_AUC`."""
_MAX_RATIO = 6
"""Largest size against the median size up to which a linear scale shows most values."""
# The type of matplotlib's rcParams and of rc_context.
_RC: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same widths everywhere
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.linewidth": 0.6,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "hatch.linewidth": 0.6,
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.35,
    "figure.dpi": PNG_DPI,  # texts are laid out at the size at which they are drawn
    "figure.constrained_layout.use": True,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "text.parse_math": False,  # a `$` in a label is a dollar sign
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
}

P = ParamSpec("P")


class LineStyle(TypedDict):
    """Arguments of matplotlib's `plot` and `Line2D` that say how a line looks."""

    color: str
    linestyle: Dash


class BarStyle(TypedDict, total=False):
    """Arguments of matplotlib's `bar` and `Patch` that say how a bar looks."""

    facecolor: str
    hatch: str
    edgecolor: str
    linewidth: float


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that draws a figure: the result depends on no matplotlibrc.

    The layout is computed once here, not once for each file format: it takes half of the time.
    """

    @functools.wraps(draw)
    def draw_styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(), without_glyph_warnings():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_RC)
            figure = draw(*args, **kwargs)
            for text in figure.findobj(Text):
                assert isinstance(text, Text)  # noqa: S101  # the type of `findobj` is wider
                text.set_text(visible_lines(text.get_text().expandtabs(1)))
            if engine := figure.get_layout_engine():
                engine.execute(figure)
            figure.set_layout_engine("none")
            return figure

    return draw_styled


@contextlib.contextmanager
def without_glyph_warnings() -> Iterator[None]:
    """Do not warn of letters that DejaVu Sans lacks, such as 中.

    An SVG has them as text, which the reader's fonts set; a PDF or PNG shows boxes.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from (current )?font", UserWarning)
        yield


def unique(names: Iterable[str]) -> list[str]:
    """Return each name once, in the order of first appearance."""
    return list(dict.fromkeys(names))


def shorten(label: str) -> str:
    """Return the label, cut to `LONGEST_LABEL` letters so that it leaves room for the plot."""
    flat = visible(" ".join(label.split()))
    if len(flat) <= LONGEST_LABEL:
        return flat
    cut = textwrap.shorten(flat, LONGEST_LABEL, placeholder="…")
    # A single long word is cut inside: `textwrap.shorten` would drop it.
    return cut if len(cut) > LONGEST_LABEL // 2 else flat[: LONGEST_LABEL - 1] + "…"


def signed_number(value: float, decimals: int) -> str:
    """Return a signed number with a minus sign in place of a hyphen: `+0.0012`, `−0.0006`."""
    return signed(value, decimals).replace("-", "\N{MINUS SIGN}")


def bar_styles(n_arms: int) -> list[BarStyle]:
    """Return fill and hatch of each arm's bars: the baseline, first, is grey; the last is blue."""
    between = [(ORANGE, "////"), (GREEN, "xxxx"), (PURPLE, "....")]
    fills = [(GREY, ""), *between[: n_arms - 2], (BLUE, "")] if n_arms > 1 else [(BLUE, "")]
    return [
        {"facecolor": fill, "hatch": hatch, "edgecolor": INK, "linewidth": 0.6}
        for fill, hatch in fills
    ]


def small_multiples(n: int) -> tuple[Figure, list[Axes]]:
    """Return a figure and its `n` small plots, five a row; `n` is at least 1.

    One or two plots are as wide as a column of text, which legend and note need.
    """
    per_row = min(PLOTS_PER_ROW, n)
    rows = math.ceil(n / per_row)
    width = max(PAGE_IN * per_row / PLOTS_PER_ROW + 0.4, COLUMN_IN)
    figure = Figure(figsize=(width, 0.75 + 1.35 * rows))
    plots = list(figure.subplots(rows, per_row, squeeze=False).flat)
    for axes in plots[n:]:
        axes.remove()
    return figure, plots[:n]


def label_outer(plots: Sequence[Axes], *, x: str = "", y: str = "") -> None:
    """Label the y axis of each row's first small plot, and the x axis of the last row's."""
    for axes in plots[::PLOTS_PER_ROW] if y else ():
        axes.set_ylabel(y)
    for axes in plots[-PLOTS_PER_ROW:] if x else ():
        axes.set_xlabel(x)


def epoch_axis(axes: Axes) -> None:
    """Label whole epochs alone on the x axis, also where there is but one."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))


def limit_ticks(axes: Axes, *, horizontal: bool, at_most: int = 5) -> None:
    """Set round ticks on one axis, no more than fit beside each other."""
    axis = axes.xaxis if horizontal else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=at_most, steps=[1, 2, 2.5, 5, 10]))


def signed_ticks(axes: Axes, *, horizontal: bool = True) -> None:
    """Label the ticks of an axis of differences: `+0.002`, `0`, `−0.002`.

    All labels have the number of decimals that the ticks need.
    """
    axis = axes.xaxis if horizontal else axes.yaxis
    ticks = [float(tick) for tick in axis.get_majorticklocs()]
    decimals = next(
        (n for n in range(1, 8) if all(abs(round(tick, n) - tick) < 1e-9 for tick in ticks)), 8
    )

    def label(value: float, _: object) -> str:
        return "0" if abs(value) < 1e-12 else signed_number(value, decimals)

    axis.set_major_formatter(FuncFormatter(label))


def difference_scale(
    axes: Axes, values: Sequence[float], *, ends: Sequence[float] = (), horizontal: bool
) -> str:
    """Scale an axis of differences so that most `values` can be told apart, and label its ticks.

    The scale is linear; where one value would dwarf the others it is linear up to a threshold and
    logarithmic beyond. `ends` are the ends of the values' intervals. Returns what the axis' label
    says of the scale, empty where it is linear.
    """
    sizes = [abs(value) for value in values]
    middle = max(float(np.median(sizes)), _MIN_THRESHOLD)
    shown = [*values, *ends]
    if max(abs(value) for value in shown) < _MAX_RATIO * middle:
        limit_ticks(axes, horizontal=horizontal, at_most=7)
        signed_ticks(axes, horizontal=horizontal)
        return ""
    # The decade of the smaller values, so that these are on the linear part.
    small = max(float(np.quantile(sizes, 0.25)), _MIN_THRESHOLD)
    threshold = 10.0 ** math.floor(math.log10(small))
    above = 1.5 * max(*shown, threshold)
    below = 1.5 * max(*(-value for value in shown), threshold)
    n_powers = int(math.log10(max(above, below) / threshold)) + 1
    powers = [threshold * 10**power for power in range(n_powers)]
    ticks = [
        *(-power for power in powers[::-1] if power <= below),
        0.0,
        *(power for power in powers if power <= above),
    ]
    if horizontal:
        axes.set_xscale("symlog", linthresh=threshold)
        axes.set_xlim(-below, above)
    else:
        axes.set_yscale("symlog", linthresh=threshold)
        axes.set_ylim(-below, above)
    axis = axes.xaxis if horizontal else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    signed_ticks(axes, horizontal=horizontal)
    return f" (logarithmic beyond ±{threshold:g})"


def plot_dots(axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    """Plot single values on top of the bar that averages them."""
    axes.plot(
        x,
        y,
        linestyle="",
        marker="o",
        markersize=2.7,
        markerfacecolor="white",
        markeredgecolor=INK,
        markeredgewidth=0.6,
    )


def write_above(axes: Axes, text: str, point: tuple[float, float], *, points: float) -> None:
    """Write a small number so many typographic points above a point of the data."""
    axes.annotate(
        text,
        xy=point,
        xytext=(0, points),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7,
    )


def add_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Add one legend above all plots, three entries a row, or as many as the figure is wide."""
    for columns in range(min(3, len(handles)), 0, -1):
        legend = figure.legend(handles=handles, loc="outside upper center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def add_note(figure: Figure, text: str, *, left_out: int = 0, why: str = "not a number") -> None:
    """Write what the numbers rest on in small type below the plots: n, and what was left out."""
    if left_out:
        text = f"{text} Left out, {why}: {left_out}."
    wrapped = textwrap.fill(text, int(figure.get_figwidth() * 20))
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=6.5, color=FAINT, linespacing=1.3)


def empty_figure(width_in: float, reason: str) -> Figure:
    """Return a small figure that says why there is nothing to draw."""
    figure = Figure(figsize=(width_in, 0.7))
    figure.set_layout_engine("none")
    figure.text(0.5, 0.5, reason, ha="center", va="center", color=FAINT, fontsize=8)
    return figure
