"""Every pair of runs as a line from the baseline to the arm, a small plot a backbone."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prime_bench.report.figures.inputs import PairedScores
from prime_bench.report.figures.style import (
    BLUE,
    FAINT,
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


@styled
def draw_paired_dots(
    cells: Sequence[PairedScores], *, baseline: str, arm: str, metric_label: str
) -> Figure:
    """A panel a backbone with its own scale; a line a seed, solid where the arm is better."""
    shown = [cell for cell in cells if cell.differences]
    if not shown:
        return nothing_to_show(PAGE_IN, f"no pairs of {baseline} and {arm}")
    figure, every = small_plots(len(shown))
    for axes, cell in zip(every, shown, strict=True):
        _panel(axes, cell, names=(baseline, arm))
    for axes in every[::PER_ROW]:
        axes.set_ylabel(metric_label)
    better = Line2D([], [], color=BLUE, marker="o", label=f"{short(arm)} is better")
    worse = Line2D([], [], color=ORANGE, marker="s", linestyle="--", label=f"{short(arm)} is worse")
    tie = Line2D([], [], color=FAINT, marker="D", linestyle=":", label="tie")
    any_tie = any(0 in cell.differences.values() for cell in shown)
    legend_above(figure, [better, worse, *([tie] if any_tie else [])])
    n = sum(len(cell.differences) for cell in shown)
    left_out = sum(len(cell.seeds) for cell in cells) - n
    say_n(
        figure,
        f"n = {n} pairs, a line a seed; each backbone has its own scale."
        + (f" Left out, not a number: {left_out}." if left_out else ""),
    )
    return figure


def _panel(axes: Axes, cell: PairedScores, *, names: tuple[str, str]) -> None:
    ends = {
        seed: (left, right)
        for seed, left, right in zip(cell.seeds, cell.baseline, cell.arm, strict=True)
    }
    for seed, difference in cell.differences.items():
        if difference > 0:
            colour, dash, marker = BLUE, "-", "o"
        elif difference < 0:
            colour, dash, marker = ORANGE, "--", "s"
        else:
            colour, dash, marker = FAINT, ":", "D"
        axes.plot([0, 1], ends[seed], color=colour, linestyle=dash, marker=marker, clip_on=False)
    axes.set_xlim(-0.25, 1.25)
    axes.set_xticks([0, 1], [short(name)[:14] for name in names])
    axes.margins(y=0.12)
    axes.grid(axis="y")
    few_ticks(axes, horizontal=False, at_most=4)
    axes.ticklabel_format(axis="y", useOffset=False)
    wins = sum(1 for value in cell.differences.values() if value > 0)
    axes.set_title(f"{short(cell.backbone)[:18]}: {wins}/{len(cell.differences)}")
