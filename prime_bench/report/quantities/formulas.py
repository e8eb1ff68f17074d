"""Formulas of the statistics: functions of arrays, in float64."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtri, stdtrit

from prime_bench.findings import Metric
from prime_bench.settings.probes import ProbedSplit

METRICS: tuple[Metric, ...] = ("auc", "logloss")
"""What a report shows where no other metric is asked for."""
_RISING: tuple[Metric, ...] = ("auc", "gauc")
"""Metrics that are better the higher they are."""
SPLIT_LABELS: dict[ProbedSplit, str] = {"valid": "validation", "test": "test"}
Equivalence = Literal["better", "equivalent", "worse", "unclear", "too few"]
CONFIDENCE = 0.95
"""Confidence of intervals: the probability with which they cover the true value."""
SKEWED = 1.0
"""Sample skewness beyond which differences count as skewed (`scripts/skewed_differences.py`)."""
ERROR_RATE = 0.05
"""How often two numbers from runs of one distribution are called different."""


@dataclass(frozen=True, kw_only=True)
class SeedNoise:
    """How much a number varies over repetitions with other seeds, estimated from its own runs."""

    error: float
    """Standard deviation of the number over repetitions."""
    freedom: float
    """Degrees of freedom of the estimate; Satterthwaite's where it is made of several."""
    n: float
    """Runs behind the number: with m runs in their place `error` would be sqrt(n / m) times it."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean and sample standard deviation of n values."""

    n: int
    mean: float
    sd: float | None
    """With n - 1 in the denominator; None for a single value: its spread is unknown, not zero."""

    @property
    def noise(self) -> SeedNoise | None:
        """That of the mean of n such values; None where the spread is unknown."""
        return None if self.sd is None else noise_of(self.sd, n=self.n)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many pairs the arm won, tied and lost; compared raw, never as printed."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, kw_only=True)
class SeedInterval:
    """A mean of n values and where the mean of many more may lie."""

    n: int
    mean: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A confidence interval and the confidence that it has."""

    low: float
    high: float
    confidence: float
    """At least what was asked for, or the most that so few values allow."""


def moments(values: ArrayLike) -> Moments:
    """Mean and sample SD of `values`, shape (n,) with n >= 1."""
    array = _vector(values)
    sd = float(np.std(array, ddof=1)) if len(array) > 1 else None
    return Moments(n=len(array), mean=float(np.mean(array)), sd=sd)


def mean_of(cells: list[Moments]) -> Moments:
    """The Mean row: the mean of the cells' means and the mean of their SDs, not an SD over cells.

    `n` counts cells. The SD is None where a cell has none: the other cells' SDs would not belong
    to this mean.
    """
    sds = [cell.sd for cell in cells if cell.sd is not None]
    sd = float(np.mean(sds)) if len(sds) == len(cells) else None
    return Moments(n=len(cells), mean=float(np.mean([cell.mean for cell in cells])), sd=sd)


def noise_of(sd: float, *, n: int) -> SeedNoise:
    """The noise of the mean of n >= 2 runs with this sample standard deviation."""
    return SeedNoise(error=sd / math.sqrt(n), freedom=n - 1, n=n)


def combined_noise(parts: Sequence[SeedNoise | None], *, over: int = 1) -> SeedNoise | None:
    """The noise of the sum of independent numbers, divided by `over`; None where one's is None."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    squares = [part.error**2 for part in known]
    total = sum(squares)
    if total == 0:
        least = min(known, key=lambda part: part.freedom)
        return SeedNoise(error=0.0, freedom=least.freedom, n=least.n)
    fourth = sum(part.error**4 / part.freedom for part in known)
    return SeedNoise(
        error=math.sqrt(total) / over,
        freedom=total**2 / fourth,
        n=sum(square * part.n for square, part in zip(squares, known, strict=True)) / total,
    )


def noise_of_mean(parts: Sequence[SeedNoise | None]) -> SeedNoise | None:
    """The noise of the mean of independent numbers; None where one's is unknown."""
    return combined_noise(parts, over=max(len(parts), 1))


def noise_of_one(others: Sequence[float]) -> SeedNoise | None:
    """The noise of a single run, from `others` of the same distribution; None below two."""
    sd = moments(others).sd if others else None
    return None if sd is None else SeedNoise(error=sd, freedom=len(others) - 1, n=1)


def noise_bound(
    ours: SeedNoise | None, theirs: SeedNoise | None, *, n_ours: float, n_theirs: float
) -> float | None:
    """What the difference of two numbers of one distribution exceeds in `ERROR_RATE` of cases.

    Welch's t where both spreads are known. Where one is, the other side's runs are taken to vary
    as much, and the bound is Student's. None where neither is known.
    """
    if ours is None and theirs is None:
        return None
    if ours is not None and theirs is not None:
        both = combined_noise([ours, theirs])
    else:
        known, n_other = (ours, n_theirs) if theirs is None else (theirs, n_ours)
        assert known is not None  # noqa: S101  # one of the two is
        both = replace(known, error=known.error * math.sqrt(1 + known.n / n_other))
    assert both is not None  # noqa: S101  # both parts are known
    return float(stdtrit(both.freedom, 1 - ERROR_RATE / 2)) * both.error


def same_spread(sd: float, other: float, *, n: int, n_other: int) -> bool:
    """Whether two sample SDs of n, n_other >= 2 normal values can be those of one distribution.

    The two-sided F test at `ERROR_RATE`, whose factor for five and five values is 3.1.
    """
    if sd == 0 or other == 0:
        return sd == other
    ratio = (sd / other) ** 2
    low, high = (fdtri(n - 1, n_other - 1, p) for p in (ERROR_RATE / 2, 1 - ERROR_RATE / 2))
    return bool(low <= ratio <= high)


def improvements(
    metric: Metric, *, baseline: Sequence[float], arm: Sequence[float]
) -> NDArray[np.float64]:
    """Paired differences (n,), positive where the arm is better: arm - baseline of AUC and GAUC,
    |baseline - 1| - |arm - 1| of PCOC, baseline - arm of the others.
    """
    return _vector(
        [goodness(metric, x) - goodness(metric, y) for x, y in zip(arm, baseline, strict=True)]
    )


def goodness(metric: Metric, value: float) -> float:
    """A number that rises as the metric gets better: for PCOC minus its distance from 1."""
    if metric == "pcoc":
        return -abs(value - 1)
    return value if metric in _RISING else -value


def difference_text(metric: Metric, *, arm: str, baseline: str) -> str:
    """What the difference of a metric is, in signs; positive where the arm is better."""
    if metric == "pcoc":
        return f"|{baseline} \N{MINUS SIGN} 1| \N{MINUS SIGN} |{arm} \N{MINUS SIGN} 1|"
    better, worse = (arm, baseline) if metric in _RISING else (baseline, arm)
    return f"{better} \N{MINUS SIGN} {worse}"


def tally(differences: ArrayLike) -> Tally:
    """Wins, ties and losses among oriented differences (n,)."""
    signs = np.sign(_vector(differences))
    return Tally(
        wins=int(np.sum(signs > 0)), ties=int(np.sum(signs == 0)), losses=int(np.sum(signs < 0))
    )


def smallest_p(differences: ArrayLike) -> float:
    """The smallest two-sided p of either test: 2 / 2^m with m pairs that are no ties.

    0.0625 at m = 5.
    """
    return min(1.0, 2.0 ** (1 - int(np.count_nonzero(_vector(differences)))))


def sign_test(differences: ArrayLike) -> float:
    """Exact two-sided p of the sign test; ties are left out.

    It tests whether the median is zero and assumes nothing else of the distribution.
    """
    count = tally(differences)
    n = count.wins + count.losses
    return _two_sided(sign_sums([1] * n), count.wins)


def wilcoxon(differences: ArrayLike) -> float:
    """Exact two-sided p of Wilcoxon's signed-rank test.

    Zeros are left out before ranking, equal magnitudes share their mean rank, and the distribution
    is that of all 2^m signs on these very ranks, so ties need no correction. It takes differences
    as symmetric about their median: where they are skewed, it rejects a median of zero too often.
    """
    array = _vector(differences)
    array = array[array != 0]
    magnitudes = np.abs(array)
    below = np.sum(magnitudes[None, :] < magnitudes[:, None], axis=1)
    equal = np.sum(magnitudes[None, :] == magnitudes[:, None], axis=1)
    # Twice the mean rank, below + (equal + 1) / 2, is a whole number: sums are then exact.
    doubled_ranks = 2 * below + equal + 1
    observed = int(np.sum(doubled_ranks[array > 0]))
    return _two_sided(sign_sums([int(rank) for rank in doubled_ranks]), observed)


def hodges_lehmann(differences: ArrayLike) -> float:
    """Median of the Walsh averages (d_i + d_j) / 2, i <= j, of differences (n,) with n >= 1."""
    array = _vector(differences)
    i, j = np.triu_indices(len(array))
    return float(np.median((array[i] + array[j]) / 2))


def probability_of_improvement(
    metric: Metric, *, baseline: Sequence[float], arm: Sequence[float]
) -> float | None:
    """Chance that a run of the arm beats a run of the baseline, over all n x m couples of runs.

    Ties count half; None without runs. It is not over pairs, since it answers for another seed.
    """
    couples = [(x, y) for x in arm for y in baseline]
    if not couples:
        return None
    differences = [goodness(metric, x) - goodness(metric, y) for x, y in couples]
    count = tally(differences)
    return (count.wins + count.ties / 2) / len(couples)


def correlation(baseline: Sequence[float], arm: Sequence[float]) -> float | None:
    """Pearson's r of the two arms' scores (n,) over seeds: what pairing gains.

    None below three pairs, where it says nothing, and where one arm does not vary.
    """
    x, y = _vector(baseline), _vector(arm)
    if len(x) < 3:
        return None
    x, y = x - np.mean(x), y - np.mean(y)
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else None


def chance_of_a_clean_sweep(pairs_per_cell: Sequence[int]) -> float:
    """Probability that at least one of independent cells is won in all its pairs by luck alone."""
    return 1 - math.prod(1 - 0.5**n_pairs for n_pairs in pairs_per_cell)


def sign_sums(weights: list[int]) -> list[int]:
    """How many of the 2^m subsets of `weights` (m,) sum to s, at index s; exact whole numbers."""
    ways = [1] + [0] * sum(weights)
    for weight in weights:
        for total in range(len(ways) - 1, weight - 1, -1):
            ways[total] += ways[total - weight]
    return ways


def _two_sided(ways: list[int], observed: int) -> float:
    tail = min(sum(ways[: observed + 1]), sum(ways[observed:]))
    return min(1.0, 2 * tail / sum(ways))


def t_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> SeedInterval | None:
    """Student's interval of the mean of values (n,); None for fewer than two.

    It takes the values, seeds of one comparison, as normally distributed; with three to five of
    them nothing could show that they are not, and a bootstrap would be far too narrow.
    """
    n = len(values)
    if n < 2:
        return None
    mean = float(np.mean(values))
    half = float(stdtrit(n - 1, (1 + confidence) / 2) * np.std(values, ddof=1) / math.sqrt(n))
    return SeedInterval(n=n, mean=mean, low=mean - half, high=mean + half, confidence=confidence)


def hodges_lehmann_interval(values: ArrayLike, *, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval that belongs to the Hodges-Lehmann estimate of values (m,), m >= 1.

    Its ends are Walsh averages, the k-th from either side, with the largest k whose two tails of
    the signed-rank distribution stay within 1 - confidence. For m = 5 the widest interval has
    0.9375. As the test, it takes the values as symmetric about their median.
    """
    array = _vector(values)
    i, j = np.triu_indices(len(array))
    ways = sign_sums(list(range(1, len(array) + 1)))
    return _order_interval((array[i] + array[j]) / 2, ways, confidence=confidence)


def sign_interval(values: ArrayLike, *, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of the median that belongs to the sign test of values (m,), m >= 1.

    Its ends are values, the k-th from either side; nothing is assumed of their distribution. For
    m = 13 it is from the third to the eleventh, with 0.978.
    """
    array = _vector(values)
    ways = [math.comb(len(array), wins) for wins in range(len(array) + 1)]
    return _order_interval(array, ways, confidence=confidence)


def skewness(values: ArrayLike) -> float | None:
    """Sample skewness of values (m,): their mean cubed deviation over the cube of their SD.

    Both moments have m in the denominator. None for fewer than three values and for equal ones.
    """
    array = _vector(values)
    if len(array) < 3:
        return None
    deviations = array - np.mean(array)
    largest = float(np.max(np.abs(deviations)))
    # Values that are equal but for their last digits have no shape either.
    if largest <= 1e-12 * float(np.max(np.abs(array))):
        return None
    deviations /= largest  # so that no power of them underflows
    return float(np.mean(deviations**3) / np.mean(deviations**2) ** 1.5)


def is_skewed(values: ArrayLike) -> bool:
    """Whether the sample skewness is beyond `SKEWED` on either side."""
    found = skewness(values)
    return found is not None and abs(found) > SKEWED


def _order_interval(points: ArrayLike, ways: Sequence[int], *, confidence: float) -> Interval:
    """The interval from the k-th smallest of the points to the k-th largest, with the largest k
    whose interval still has `confidence`; k is 1 where none has.

    `ways` (s,) has how many of the equally likely cases give the test statistic each value from 0;
    the interval leaves out the k lowest and the k highest values.
    """
    ordered = np.sort(_vector(points))
    total, tail, k = sum(ways), 0, 0
    while k < len(ways) // 2 and 2 * (tail + ways[k]) <= (1 - confidence) * total:
        tail += ways[k]
        k += 1
    if k == 0:
        k, tail = 1, ways[0]
    level = 1 - 2 * tail / total
    return Interval(low=float(ordered[k - 1]), high=float(ordered[-k]), confidence=level)


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


def equivalence(interval: Interval, *, margin: float) -> Equivalence:
    """Where a whole interval lies: beyond a margin > 0 on either side, inside it, or across.

    "too few" where its confidence is below CONFIDENCE: five values or fewer cannot have it.
    """
    if interval.confidence < CONFIDENCE:
        return "too few"
    if interval.low > margin:
        return "better"
    if interval.high < -margin:
        return "worse"
    if -margin < interval.low and interval.high < margin:
        return "equivalent"
    return "unclear"


def guarded_p(differences: ArrayLike) -> float:
    """Wilcoxon's p of differences (m,); where they are skewed, the sign test's if it is larger.

    Wilcoxon's test alone rejects a median of zero too often where differences are skewed.
    """
    p = wilcoxon(differences)
    return max(p, sign_test(differences)) if is_skewed(differences) else p


def guarded_equivalence(values: ArrayLike, *, margin: float) -> Equivalence:
    """`equivalence` of the Hodges-Lehmann interval of values (m,), m >= 1; where they are skewed,
    "unclear" unless the sign test's interval says the same.
    """
    found = equivalence(hodges_lehmann_interval(values), margin=margin)
    if is_skewed(values) and equivalence(sign_interval(values), margin=margin) != found:
        return "unclear"
    return found


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
