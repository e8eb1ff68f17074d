"""Validation metric by epoch of two arms, a thin line a run, a small plot a backbone."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from prime_bench.report.figures.inputs import Curve
from prime_bench.report.figures.style import (
    BLUE,
    DASHES,
    ORANGE,
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

_COLOURS = (ORANGE, BLUE)


@styled
def draw_learning_curves(
    curves: Mapping[str, Sequence[Curve]], *, arms: tuple[str, str], metric_label: str
) -> Figure:
    """Backbone -> its runs; `arms` are the printed names of the baseline and the arm.

    A dot marks the epoch whose weights were kept. A value that is no number breaks the line.
    """
    shown = {
        backbone: own
        for backbone, runs in curves.items()
        if (own := [run for run in runs if run.arm in arms and run.epochs])
    }
    if not shown:
        return nothing_to_show(PAGE_IN, "no validation history")
    figure, every = small_plots(len(shown))
    for axes, (backbone, runs) in zip(every, shown.items(), strict=True):
        for run in runs:
            _line(axes, run, index=arms.index(run.arm))
        axes.set_title(short(backbone)[:18])
        axes.grid()
        axes.ticklabel_format(axis="y", useOffset=False)
        few_ticks(axes, horizontal=False, at_most=4)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    for axes in every[::PER_ROW]:
        axes.set_ylabel(metric_label)
    for axes in every[-PER_ROW:]:
        axes.set_xlabel("Epoch")
    legend_above(
        figure,
        [
            Line2D([], [], color=_COLOURS[i], linestyle=DASHES[1 - i], label=short(arm))
            for i, arm in enumerate(arms)
        ],
    )
    n = sum(len(runs) for runs in shown.values())
    say_n(figure, f"n = {n} runs, a line each; the dot is the epoch whose weights were kept.")
    return figure


def _line(axes: Axes, run: Curve, *, index: int) -> None:
    axes.plot(
        run.epochs,
        run.values,
        color=_COLOURS[index],
        linestyle=DASHES[1 - index],
        linewidth=0.9,
        # A run of a single epoch has no line to see.
        marker="_" if len(run.epochs) == 1 else "",
    )
    if run.best_epoch in run.epochs:
        best = run.values[run.epochs.index(run.best_epoch)]
        axes.plot(
            run.best_epoch, best, marker=("s", "o")[index], color=_COLOURS[index], markersize=2.8
        )
