"""The paper's Figure 3: the competition gap of each arm, and what PRIME takes off Dense's."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from prime_bench.report.figures.inputs import GapFinding, in_order
from prime_bench.report.figures.style import (
    COLUMN_IN,
    INK,
    bar_looks,
    difference_text,
    dots,
    few_ticks,
    legend_above,
    nothing_to_show,
    say_n,
    short,
    styled,
    write_above,
)


@styled
def draw_gap_reduction(findings: Sequence[GapFinding], *, arms: Sequence[str]) -> Figure:
    """Mean gap of each arm on each backbone; `arms` are printed names, the baseline first.

    Only checkpoints (backbone, seed, field) that every arm of the backbone has enter its bars, so
    that bars beside each other rest on the same ones. The percentage is the last arm's relative
    reduction of the baseline's gap.
    """
    sound = _shared([item for item in findings if np.isfinite(item.gap) and item.arm in arms])
    if not sound:
        return nothing_to_show(COLUMN_IN, "no gradient findings that arms share")
    backbones = in_order(item.backbone for item in sound)
    shown = [arm for arm in arms if any(item.arm == arm for item in sound)]
    looks = bar_looks(len(shown))
    width = 0.8 / len(shown)
    figure = Figure(figsize=(max(COLUMN_IN, 0.85 * len(backbones)), 2.4))
    axes = figure.subplots()
    for place, backbone in enumerate(backbones):
        means: dict[str, float] = {}
        for index, arm in enumerate(shown):
            own = [item for item in sound if (item.backbone, item.arm) == (backbone, arm)]
            if not own:
                continue
            x = place + (index - (len(shown) - 1) / 2) * width
            means[arm] = float(np.mean([item.gap for item in own]))
            axes.bar(x, means[arm], width, **looks[index])
            _seeds(axes, x, own)
        if shown[0] in means and shown[-1] in means and len(shown) > 1:
            _percentage(axes, place, means[shown[0]], means[shown[-1]])
    axes.set_xticks(range(len(backbones)), [short(name) for name in backbones])
    axes.set_ylabel("Competition gap Γ")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.margins(y=0.16)
    axes.grid(axis="y")
    few_ticks(axes, horizontal=False)
    handles = [Patch(**look, label=short(arm)) for look, arm in zip(looks, shown, strict=True)]
    legend_above(figure, handles)
    say_n(figure, _counted(sound, shown, n_left_out=len(findings) - len(sound)))
    return figure


def _shared(findings: Sequence[GapFinding]) -> list[GapFinding]:
    """Those whose backbone, seed and field every arm of the backbone has."""
    arms: dict[str, set[str]] = {}
    have: dict[tuple[str, int, str], set[str]] = {}
    for item in findings:
        arms.setdefault(item.backbone, set()).add(item.arm)
        have.setdefault((item.backbone, item.seed, item.field), set()).add(item.arm)
    return [
        item
        for item in findings
        if have[item.backbone, item.seed, item.field] == arms[item.backbone]
    ]


def _seeds(axes: Axes, x: float, findings: Sequence[GapFinding]) -> None:
    """A dot a checkpoint: its mean over fields."""
    seeds = in_order(str(item.seed) for item in findings)
    means = [
        float(np.mean([item.gap for item in findings if str(item.seed) == seed])) for seed in seeds
    ]
    dots(axes, [x] * len(means), means)


def _percentage(axes: Axes, place: int, baseline: float, arm: float) -> None:
    """`−34 %` above the backbone's bars; none where the baseline's gap is not above zero."""
    if baseline <= 0:
        return
    change = 100 * (arm / baseline - 1)
    text = f"{difference_text(change, 0)} %"
    write_above(axes, text, (place, max(baseline, arm)), points=8)


def _counted(findings: Sequence[GapFinding], arms: Sequence[str], *, n_left_out: int) -> str:
    seeds = {item.seed for item in findings}
    fields = {item.field for item in findings}
    words = (
        f"Bars: means over the checkpoints that the arms share (n = {len(seeds)} by seed, "
        f"{len(fields)} by field); "
        f"dots: single checkpoints, mean over fields."
    )
    if len(arms) > 1:
        words += f" Percentage: from {arms[0]} to {arms[-1]}."
    return words + (f" Left out, unpaired or not a number: {n_left_out}." if n_left_out else "")
