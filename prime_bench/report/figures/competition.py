"""The paper's Figure 1: how much gradient alignment semantic groups lose, backbone by backbone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from prime_bench.report.figures.inputs import GapFinding, in_order
from prime_bench.report.figures.style import (
    BLUE,
    COLUMN_IN,
    INK,
    ORANGE,
    few_ticks,
    legend_above,
    nothing_to_show,
    say_n,
    short,
    styled,
    write_above,
)

_BAR = 0.36
# The paper's colours; the hatch is for grey prints.
_MATCHED: dict[str, Any] = {"facecolor": BLUE, "edgecolor": INK, "linewidth": 0.6}
_SEMANTIC: dict[str, Any] = {
    "facecolor": ORANGE,
    "hatch": "////",
    "edgecolor": INK,
    "linewidth": 0.6,
}


@styled
def draw_competition(findings: Sequence[GapFinding]) -> Figure:
    """Mean cosine of matched random and of semantic groups for each backbone of one arm.

    A finding that is no number is left out and counted below the plot.
    """
    sound = [item for item in findings if np.isfinite(item.gap)]
    if not sound:
        return nothing_to_show(COLUMN_IN, "no gradient findings")
    backbones = in_order(item.backbone for item in sound)
    figure = Figure(figsize=(max(COLUMN_IN, 0.75 * len(backbones)), 2.3))
    axes = figure.subplots()
    for place, backbone in enumerate(backbones):
        own = [item for item in sound if item.backbone == backbone]
        matched = float(np.mean([item.matched for item in own]))
        semantic = float(np.mean([item.semantic for item in own]))
        axes.bar(place - _BAR / 2, matched, _BAR, **_MATCHED)
        axes.bar(place + _BAR / 2, semantic, _BAR, **_SEMANTIC)
        _mark_gap(axes, place + _BAR / 2, matched, semantic)
    axes.set_xticks(range(len(backbones)), [short(name) for name in backbones])
    axes.set_ylabel("Gradient cosine similarity")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.margins(y=0.14)
    axes.grid(axis="y")
    few_ticks(axes, horizontal=False)
    legend_above(
        figure,
        [
            Patch(**_MATCHED, label="Matched random groups"),
            Patch(**_SEMANTIC, label="Semantic groups"),
        ],
    )
    say_n(figure, _counted(sound, n_left_out=len(findings) - len(sound)))
    return figure


def _mark_gap(axes: Axes, x: float, matched: float, semantic: float) -> None:
    """A short rule at the random bar's height, an arrow down to the semantic one, and the gap."""
    axes.hlines(matched, x - _BAR / 2, x + _BAR / 2, color=INK, linewidth=1.2)
    axes.annotate(
        "",
        xy=(x, semantic),
        xytext=(x, matched),
        arrowprops={
            "arrowstyle": "->",
            "color": INK,
            "linewidth": 0.9,
            "shrinkA": 0,
            "shrinkB": 0,
            "mutation_scale": 7,
        },
    )
    write_above(axes, f"{matched - semantic:.2f}", (x, max(matched, semantic)), points=2.5)


def _counted(findings: Sequence[GapFinding], *, n_left_out: int) -> str:
    """How many checkpoints and fields each bar averages."""
    seeds = {(item.backbone, item.seed) for item in findings}
    fields = in_order(item.field for item in findings)
    per_backbone = sorted(
        {
            sum(1 for item in findings if item.backbone == backbone)
            for backbone in in_order(item.backbone for item in findings)
        }
    )
    n = str(per_backbone[0]) if len(per_backbone) == 1 else f"{per_backbone[0]}-{per_backbone[-1]}"
    words = (
        f"Means of n = {n} findings a bar: {len(seeds)} checkpoints in all; fields: "
        f"{', '.join(fields)}. Number: the gap between the two bars."
    )
    return words + (f" Left out, not a number: {n_left_out}." if n_left_out else "")
