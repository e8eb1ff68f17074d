"""Which pairs the arm wins: a square a backbone and seed, by sign and size of the difference."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from prime_bench.report.figures.inputs import PairedScores, in_order
from prime_bench.report.figures.style import (
    BLUE,
    COLUMN_IN,
    FAINT,
    ORANGE,
    PAGE_IN,
    nothing_to_show,
    say_n,
    short,
    styled,
)

_UNITS_PER_ONE = 10_000
"""Squares print whole ten-thousandths: 12 is +0.0012."""


@styled
def draw_win_grid(panels: dict[str, Sequence[PairedScores]], *, seeds: Sequence[int]) -> Figure:
    """A panel a metric (its printed name -> its cells); columns are seeds, `·` is no pair."""
    backbones = in_order(cell.backbone for cells in panels.values() for cell in cells)
    if not backbones or not seeds:
        return nothing_to_show(PAGE_IN, "no pairs")
    width = min(PAGE_IN, max(COLUMN_IN, 1.6 + 0.43 * len(seeds) * len(panels)))
    figure = Figure(figsize=(width, 1.35 + 0.23 * len(backbones)))
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    counts = []
    for axes, (title, cells) in zip(grid.flat, panels.items(), strict=True):
        wins, pairs = _panel(axes, cells, backbones=backbones, seeds=seeds)
        axes.set_title(f"{title}: {wins} of {pairs} won")
        counts.append(pairs)
    grid[0][0].set_yticks(np.arange(len(backbones)) + 0.5, [short(name) for name in backbones])
    say_n(
        figure,
        f"n = {', '.join(map(str, dict.fromkeys(counts)))} pairs a metric. Differences in units of "
        "0.0001, positive where the arm is better; ▲ won, ▽ lost, = tied, · no pair. Deeper "
        "shades: larger differences.",
    )
    return figure


def _panel(
    axes: Axes,
    cells: Sequence[PairedScores],
    *,
    backbones: Sequence[str],
    seeds: Sequence[int],
) -> tuple[int, int]:
    """Draw one metric; the pairs won and compared."""
    values = np.full((len(backbones), len(seeds)), np.nan)
    for cell in cells:
        for seed, difference in cell.differences.items():
            if seed in seeds:
                values[backbones.index(cell.backbone), list(seeds).index(seed)] = difference
    known = values[np.isfinite(values)]
    # Roots, up to that of twice the 90th percentile: small differences keep a shade beside large
    # ones, and letters stay readable on it.
    size = (float(np.quantile(np.abs(known), 0.9)) if len(known) else 0.0) or 1.0
    shades = np.clip(np.sign(values) * np.sqrt(np.abs(values) / (2 * size)), -1, 1)
    colours = LinearSegmentedColormap.from_list("lost to won", [ORANGE, "#ffffff", BLUE])
    # A mesh, not an image: squares stay squares in SVG and PDF. NaN is left transparent.
    axes.pcolormesh(
        np.ma.masked_invalid(shades),
        cmap=colours,
        vmin=-1.3,
        vmax=1.3,
        edgecolor="white",
        linewidth=1.2,
    )
    for (row, column), value in np.ndenumerate(values):
        axes.text(
            column + 0.5,
            row + 0.5,
            _square(float(value)),
            ha="center",
            va="center",
            fontsize=6.3,
            # On a coloured square the letters stay dark whatever the page's own colour is.
            color=FAINT if np.isnan(value) else "#111111",
        )
    axes.set_xticks(
        np.arange(len(seeds)) + 0.5, [str(seed) for seed in seeds], rotation=45, ha="right"
    )
    axes.set_ylim(len(backbones), 0)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return int(np.sum(known > 0)), len(known)


def _square(difference: float) -> str:
    """`▲ 12`, `▽ 3`: the sign is a shape, so that a grey print keeps it."""
    if np.isnan(difference):
        return "·"
    if difference == 0:
        return "="
    units = abs(round(difference * _UNITS_PER_ONE))
    return f"{'▲' if difference > 0 else '▽'} {units or '<1'}"
