"""Validation and test AUC along a key of a grid, with a line for each value of another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import JsonValue

from prime_bench.base.words import counted
from prime_bench.recipe.sweep import value_name
from prime_bench.report.figures.style import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    PAGE_IN,
    add_legend,
    add_note,
    empty_figure,
    limit_ticks,
    shorten,
    styled,
    unique,
)
from prime_bench.report.quantities.choice import Choice, Tried, best
from prime_bench.report.quantities.grid import score_of
from prime_bench.settings.probes import ProbedSplit

_SPLITS: dict[ProbedSplit, str] = {"valid": "Validation", "test": "Test"}
_MOST_LINES = 8
"""Lines of a plot that can be told apart."""


@dataclass(frozen=True, kw_only=True)
class SensitivityPoint:
    """The settings that are shown at one value of the axis on one line."""

    x: str
    """The value of the key along the axis."""
    line: str
    """The value of the other key; empty where there is none."""
    scores: Mapping[ProbedSplit, tuple[float, ...]]
    """AUC of each seed by split."""
    chosen: bool
    """Whether it has the highest mean validation AUC of all settings."""


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """An arm on a backbone."""

    backbone: str
    """Printed name."""
    points: tuple[SensitivityPoint, ...]
    x_values: tuple[str, ...]
    """Values along the axis, in their order."""
    lines: tuple[str, ...]
    """Values of the lines, in their order."""
    left_out: int
    """Settings without a validation AUC of every seed."""


def shown_keys(choice: Choice, asked: Sequence[str]) -> list[str]:
    """The one or two keys that a figure shows: those asked for, else the first of the grids."""
    keys = list(choice.tried[0].values)
    return ([key for key in asked if key in keys] or keys)[:2]


def sensitivity_of(choice: Choice, keys: Sequence[str]) -> Sensitivity:
    """The points of a choice along `keys[0]`, by `keys[1]` where there is one.

    Where other keys vary too, each point is the one of them with the highest validation AUC.
    """
    places: dict[tuple[str, str], list[Tried]] = {}
    for item in choice.tried:
        x, *line = (value_name(item.values[key]) for key in keys)
        places.setdefault((x, line[0] if line else ""), []).append(item)
    shown = {place: found for place, items in places.items() if (found := best(items))}
    return Sensitivity(
        backbone=choice.backbone.label,
        points=tuple(
            SensitivityPoint(
                x=x,
                line=line,
                scores={split: _aucs(item, split) for split in _SPLITS},
                chosen=item is choice.chosen,
            )
            for (x, line), item in shown.items()
        ),
        x_values=in_order([item.values[keys[0]] for item in choice.tried]),
        lines=in_order([item.values[key] for item in choice.tried for key in keys[1:]]) or ("",),
        left_out=sum(item.score is None for item in choice.tried),
    )


def in_order(values: Sequence[JsonValue]) -> tuple[str, ...]:
    """Each value once, by name: numbers and lists of numbers by size, others as they come."""
    by_size: list[list[float]] = []
    for value in values:
        parts = value if isinstance(value, list) else [value]
        numbers = [x for x in parts if isinstance(x, int | float) and not isinstance(x, bool)]
        if len(numbers) < len(parts):
            return tuple(unique(map(value_name, values)))
        by_size.append(numbers)
    ordered = sorted(zip(by_size, values, strict=True), key=lambda pair: pair[0])
    return tuple(unique(value_name(value) for _, value in ordered))


def _aucs(item: Tried, split: ProbedSplit) -> tuple[float, ...]:
    scores = (score_of(run, "auc", split) for run in item.runs.values())
    return tuple(score for score in scores if score is not None)


@styled
def draw_sensitivity(
    shown: Sequence[Sensitivity], *, keys: Sequence[str], others: Sequence[str]
) -> Figure:
    """Draw validation and test AUC of each backbone side by side, means with a bar of one SD.

    `keys` are the key along the axis and that of the lines, `others` further keys of the grids. A
    ring marks the settings that validation chooses.
    """
    shown = [item for item in shown if item.points]
    if not shown:
        return empty_figure(PAGE_IN, "no settings with a validation AUC of every seed")
    # One order of lines for all plots: that of the backbone with most of them comes first.
    widest = max(shown, key=lambda item: len(item.lines))
    drawn = {point.line for item in shown for point in item.points}
    ordered = unique([*widest.lines, *(line for item in shown for line in item.lines)])
    every = [line for line in ordered if line in drawn]
    lines = every[:_MOST_LINES]
    per_row = min(2, len(shown))
    rows = math.ceil(len(shown) / per_row)
    figure = Figure(figsize=(PAGE_IN if per_row > 1 else PAGE_IN * 0.6, 1.1 + 1.6 * rows))
    plots = list(figure.subplots(rows, 2 * per_row, squeeze=False).flat)
    for axes in plots[2 * len(shown) :]:
        axes.remove()
    for number, item in enumerate(shown):
        for axes, (split, label) in zip(plots[2 * number :], _SPLITS.items(), strict=False):
            _plot(axes, item, split=split, lines=lines)
            axes.set_title(f"{shorten(item.backbone)[:18]}: {label.lower()}", fontsize=7.5)
            axes.set_xlabel(shorten(keys[0]))
        plots[2 * number].set_ylabel("AUC")
    if len(keys) > 1:
        add_legend(
            figure, [_line(lines.index(line), label=f"{keys[1]} = {line}") for line in lines]
        )
    note = _note(shown, others=others)
    if len(every) > len(lines):
        note += f" Lines: the first {len(lines)} of {len(every)} values."
    without = "without a validation AUC of every seed"
    add_note(figure, note, left_out=sum(item.left_out for item in shown), why=without)
    return figure


def _note(shown: Sequence[Sensitivity], *, others: Sequence[str]) -> str:
    seeds = {len(scores) for i in shown for p in i.points for scores in p.scores.values()}
    n = counted(min(seeds), "seed", most=max(seeds))
    text = f"n = {n} a point: mean, bar of one standard deviation. "
    if others:
        text += f"Of {', '.join(others)} each point has the value of the highest validation AUC. "
    return text + "Ring: the settings that validation chooses."


def _line(number: int, *, label: str = "") -> Line2D:
    return Line2D(
        [],
        [],
        color=COLOURS[number % len(COLOURS)],
        linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
        marker=MARKERS[number % len(MARKERS)],
        label=shorten(label),
    )


def _plot(axes: Axes, item: Sensitivity, *, split: ProbedSplit, lines: Sequence[str]) -> None:
    positions = range(len(item.x_values))
    for number, line in enumerate(lines):
        own = {point.x: point for point in item.points if point.line == line}
        found = [own[x].scores[split] if x in own else () for x in item.x_values]
        style = _line(number)
        # Beside each other, so that the bars of two lines do not hide each other.
        shift = 0.06 * (number - (len(lines) - 1) / 2)
        axes.errorbar(
            [position + shift for position in positions],
            [mean(scores) if scores else math.nan for scores in found],
            yerr=[stdev(scores) if len(scores) > 1 else 0.0 for scores in found],
            color=style.get_color(),
            linestyle=style.get_linestyle(),
            marker=style.get_marker(),
            elinewidth=0.6,
        )
        for position, x in zip(positions, item.x_values, strict=True):
            if x in own and own[x].chosen and own[x].scores[split]:
                axes.plot(
                    position + shift,
                    mean(own[x].scores[split]),
                    marker="o",
                    markersize=8,
                    markerfacecolor="none",
                    markeredgecolor=INK,
                    markeredgewidth=0.8,
                )
    axes.set_xticks(list(positions), [shorten(x)[:10] for x in item.x_values])
    axes.set_xlim(-0.4, len(item.x_values) - 0.6)
    axes.margins(y=0.15)
    axes.grid(axis="y", color=FAINT)
    limit_ticks(axes, horizontal=False, at_most=4)
    axes.ticklabel_format(axis="y", useOffset=False)
