"""A scale for differences on which most of them can be told apart."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from prime_bench.report.figures.style import few_ticks, sign_ticks

LEAST_BEND = 1e-3
"""No logarithm below it: so small a difference of AUC is hardly one (`gallery.EQUIVALENT_AUC`)."""
WIDE_RATIO = 6
"""Largest against median size beyond which a linear scale would hide most values."""


def difference_scale(
    axes: Axes, values: Sequence[float], *, ends: Sequence[float] = (), horizontal: bool
) -> float | None:
    """Scale one axis for `values` and the `ends` of their intervals, and label its ticks.

    Linear, or linear near zero and logarithmic beyond where one value would dwarf the others.
    Returns where it bends, for the axis to say so; None if it is linear.
    """
    sizes = [abs(value) for value in values]
    middle = max(float(np.median(sizes)), LEAST_BEND)
    every = [*values, *ends]
    largest = max(abs(value) for value in every)
    if largest < WIDE_RATIO * middle:
        few_ticks(axes, horizontal=horizontal, at_most=7)
        sign_ticks(axes, horizontal=horizontal)
        return None
    # Linear up to the decade of the smaller values, so that these are not squeezed.
    bend = 10.0 ** math.floor(math.log10(max(float(np.quantile(sizes, 0.25)), LEAST_BEND)))
    above, below = 1.5 * max(*every, bend), 1.5 * max(*(-value for value in every), bend)
    powers = [bend * 10**step for step in range(int(math.log10(max(above, below) / bend)) + 1)]
    ticks = [
        *(-power for power in powers[::-1] if power <= below),
        0.0,
        *(power for power in powers if power <= above),
    ]
    if horizontal:
        axes.set_xscale("symlog", linthresh=bend)
        axes.set_xlim(-below, above)
    else:
        axes.set_yscale("symlog", linthresh=bend)
        axes.set_ylim(-below, above)
    axis = axes.xaxis if horizontal else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    sign_ticks(axes, horizontal=horizontal)
    return bend


def bend_words(bend: float | None) -> str:
    """What the axis' label says of the scale."""
    return f" (logarithmic beyond ±{bend:g})" if bend else ""
