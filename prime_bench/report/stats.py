"""Statistics of paired runs: pure functions of arrays, in float64.

Shapes: n pairs (seeds) of one cell; a difference is always oriented, so positive favours the arm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Metric = Literal["auc", "logloss"]
METRICS: tuple[Metric, ...] = ("auc", "logloss")
METRIC_LABELS: dict[Metric, str] = {"auc": "AUC", "logloss": "LogLoss"}


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean and sample standard deviation of n values."""

    n: int
    mean: float
    sd: float | None
    """With n - 1 in the denominator; None for a single value: its spread is unknown, not zero."""

    @property
    def error(self) -> float | None:
        """Standard deviation of the mean of n such values; None where the spread is unknown."""
        return None if self.sd is None else self.sd / math.sqrt(self.n)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many pairs the arm won, tied and lost; compared raw, never as printed."""

    wins: int
    ties: int
    losses: int


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


def error_of_mean(errors: Sequence[float | None]) -> float | None:
    """Standard deviation of the mean of independent numbers from theirs; None where one is None."""
    known = [error for error in errors if error is not None]
    if not known or len(known) < len(errors):
        return None
    return math.sqrt(sum(error**2 for error in known)) / len(known)


def improvements(
    metric: Metric, *, baseline: Sequence[float], arm: Sequence[float]
) -> NDArray[np.float64]:
    """Paired differences (n,): AUC arm - baseline, LogLoss baseline - arm; positive is better."""
    better, worse = (arm, baseline) if metric == "auc" else (baseline, arm)
    return _vector([x - y for x, y in zip(better, worse, strict=True)])


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
    """Exact two-sided p of the sign test; ties are left out."""
    count = tally(differences)
    n = count.wins + count.losses
    return _two_sided(sign_sums([1] * n), count.wins)


def wilcoxon(differences: ArrayLike) -> float:
    """Exact two-sided p of Wilcoxon's signed-rank test.

    Zeros are left out before ranking, equal magnitudes share their mean rank, and the distribution
    is that of all 2^m signs on these very ranks, so ties need no correction.
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

    Ties count half; None without runs. Not over pairs: it answers for a seed drawn anew.
    """
    couples = [(x, y) for x in arm for y in baseline]
    if not couples:
        return None
    differences = [x - y if metric == "auc" else y - x for x, y in couples]
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
    """At index s: how many of the 2^m subsets of `weights` sum to s, as exact whole numbers."""
    ways = [1] + [0] * sum(weights)
    for weight in weights:
        for total in range(len(ways) - 1, weight - 1, -1):
            ways[total] += ways[total - weight]
    return ways


def _two_sided(ways: list[int], observed: int) -> float:
    tail = min(sum(ways[: observed + 1]), sum(ways[observed:]))
    return min(1.0, 2 * tail / sum(ways))


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
