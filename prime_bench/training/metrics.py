"""AUC, group AUC, LogLoss and the bins of a calibration error, exact but for the last roundings.

The AUC counts (positive, negative) pairs of rows in halves: a pair in order is two halves, a tie is
one. All counts are integers, so that nothing is rounded before the last division.

Shapes: N rows, P of them positive.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from prime_bench.findings import CalibrationBin


def halves_in_order(positive: np.ndarray, scores: np.ndarray) -> int:
    """Count the halves of `positive` (N,) bool and `scores` (N,) without NaN."""
    if scores.dtype == np.float32 and scores.min() >= 0:
        return _of_packed(positive, scores)
    negatives, positives = np.sort(scores[~positive]), np.sort(scores[positive])
    # A positive beats `left` negatives and ties with `right - left`: together left + right halves.
    left = np.searchsorted(negatives, positives, side="left").sum(dtype=np.int64)
    right = np.searchsorted(negatives, positives, side="right").sum(dtype=np.int64)
    return int(left) + int(right)


def halves_in_order_on_device(positive: Tensor, scores: Tensor) -> int:
    """Count the halves of tensors on their device, waiting for it once."""
    negatives, positives = scores[~positive].sort().values, scores[positive].sort().values
    left = torch.searchsorted(negatives, positives, side="left").sum()
    right = torch.searchsorted(negatives, positives, side="right").sum()
    return int(left + right)


def _of_packed(positive: np.ndarray, scores: np.ndarray) -> int:
    """Count the halves of non-negative float32. Their bits have the order of their values, so score
    and label are packed into one uint32 and sorted together. The sign of -0.0 is shifted out.
    """
    return _halves_of(_sorted_keys(positive, scores))


def _sorted_keys(positive: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The keys (N,) uint32 of rows in rising order of score, of equal ones the negatives first."""
    keys = scores.view(np.uint32) << np.uint32(1)
    keys |= positive
    keys.sort()
    return keys


def _halves_of(keys: np.ndarray) -> int:
    """Count the halves of sorted keys."""
    at = np.flatnonzero(keys & 1)  # (P,)
    # The i-th positive has at[i] - i negatives before it, including those that tie with it.
    before = int(at.sum()) - len(at) * (len(at) - 1) // 2
    # A tie has its last negative directly before its first positive, whose key is one more.
    at = at[at > 0]
    first = keys[at][keys[at - 1] + 1 == keys[at]]
    start, middle = np.searchsorted(keys, first - 1), np.searchsorted(keys, first)
    end = np.searchsorted(keys, first, side="right")
    return 2 * before - int(((middle - start) * (end - middle)).sum())


# scikit-learn's clip: a probability that is exactly 0 or 1, and wrong, costs about 36 nats.
_EPSILON = float(np.finfo(np.float64).eps)


class UndefinedMetric(ValueError):
    """The metric is undefined on these rows; the message gives the reason."""


def auc(labels: ArrayLike, scores: ArrayLike | Tensor) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs in order, a tie counting as
    half. The only rounding is that of the last division.

    Args:
        labels: (N,) of 0 and 1.
        scores: (N,) of any real type, compared without conversion. Scores on a GPU are counted
            there.

    Raises:
        UndefinedMetric: No rows, different lengths, NaN, other labels, or rows of one class only.
    """
    positive, values = _checked(labels, scores)
    if isinstance(values, Tensor):
        halves = halves_in_order_on_device(positive, values)
    else:
        halves = halves_in_order(positive, values)
    n_positives = int(positive.sum())
    return halves / (2 * n_positives * (len(values) - n_positives))


def logloss(labels: ArrayLike, probabilities: ArrayLike | Tensor) -> float:
    """Mean cross-entropy in nats, computed in float64.

    Args:
        labels: (N,) of 0 and 1.
        probabilities: (N,) in [0, 1], clipped to [eps, 1 - eps] of float64 as in scikit-learn.

    Raises:
        UndefinedMetric: As in `auc`, and for a probability out of range.
    """
    positive, values = _checked(labels, probabilities)
    _check_range(values)
    if isinstance(values, Tensor):
        wide = values.to(torch.float64)
        wide = torch.where(positive, wide, 1.0 - wide)
        return -float(wide.clamp_(_EPSILON, 1 - _EPSILON).log_().mean())
    likelihood = values.astype(np.float64)
    np.subtract(1.0, likelihood, out=likelihood, where=~positive)
    return -float(np.log(np.clip(likelihood, _EPSILON, 1 - _EPSILON)).mean())


class Ranking:
    """Rows sorted by their probability once, for the AUC and for bins of any number."""

    def __init__(self, labels: ArrayLike, probabilities: ArrayLike | Tensor) -> None:
        """Sort the rows.

        Args:
            labels: (N,) of 0 and 1.
            probabilities: (N,) in [0, 1], taken as float32, as `predictions.npz` keeps them. Those
                on a GPU are sorted there.

        Raises:
            UndefinedMetric: As in `logloss`.
        """
        positive, values = _checked(labels, probabilities)
        _check_range(values)
        if isinstance(values, Tensor):
            self._keys = _sorted_on_device(_packed_on_device(positive, values)).astype(np.uint32)
        else:
            self._keys = _sorted_keys(positive, values.astype(np.float32))

    @property
    def auc(self) -> float:
        """As `auc` gives it."""
        n_rows, n_positives = len(self._keys), int((self._keys & 1).sum(dtype=np.int64))
        return _halves_of(self._keys) / (2 * n_positives * (n_rows - n_positives))

    def bins(self, n: int = 10) -> list[CalibrationBin]:
        """Cut the rows into `n` bins of equally many, by rising probability.

        Rows i = 0 ... N - 1 in the order of their probability are in bin floor(n i / N), and rows
        of equal probability all in the bin of the first of them, so that the order of the file does
        not count. A bin that has no row then is left out.
        """
        keys, n_rows = self._keys, len(self._keys)
        cuts = [0]
        for number in range(1, n):
            cut = -(-number * n_rows // n)
            # The label is the last bit: the highest key of equal probabilities has it set.
            cuts.append(int(np.searchsorted(keys, keys[cut - 1] | 1, side="right")) if cut else 0)
        parts = [keys[a:b] for a, b in zip(cuts, [*cuts[1:], n_rows], strict=True) if a < b]
        return [
            CalibrationBin(
                rows=len(part),
                clicks=int((part & 1).sum(dtype=np.int64)),
                predicted=float((part >> np.uint32(1)).view(np.float32).sum(dtype=np.float64)),
            )
            for part in parts
        ]


@dataclass(frozen=True, kw_only=True)
class GroupedAuc:
    """The AUC within groups of rows."""

    mean: float | None
    """The mean AUC of the groups with both classes, weighted by rows; None without such a group."""
    groups: int
    """Groups with both classes."""
    rows: int
    """Their rows."""
    one_class_groups: int
    """Groups that are left out."""
    one_class_rows: int
    """Their rows."""
    rows_without_group: int
    """Rows of group 0, which is none."""


def group_auc(
    labels: ArrayLike, probabilities: ArrayLike | Tensor, groups: ArrayLike
) -> GroupedAuc:
    """Group AUC: sum over groups g of n_g AUC_g / sum of n_g, with the n_g rows (impressions) of g.

    Groups with one class have no AUC, and are left out of both sums. Zhu et al., Deep Interest
    Network for Click-Through Rate Prediction (KDD 2018), Sec. 6.2, after Zhu et al. (KDD 2017).
    Pairs of rows are counted as in `auc`; each AUC_g is rounded once, and then the sum.

    Args:
        labels: (N,) of 0 and 1.
        probabilities: (N,) in [0, 1], taken as float32.
        groups: (N,) whole numbers of at most 31 bits, 0 for rows without a group.

    Raises:
        UndefinedMetric: As in `logloss`.
    """
    positive, values = _checked(labels, probabilities)
    _check_range(values)
    of_rows = np.asarray(groups)
    if of_rows.shape != tuple(positive.shape):
        raise UndefinedMetric(f"groups have shape {of_rows.shape}, labels {tuple(positive.shape)}")
    n_rows, keys = len(of_rows), _sorted_by_group(positive, values, of_rows)
    keys = keys[np.searchsorted(keys, np.uint64(1 << 32)) :]
    without, n_grouped = n_rows - len(keys), len(keys)
    starts = np.flatnonzero(np.diff(keys >> np.uint64(32), prepend=np.uint64(0)))  # (G,)
    sizes = np.diff(starts, append=n_grouped)
    at = np.flatnonzero(keys & np.uint64(1))  # (P,)
    # Positives before each group, and from this the positives and the negatives of each.
    earlier = np.searchsorted(at, starts)
    positives = np.diff(earlier, append=len(at))
    negatives = sizes - positives
    # The i-th positive has at[i] - i negatives before it, less those of earlier groups.
    before = at - np.arange(len(at)) - np.repeat(starts - earlier, positives)
    halves = 2 * _sums(before, earlier, positives)
    # A tie: its last negative is directly before its first positive, whose key is one more.
    tied = at[at > 0]
    tied = tied[keys[tied - 1] + np.uint64(1) == keys[tied]]
    start = np.searchsorted(keys, keys[tied] - np.uint64(1))
    end = np.searchsorted(keys, keys[tied], side="right")
    of_tie = np.searchsorted(starts, tied, side="right") - 1
    np.subtract.at(halves, of_tie, (tied - start) * (end - tied))
    both = (positives > 0) & (negatives > 0)
    aucs = halves[both] / (2 * positives[both] * negatives[both])
    rows = int(sizes[both].sum())
    return GroupedAuc(
        mean=float((aucs * sizes[both]).sum() / rows) if rows else None,
        groups=int(both.sum()),
        rows=rows,
        one_class_groups=int((~both).sum()),
        one_class_rows=n_grouped - rows,
        rows_without_group=without,
    )


def _sorted_by_group(positive: Any, values: Any, groups: np.ndarray) -> np.ndarray:
    """The keys (N,) uint64 of rows in rising order of group, then as in `_sorted_keys`."""
    if isinstance(values, Tensor):
        packed = _packed_on_device(positive, values)
        packed |= torch.from_numpy(np.array(groups, dtype=np.int64)).to(values.device) << 32
        return _sorted_on_device(packed)
    keys: np.ndarray = groups.astype(np.uint64) << np.uint64(32)
    keys |= values.astype(np.float32).view(np.uint32) << np.uint32(1)
    keys |= positive
    keys.sort()
    return keys


def _sums(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The sums (G,) int64 of consecutive parts of the values (P,); a part may be empty."""
    total = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values, dtype=np.int64)])
    sums: np.ndarray = total[starts + sizes] - total[starts]
    return sums


def _packed_on_device(positive: Tensor, values: Tensor) -> Tensor:
    """Keys (N,) int64 as in `_of_packed`."""
    # Zero is added since -0.0 + 0.0 is 0.0: the sign of zero would be a bit of the key.
    bits = (values.to(torch.float32) + 0.0).view(torch.int32).to(torch.int64)
    return (bits << 1) | positive


def _sorted_on_device(keys: Tensor) -> np.ndarray:
    """Sort keys (N,) int64 on their device, and copy them to the host as uint64."""
    return keys.sort().values.cpu().numpy().view(np.uint64)


def _check_range(values: np.ndarray | Tensor) -> None:
    lowest, highest = values.min(), values.max()
    if lowest < 0 or highest > 1:
        raise UndefinedMetric(
            f"probabilities reach from {float(lowest)} to {float(highest)}, not within [0, 1]"
        )


def _checked(labels: Any, scores: Any) -> tuple[Any, Any]:
    """Check the input. Returns which rows are positive (N,) bool and the scores (N,), as arrays or
    as tensors on a GPU.
    """
    truth: Any = np.asarray(labels)
    values: Any = scores
    if isinstance(scores, Tensor) and scores.is_cuda:
        truth = torch.from_numpy(np.array(truth)).to(scores.device)
    else:
        values = np.asarray(scores)
    if truth.ndim != 1 or truth.shape != values.shape:
        raise UndefinedMetric(
            f"labels have shape {tuple(truth.shape)}, scores {tuple(values.shape)}: expected one"
            " score a label"
        )
    if len(truth) == 0:
        raise UndefinedMetric("there are no rows")
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fiub":
        raise UndefinedMetric(f"scores are {values.dtype}, not real numbers")
    # NaN differs from itself, in arrays and in tensors.
    if n_nan := int((values != values).sum()):
        raise UndefinedMetric(f"{n_nan} of {len(values)} scores are not a number")
    positive = truth == 1
    if not (positive | (truth == 0)).all():
        raise UndefinedMetric("labels are not all 0 or 1")
    if positive.all() or not positive.any():
        raise UndefinedMetric(f"all {len(truth)} labels are {int(positive[0])}: one class only")
    return positive, values
