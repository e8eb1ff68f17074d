"""AUC and LogLoss, exact and over all rows of a split at once."""

import numpy as np
from numpy.typing import ArrayLike

# scikit-learn's clip: a probability that is exactly 0 or 1, and wrong, costs about 36 nats.
_EPSILON = float(np.finfo(np.float64).eps)


class UndefinedMetric(ValueError):
    """The metric has no value on these rows; the message says why."""


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve: the share of (positive, negative) pairs in order, a tie being half.

    `labels` (N,) of 0 and 1, `scores` (N,) of any real type, compared as they are. Pairs are
    counted in integers, so the only rounding is that of the last division. Raises UndefinedMetric
    for no rows, other lengths, NaN, other labels, or rows of one class.
    """
    positive, values = _checked(labels, scores)
    negatives, positives = np.sort(values[~positive]), np.sort(values[positive])
    # A positive beats `left` negatives and ties with `right - left`: together left + right halves.
    left = int(np.searchsorted(negatives, positives, side="left").sum(dtype=np.int64))
    right = int(np.searchsorted(negatives, positives, side="right").sum(dtype=np.int64))
    return (left + right) / (2 * len(negatives) * len(positives))


def logloss(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Mean cross-entropy in nats, in float64.

    `labels` (N,) of 0 and 1, `probabilities` (N,) in [0, 1], clipped to [eps, 1 - eps] of float64
    as scikit-learn does. Raises UndefinedMetric as `auc` does, and for a number out of range.
    """
    positive, values = _checked(labels, probabilities)
    if values.min() < 0 or values.max() > 1:
        raise UndefinedMetric(
            f"probabilities reach from {values.min()} to {values.max()}, not within [0, 1]"
        )
    right = values.astype(np.float64)
    np.subtract(1.0, right, out=right, where=~positive)
    return float(-np.log(np.clip(right, _EPSILON, 1 - _EPSILON)).mean())


def _checked(labels: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are positive (N,) bool, and the scores (N,)."""
    truth, values = np.asarray(labels), np.asarray(scores)
    if truth.ndim != 1 or truth.shape != values.shape:
        raise UndefinedMetric(
            f"labels have shape {truth.shape}, scores {values.shape}: expected one score a label"
        )
    if len(truth) == 0:
        raise UndefinedMetric("there are no rows")
    if values.dtype.kind not in "fiub":
        raise UndefinedMetric(f"scores are {values.dtype}, not real numbers")
    if n_nan := int(np.isnan(values).sum()):
        raise UndefinedMetric(f"{n_nan} of {len(values)} scores are not a number")
    positive = truth == 1
    if not np.all(positive | (truth == 0)):
        raise UndefinedMetric("labels are not all 0 or 1")
    if positive.all() or not positive.any():
        raise UndefinedMetric(f"all {len(truth)} labels are {int(positive[0])}: one class only")
    return positive, values
