"""Statistics over architectures and over families of comparisons: pure functions, in float64.

Shapes: m architectures, each with one value, the median of its paired differences. Pairs of one
architecture are a cluster, so nothing here takes pooled pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from prime_bench.report.stats import hodges_lehmann, sign_sums

Verdict = Literal["better", "equivalent", "worse", "unclear", "too few"]
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval and the level that it truly has."""

    low: float
    high: float
    level: float
    """At least what was asked for, or the most that so few values allow."""


def hodges_lehmann_interval(values: ArrayLike, *, level: float = CONFIDENCE) -> Interval:
    """The exact interval that belongs to the Hodges-Lehmann estimate of values (m,), m >= 1.

    Its ends are Walsh averages, the k-th from either side, with the largest k whose two tails of
    the signed-rank distribution stay within 1 - level. For m = 5 the widest interval has 0.9375.
    """
    array = np.asarray(values, dtype=np.float64)
    i, j = np.triu_indices(len(array))
    walsh = np.sort((array[i] + array[j]) / 2)
    ways = sign_sums(list(range(1, len(array) + 1)))
    total, tail, k = sum(ways), 0, 0
    while k < len(ways) // 2 and 2 * (tail + ways[k]) <= (1 - level) * total:
        tail += ways[k]
        k += 1
    if k == 0:
        k, tail = 1, ways[0]
    return Interval(low=float(walsh[k - 1]), high=float(walsh[-k]), level=1 - 2 * tail / total)


def leave_one_out(values: Sequence[float]) -> tuple[float, float] | None:
    """Smallest and largest Hodges-Lehmann estimate with one of values (m,) left out.

    None for a single value.
    """
    if len(values) < 2:
        return None
    estimates = [
        hodges_lehmann([*values[:index], *values[index + 1 :]]) for index in range(len(values))
    ]
    return min(estimates), max(estimates)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each of m comparisons, in their order."""
    m = len(p_values)
    adjusted = [1.0] * m
    largest = 0.0
    for rank, index in enumerate(sorted(range(m), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (m - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def equivalence(interval: Interval, *, margin: float) -> Verdict:
    """Where a whole interval lies: beyond a margin > 0 on either side, inside it, or across.

    "too few" where its level is below CONFIDENCE: five values or fewer cannot have it.
    """
    if interval.level < CONFIDENCE:
        return "too few"
    if interval.low > margin:
        return "better"
    if interval.high < -margin:
        return "worse"
    if -margin < interval.low and interval.high < margin:
        return "equivalent"
    return "unclear"
