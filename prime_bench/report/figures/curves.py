"""What happened in training, epoch by epoch: validation metric, and load of the experts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prime_bench.base.words import counted
from prime_bench.report.figures.style import (
    BLUE,
    COLOURS,
    DASHES,
    INK,
    ORANGE,
    PAGE_IN,
    LineStyle,
    add_legend,
    add_note,
    empty_figure,
    epoch_axis,
    label_outer,
    limit_ticks,
    shorten,
    small_multiples,
    styled,
    unique,
)
from prime_bench.report.quantities.layout import backbone_label
from prime_bench.store.record import RunRecord

_ARM_COLOURS = (ORANGE, BLUE)
"""The baseline's, and the arm's."""
_ARM_DASHES = (DASHES[1], DASHES[0])


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One run's validation metric after each epoch."""

    arm: str
    """Printed name."""
    seed: int
    epochs: tuple[int, ...]
    values: tuple[float, ...]
    """NaN where a validation had none."""
    best_epoch: int | None
    """The epoch whose weights were kept."""


def validation_curve(run: RunRecord, *, arm: str) -> Curve:
    """Return the run's validation AUC by epoch; `arm` is the printed name."""
    return Curve(
        arm=arm,
        seed=run.job.seed,
        epochs=tuple(point.epoch for point in run.history),
        values=tuple(
            float("nan") if point.valid_auc is None else point.valid_auc for point in run.history
        ),
        best_epoch=run.result.best_epoch,
    )


@styled
def draw_learning_curves(
    curves: Mapping[str, Sequence[Curve]], *, arms: tuple[str, str], metric_label: str
) -> Figure:
    """Draw the validation metric of two arms by epoch, a line a run, a small plot a backbone.

    `curves` has the runs of each backbone; `arms` are the printed names, the baseline first. A dot
    marks the epoch whose weights were kept. A line is broken where a value is NaN.
    """
    shown = {
        backbone: own
        for backbone, runs in curves.items()
        if (own := [run for run in runs if run.arm in arms and run.epochs])
    }
    if not shown:
        return empty_figure(PAGE_IN, "no validation history")
    figure, plots = small_multiples(len(shown))
    for axes, (backbone, runs) in zip(plots, shown.items(), strict=True):
        for run in runs:
            _plot_run(axes, run, index=arms.index(run.arm))
        axes.set_title(shorten(backbone)[:18])
        axes.grid()
        axes.ticklabel_format(axis="y", useOffset=False)
        limit_ticks(axes, horizontal=False, at_most=4)
        epoch_axis(axes)
    label_outer(plots, x="Epoch", y=metric_label)
    add_legend(
        figure,
        [
            Line2D([], [], color=colour, linestyle=dash, label=shorten(arm))
            for colour, dash, arm in zip(_ARM_COLOURS, _ARM_DASHES, arms, strict=True)
        ],
    )
    n = sum(len(runs) for runs in shown.values())
    add_note(
        figure,
        f"n = {counted(n, 'run')}, a line each; the dot is the epoch whose weights were kept.",
    )
    return figure


def _plot_run(axes: Axes, run: Curve, *, index: int) -> None:
    colour = _ARM_COLOURS[index]
    axes.plot(
        run.epochs,
        run.values,
        color=colour,
        linestyle=_ARM_DASHES[index],
        linewidth=0.9,
        marker="_" if len(run.epochs) == 1 else "",  # a line of one point cannot be seen
    )
    if run.best_epoch in run.epochs:
        best = run.values[run.epochs.index(run.best_epoch)]
        axes.plot(run.best_epoch, best, marker=("s", "o")[index], color=colour, markersize=2.8)


@dataclass(frozen=True, kw_only=True)
class LoadCurve:
    """How evenly one run's routers used their experts after each epoch: E epochs, G bags."""

    backbone: str
    """Printed name."""
    seed: int
    epochs: tuple[int, ...]
    largest_load: tuple[tuple[float, ...], ...]
    """(E, G): the largest mean weight of an expert in each bag."""
    n_experts: int
    """Experts of a bag: an even load is 1 / n_experts."""


def load_curves(runs: Iterable[RunRecord]) -> list[LoadCurve]:
    """Return the load by epoch of each run that has routers."""
    curves = []
    for run in runs:
        points = [(point.epoch, point.routing) for point in run.history if point.routing]
        n_experts = run.job.plugin_settings.get("experts_per_bag")
        if points and isinstance(n_experts, int):
            curves.append(
                LoadCurve(
                    backbone=backbone_label(run.job.backbone),
                    seed=run.job.seed,
                    epochs=tuple(epoch for epoch, _ in points),
                    largest_load=tuple(tuple(routing.largest_load) for _, routing in points),
                    n_experts=n_experts,
                )
            )
    return curves


@styled
def draw_load(curves: Sequence[LoadCurve]) -> Figure:
    """Draw the largest load by epoch, a line a run, a small plot a backbone.

    The line is the mean over the bags; the band shows their range.
    """
    shown = [curve for curve in curves if curve.epochs]
    if not shown:
        return empty_figure(PAGE_IN, "no routing history")
    backbones = unique(curve.backbone for curve in shown)
    seeds = unique(str(curve.seed) for curve in shown)
    figure, plots = small_multiples(len(backbones))
    for axes, backbone in zip(plots, backbones, strict=True):
        own = [curve for curve in shown if curve.backbone == backbone]
        for curve in own:
            _plot_load(axes, curve, index=seeds.index(str(curve.seed)))
        for n_experts in {curve.n_experts for curve in own}:
            axes.axhline(1 / n_experts, color=INK, linewidth=0.7, linestyle=":")
        axes.set_title(shorten(backbone)[:18])
        axes.set_ylim(bottom=0)
        axes.grid()
        limit_ticks(axes, horizontal=False, at_most=4)
        epoch_axis(axes)
    label_outer(plots, x="Epoch", y="Largest mean load")
    add_legend(
        figure,
        [
            Line2D([], [], **_seed_style(index), label=f"seed {seed}")
            for index, seed in enumerate(seeds)
        ],
    )
    bags = sorted({len(curve.largest_load[0]) for curve in shown})
    add_note(
        figure,
        f"n = {counted(len(shown), 'run')}; line: mean over the "
        f"{counted(bags[0], 'bag', most=bags[-1])} of a run, "
        "band: their range; dotted: every expert used alike.",
    )
    return figure


def _plot_load(axes: Axes, curve: LoadCurve, *, index: int) -> None:
    style = _seed_style(index)
    loads = np.array(curve.largest_load)  # (E, G)
    axes.fill_between(
        curve.epochs,
        loads.min(axis=1),
        loads.max(axis=1),
        color=style["color"],
        alpha=0.12,
        linewidth=0,
    )
    marker = "o" if len(curve.epochs) == 1 else ""  # a line of one point cannot be seen
    axes.plot(curve.epochs, loads.mean(axis=1), marker=marker, **style)


def _seed_style(index: int) -> LineStyle:
    """Colour and dash of a seed's line; no combination comes twice in sixteen seeds."""
    cycle = index // len(COLOURS)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[(index + cycle) % len(DASHES)],
    }
