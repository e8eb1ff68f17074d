"""How every figure looks: sizes, type, colours that differ in lightness, shape or hatch, too."""

import functools
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from prime_bench.report.formats.numbers import signed

PER_ROW = 5
"""Small plots side by side on a page."""
COLUMN_IN = 3.35
"""Width of a text column of the paper's class."""
PAGE_IN = 7.0
"""Width of its page."""

PNG_DOTS_PER_INCH = 200
INK = "#1c1c22"
"""Text and axes. A page may put its own colour in its place, so nothing else is drawn in it."""
FAINT = "#7d7d86"
"""Rules, notes and single runs."""
# Okabe and Ito, "Color universal design" (2008): apart for all common kinds of colour blindness.
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
GREY = "#c4c4cb"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")

LONGEST_LABEL = 30
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
    "figure.dpi": PNG_DOTS_PER_INCH,  # texts are laid out at the size at which they are drawn
    "figure.constrained_layout.use": True,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    # A `$` in somebody's label is a dollar.
    "text.parse_math": False,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
}

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with matplotlib's defaults and ours, whatever the user's matplotlibrc says."""

    @functools.wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_RC)
            figure = draw(*args, **kwargs)
            # Once for all formats: finding the places of all texts is half of the work.
            if engine := figure.get_layout_engine():
                engine.execute(figure)
            figure.set_layout_engine("none")
            return figure

    return in_style


def short(label: str) -> str:
    """The label, cut where it would push the plot aside."""
    flat = " ".join(label.split())
    if len(flat) <= LONGEST_LABEL:
        return flat
    cut = textwrap.shorten(flat, LONGEST_LABEL, placeholder="…")
    # A single long word is cut inside: `shorten` would drop it whole.
    return cut if len(cut) > LONGEST_LABEL // 2 else flat[: LONGEST_LABEL - 1] + "…"


def bar_looks(n_arms: int) -> list[dict[str, Any]]:
    """Fill and hatch of each arm: the baseline is first and grey, the last one blue."""
    between = [(ORANGE, "////"), (GREEN, "xxxx"), (PURPLE, "....")]
    looks = [(GREY, ""), *between[: n_arms - 2], (BLUE, "")] if n_arms > 1 else [(BLUE, "")]
    return [
        {"facecolor": fill, "hatch": hatch, "edgecolor": INK, "linewidth": 0.6}
        for fill, hatch in looks
    ]


def difference_text(value: float, decimals: int) -> str:
    """`+0.0012`, `−0.0006` with a real minus."""
    return signed(value, decimals).replace("-", "\N{MINUS SIGN}")


def sign_ticks(axes: Axes, *, horizontal: bool = True) -> None:
    """Tick labels of a difference, `+0.002`, `0`, `−0.002`, with the digits that the ticks need."""
    axis = axes.xaxis if horizontal else axes.yaxis
    ticks = [float(tick) for tick in axis.get_majorticklocs()]
    decimals = next(
        (n for n in range(1, 8) if all(abs(round(tick, n) - tick) < 1e-9 for tick in ticks)), 8
    )

    def label(value: float, _: object) -> str:
        return "0" if abs(value) < 1e-12 else difference_text(value, decimals)

    axis.set_major_formatter(FuncFormatter(label))


def few_ticks(axes: Axes, *, horizontal: bool, at_most: int = 5) -> None:
    """No more labelled ticks than fit side by side."""
    axis = axes.xaxis if horizontal else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=at_most, steps=[1, 2, 2.5, 5, 10]))


def dots(axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    """Single values on top of a bar that averages them."""
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


def write_above(axes: Axes, text: str, place: tuple[float, float], *, points: float) -> None:
    """A small number so many points above a place in the data, as on top of a bar."""
    axes.annotate(
        text,
        xy=place,
        xytext=(0, points),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7,
    )


def small_plots(n: int) -> tuple[Figure, list[Axes]]:
    """A figure with n plots, five a row; `n` is at least 1."""
    per_row = min(PER_ROW, n)
    rows = math.ceil(n / per_row)
    figure = Figure(figsize=(PAGE_IN * per_row / PER_ROW + 0.4, 0.75 + 1.35 * rows))
    every = list(figure.subplots(rows, per_row, squeeze=False).flat)
    for axes in every[n:]:
        axes.remove()
    return figure, every[:n]


def legend_above(figure: Figure, handles: Sequence[Artist]) -> None:
    """One legend for all panels, three entries a row."""
    figure.legend(handles=handles, loc="outside upper center", ncols=min(3, len(handles)))


def say_n(figure: Figure, words: str) -> None:
    """What the numbers rest on, in small type below the plot."""
    width_letters = int(figure.get_figwidth() * 20)
    text = textwrap.fill(words, width_letters)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=6.5, color=FAINT, linespacing=1.3)


def nothing_to_show(width_in: float, reason: str) -> Figure:
    """A small figure that says why it is empty: a gap in a report is not a crash."""
    figure = Figure(figsize=(width_in, 0.7))
    figure.set_layout_engine("none")
    figure.text(0.5, 0.5, reason, ha="center", va="center", color=FAINT, fontsize=8)
    return figure
