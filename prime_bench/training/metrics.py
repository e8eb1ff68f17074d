"""AUC and LogLoss, exact but for the last rounding.

The AUC counts (positive, negative) pairs of rows in halves: a pair in order is two halves, a tie is
one. All counts are integers, so that nothing is rounded before the last division.

Shapes: N rows, P of them positive.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


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
    keys = scores.view(np.uint32) << np.uint32(1)
    keys |= positive
    keys.sort()
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
    lowest, highest = values.min(), values.max()
    if lowest < 0 or highest > 1:
        raise UndefinedMetric(
            f"probabilities reach from {float(lowest)} to {float(highest)}, not within [0, 1]"
        )
    if isinstance(values, Tensor):
        wide = values.to(torch.float64)
        wide = torch.where(positive, wide, 1.0 - wide)
        return -float(wide.clamp_(_EPSILON, 1 - _EPSILON).log_().mean())
    likelihood = values.astype(np.float64)
    np.subtract(1.0, likelihood, out=likelihood, where=~positive)
    return -float(np.log(np.clip(likelihood, _EPSILON, 1 - _EPSILON)).mean())


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
