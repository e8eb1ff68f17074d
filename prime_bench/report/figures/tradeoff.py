"""What an arm gains against what it adds: parameters on one axis, step time on the other."""

import itertools
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from prime_bench.report.figures.inputs import CostPoint, in_order
from prime_bench.report.figures.scale import bend_words, difference_scale
from prime_bench.report.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    PAGE_IN,
    few_ticks,
    legend_above,
    nothing_to_show,
    say_n,
    short,
    styled,
)

Spots = Sequence[tuple[float, CostPoint]]
"""Where on the horizontal axis, and what."""
_PANEL_POINTS = (195.0, 145.0)
"""Size of a panel, for keeping names apart."""
_LETTER_POINTS = 3.8


@styled
def draw_tradeoff(points: Sequence[CostPoint], *, baseline: str) -> Figure:
    """Median paired difference of test AUC against added parameters, and against step time."""
    if not points:
        return nothing_to_show(PAGE_IN, "no pairs")
    arms = in_order(point.arm for point in points)
    figure = Figure(figsize=(PAGE_IN, 2.9))
    left, right = figure.subplots(1, 2, sharey=True)
    panels: list[tuple[Axes, Spots]] = [
        (left, [(100 * point.added_parameters, point) for point in points]),
        (right, [(point.step_time_ratio, point) for point in points if point.step_time_ratio]),
    ]
    for axes, spots in panels:
        _scatter(axes, spots, arms=arms)
    bend = difference_scale(left, [point.difference for point in points], horizontal=False)
    # Names of one arm alone: of several they would lie on each other.
    for axes, spots in panels if len(arms) == 1 else ():
        _names(axes, spots)
    left.set_xlabel(f"Parameters added to {short(baseline)}")
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    right.set_xlabel(f"Time of a training step, {short(baseline)} = 1")
    right.axvline(1, color=INK, linewidth=0.6)
    left.set_ylabel("Test AUC: median paired difference" + bend_words(bend).replace(" (", "\n("))
    if len(arms) > 1:
        legend_above(figure, left.get_legend_handles_labels()[0])
    pairs = sorted({point.n_pairs for point in points})
    n = str(pairs[0]) if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
    untimed = sum(1 for point in points if point.step_time_ratio is None)
    say_n(
        figure,
        f"{len(points)} points; each is the median over n = {n} pairs. Step time comes from whole "
        "runs with their validations, not from a benchmark."
        + (f" Without a time, since devices differ: {untimed}." if untimed else ""),
    )
    return figure


def _scatter(axes: Axes, spots: Spots, *, arms: Sequence[str]) -> None:
    for index, arm in enumerate(arms):
        own = [(x, point.difference) for x, point in spots if point.arm == arm]
        axes.plot(
            [x for x, _ in own],
            [difference for _, difference in own],
            linestyle="",
            marker=MARKERS[index % len(MARKERS)],
            color=COLOURS[index % len(COLOURS)],
            markeredgecolor=INK,
            markeredgewidth=0.5,
            markersize=4.5,
            label=short(arm),
        )
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.grid()
    axes.margins(x=0.16, y=0.1)
    few_ticks(axes, horizontal=True)


def _names(axes: Axes, spots: Spots) -> None:
    """Each backbone beside its point, at the first of four places where no other name lies."""
    left, right = axes.get_xlim()

    def to_panel(difference: float) -> float:
        pixel = axes.transData.transform((left, difference))
        return float(axes.transAxes.inverted().transform(pixel)[1])

    def spot_of(x: float, point: CostPoint) -> tuple[float, float]:
        return (
            (x - left) / (right - left) * _PANEL_POINTS[0],
            to_panel(point.difference) * _PANEL_POINTS[1],
        )

    # Left end, right end and height of what a name must not lie on: the points, then names.
    taken = [(at_x - 3, at_x + 3, at_y - 2) for at_x, at_y in itertools.starmap(spot_of, spots)]
    for x, point in sorted(spots, key=lambda spot: spot[1].difference):
        name = short(point.backbone)
        width = _LETTER_POINTS * len(name)
        at_x, at_y = spot_of(x, point)
        west = -4.0 - width
        places = [(4.0, 2.0), (west, 2.0), (4.0, -8.0), (west, -8.0), (4.0, 9.0), (west, 9.0)]
        free = [
            (dx, dy)
            for dx, dy in places
            if not any(
                at_x + dx < right_end and left_end < at_x + dx + width and abs(at_y + dy - y) < 7
                for left_end, right_end, y in taken
            )
        ]
        dx, dy = (free or places)[0]
        taken.append((at_x + dx, at_x + dx + width, at_y + dy))
        axes.annotate(
            name,
            xy=(x, point.difference),
            xytext=(dx, dy),
            textcoords="offset points",
            fontsize=6,
        )
