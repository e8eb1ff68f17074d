"""Alignment of gradients between semantic groups: the paper's Figures 1 and 3."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from prime_bench.base.words import counted
from prime_bench.catalog import PLUGINS
from prime_bench.report.figures.style import (
    BLUE,
    COLUMN_IN,
    INK,
    ORANGE,
    BarStyle,
    add_legend,
    add_note,
    bar_styles,
    empty_figure,
    limit_ticks,
    plot_dots,
    shorten,
    signed_number,
    styled,
    unique,
    write_above,
)
from prime_bench.report.quantities.gaps import field_gaps
from prime_bench.report.quantities.layout import arm_label, backbone_label, catalogue_rank
from prime_bench.store.record import ProbeRecord

_BAR_WIDTH = 0.36
# The paper's colours; the hatch is for grey prints.
_MATCHED: BarStyle = {"facecolor": BLUE, "edgecolor": INK, "linewidth": 0.6}
_SEMANTIC: BarStyle = {"facecolor": ORANGE, "hatch": "////", "edgecolor": INK, "linewidth": 0.6}


@dataclass(frozen=True, kw_only=True)
class GapFinding:
    """Gradient alignment of one trained arm under one semantic field (paper, Eq. 28)."""

    backbone: str
    """Printed name."""
    arm: str
    """Printed name."""
    seed: int
    field: str
    semantic: float
    """Mean pairwise cosine of the gradients of semantic groups."""
    matched: float
    """The same of random groups of the same sizes."""

    @property
    def gap(self) -> float:
        """The competition gap: the alignment that semantic groups lack."""
        return self.matched - self.semantic


def gap_findings(records: Sequence[ProbeRecord], *, baseline: str) -> list[GapFinding]:
    """Return the competition gaps over whole blocks; `baseline` is the name of an arm.

    A finding from other rows than those of the baseline with the same backbone and seed is left
    out, since the two cannot be compared.
    """
    gaps = sorted(field_gaps(records), key=lambda gap: catalogue_rank(gap.backbone))
    rows = {(gap.backbone, gap.seed): gap.rows for gap in gaps if gap.arm == baseline}
    return [
        GapFinding(
            backbone=backbone_label(gap.backbone),
            arm=arm_label(gap.arm),
            seed=gap.seed,
            field=gap.field,
            semantic=gap.semantic,
            matched=gap.random,
        )
        for gap in gaps
        if rows.get((gap.backbone, gap.seed), gap.rows) == gap.rows
    ]


def arm_order(records: Sequence[ProbeRecord], *, baseline: str) -> list[str]:
    """Return the printed names of the arms: baseline, others in the catalog's order, PRIME."""
    catalog = list(PLUGINS)

    def rank(record: ProbeRecord) -> tuple[bool, bool, int, str]:
        plugin = record.job.plugin
        position = catalog.index(plugin) if plugin in catalog else len(catalog)
        return plugin != baseline, plugin == "prime", position, record.arm

    return unique(arm_label(record.arm) for record in sorted(records, key=rank))


@styled
def draw_competition(findings: Sequence[GapFinding]) -> Figure:
    """Draw the paper's Figure 1: mean cosine of random and of semantic groups by backbone.

    `findings` are those of one arm. A finding that is NaN is left out and counted in the note.
    """
    finite = [item for item in findings if np.isfinite(item.gap)]
    if not finite:
        return empty_figure(COLUMN_IN, "no gradient findings")
    backbones = unique(item.backbone for item in finite)
    figure = Figure(figsize=(max(COLUMN_IN, 0.75 * len(backbones)), 2.3))
    axes = figure.subplots()
    for x, backbone in enumerate(backbones):
        own = [item for item in finite if item.backbone == backbone]
        matched = float(np.mean([item.matched for item in own]))
        semantic = float(np.mean([item.semantic for item in own]))
        axes.bar(x - _BAR_WIDTH / 2, matched, _BAR_WIDTH, **_MATCHED)
        axes.bar(x + _BAR_WIDTH / 2, semantic, _BAR_WIDTH, **_SEMANTIC)
        _mark_gap(axes, x + _BAR_WIDTH / 2, matched, semantic)
    axes.set_xticks(range(len(backbones)), [shorten(name) for name in backbones])
    axes.set_ylabel("Gradient cosine similarity")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.margins(y=0.14)
    axes.grid(axis="y")
    limit_ticks(axes, horizontal=False)
    add_legend(
        figure,
        [
            Patch(**_MATCHED, label="Matched random groups"),
            Patch(**_SEMANTIC, label="Semantic groups"),
        ],
    )
    add_note(figure, _competition_note(finite), left_out=len(findings) - len(finite))
    return figure


def _mark_gap(axes: Axes, x: float, matched: float, semantic: float) -> None:
    """Draw a line at the random bar's height, an arrow down to the semantic bar, and the gap."""
    axes.hlines(matched, x - _BAR_WIDTH / 2, x + _BAR_WIDTH / 2, color=INK, linewidth=1.2)
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


def _competition_note(findings: Sequence[GapFinding]) -> str:
    """How many checkpoints and fields each bar averages."""
    checkpoints = {(item.backbone, item.seed) for item in findings}
    backbones = [item.backbone for item in findings]
    counts = sorted({backbones.count(backbone) for backbone in backbones})
    n = counted(counts[0], "finding", most=counts[-1])
    return (
        f"Means of n = {n} a bar: {counted(len(checkpoints), 'checkpoint')} in all; fields: "
        f"{', '.join(unique(item.field for item in findings))}. "
        "Number: the gap between the two bars."
    )


@styled
def draw_gap_reduction(findings: Sequence[GapFinding], *, arms: Sequence[str]) -> Figure:
    """Draw the paper's Figure 3: the mean competition gap of each arm on each backbone.

    `arms` are printed names, the baseline first. Of a backbone, only seeds and fields that all of
    its arms have are averaged, so that bars beside each other cover the same checkpoints. The
    percentage is the last arm's change relative to the baseline's gap.
    """
    shared = _shared([item for item in findings if np.isfinite(item.gap) and item.arm in arms])
    if not shared:
        return empty_figure(COLUMN_IN, "no gradient findings that arms share")
    backbones = unique(item.backbone for item in shared)
    shown = [arm for arm in arms if any(item.arm == arm for item in shared)]
    styles = bar_styles(len(shown))
    width = 0.8 / len(shown)
    figure = Figure(figsize=(max(COLUMN_IN, 0.85 * len(backbones)), 2.4))
    axes = figure.subplots()
    for center, backbone in enumerate(backbones):
        means: dict[str, float] = {}
        for index, arm in enumerate(shown):
            own = [item for item in shared if (item.backbone, item.arm) == (backbone, arm)]
            if not own:
                continue
            x = center + (index - (len(shown) - 1) / 2) * width
            means[arm] = float(np.mean([item.gap for item in own]))
            axes.bar(x, means[arm], width, **styles[index])
            _plot_checkpoints(axes, x, own)
        if shown[0] in means and shown[-1] in means and len(shown) > 1:
            _write_change(axes, center, means[shown[0]], means[shown[-1]])
    axes.set_xticks(range(len(backbones)), [shorten(name) for name in backbones])
    axes.set_ylabel("Competition gap Γ")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.margins(y=0.16)
    axes.grid(axis="y")
    limit_ticks(axes, horizontal=False)
    add_legend(
        figure,
        [Patch(**style, label=shorten(arm)) for style, arm in zip(styles, shown, strict=True)],
    )
    add_note(
        figure,
        _reduction_note(shared, shown),
        left_out=len(findings) - len(shared),
        why="unpaired or not a number",
    )
    return figure


def _shared(findings: Sequence[GapFinding]) -> list[GapFinding]:
    """The findings whose backbone, seed and field every arm of the backbone has."""
    arms: dict[str, set[str]] = {}
    arms_with: dict[tuple[str, int, str], set[str]] = {}
    for item in findings:
        arms.setdefault(item.backbone, set()).add(item.arm)
        arms_with.setdefault((item.backbone, item.seed, item.field), set()).add(item.arm)
    return [
        item
        for item in findings
        if arms_with[item.backbone, item.seed, item.field] == arms[item.backbone]
    ]


def _plot_checkpoints(axes: Axes, x: float, findings: Sequence[GapFinding]) -> None:
    """Plot a dot for each checkpoint: its mean over fields."""
    seeds = unique(str(item.seed) for item in findings)
    means = [
        float(np.mean([item.gap for item in findings if str(item.seed) == seed])) for seed in seeds
    ]
    plot_dots(axes, [x] * len(means), means)


def _write_change(axes: Axes, x: int, baseline: float, arm: float) -> None:
    """Write `−34 %` above a backbone's bars; nothing where the baseline's gap is 0 or negative."""
    if baseline <= 0:
        return
    change = 100 * (arm / baseline - 1)
    write_above(axes, f"{signed_number(change, 0)} %", (x, max(baseline, arm)), points=8)


def _reduction_note(findings: Sequence[GapFinding], arms: Sequence[str]) -> str:
    seeds = {item.seed for item in findings}
    fields = {item.field for item in findings}
    note = (
        f"Bars: means over the checkpoints that the arms share (n = {len(seeds)} by seed, "
        f"{len(fields)} by field); "
        "dots: single checkpoints, mean over fields."
    )
    return note + (f" Percentage: from {arms[0]} to {arms[-1]}." if len(arms) > 1 else "")
