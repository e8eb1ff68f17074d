"""Intervals over the few seeds of one comparison: a pure function of arrays, in float64."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from prime_bench.report.numbers import signed

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class SeedInterval:
    """A mean of n values and where the mean of many more may lie."""

    n: int
    mean: float
    low: float
    high: float
    level: float

    def words(self, decimals: int) -> str:
        """`n=5, 95 % interval -0.0010 to +0.0020`."""
        bounds = f"{signed(self.low, decimals)} to {signed(self.high, decimals)}"
        return f"n={self.n}, {100 * self.level:g} % interval {bounds}"


def t_interval(values: Sequence[float], *, level: float = LEVEL) -> SeedInterval | None:
    """Student's interval of the mean of values (n,); None for fewer than two.

    It takes the values, seeds of one comparison, as normally distributed; with three to five of
    them nothing could show that they are not, and a bootstrap would be far too narrow.
    """
    n = len(values)
    if n < 2:
        return None
    mean = float(np.mean(values))
    half = float(stdtrit(n - 1, (1 + level) / 2) * np.std(values, ddof=1) / math.sqrt(n))
    return SeedInterval(n=n, mean=mean, low=mean - half, high=mean + half, level=level)
