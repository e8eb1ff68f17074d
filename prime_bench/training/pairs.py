"""How many (positive, negative) pairs of rows are in order, counted in halves: an ordered pair is
two, a tie is one. Everything is an integer, so nothing is rounded.

Shapes: N rows, P of them positive.
"""

import numpy as np
import torch
from torch import Tensor


def halves_in_order(positive: np.ndarray, scores: np.ndarray) -> int:
    """`positive` (N,) bool, `scores` (N,) without NaN, compared as they are."""
    if scores.dtype == np.float32 and scores.min() >= 0:
        return _of_packed(positive, scores)
    negatives, positives = np.sort(scores[~positive]), np.sort(scores[positive])
    # A positive beats `left` negatives and ties with `right - left`: together left + right halves.
    left = np.searchsorted(negatives, positives, side="left").sum(dtype=np.int64)
    right = np.searchsorted(negatives, positives, side="right").sum(dtype=np.int64)
    return int(left) + int(right)


def halves_in_order_on_device(positive: Tensor, scores: Tensor) -> int:
    """The same of tensors, counted where they are; the device is waited for once."""
    negatives, positives = scores[~positive].sort().values, scores[positive].sort().values
    left = torch.searchsorted(negatives, positives, side="left").sum()
    right = torch.searchsorted(negatives, positives, side="right").sum()
    return int(left + right)


def _of_packed(positive: np.ndarray, scores: np.ndarray) -> int:
    """For float32 without a sign: their bits are in the order of their values, so bits and label
    fit into one uint32, and one sort of those does. The sign of -0.0 is shifted out.
    """
    keys = scores.view(np.uint32) << np.uint32(1)
    keys |= positive
    keys.sort()
    at = np.flatnonzero(keys & 1)  # (P,)
    # The i-th positive has at[i] - i negatives before it, those that tie with it included.
    before = int(at.sum()) - len(at) * (len(at) - 1) // 2
    # A tie has its last negative directly before its first positive, whose key is one more.
    at = at[at > 0]
    first = keys[at][keys[at - 1] + 1 == keys[at]]
    start, middle = np.searchsorted(keys, first - 1), np.searchsorted(keys, first)
    end = np.searchsorted(keys, first, side="right")
    return 2 * before - int(((middle - start) * (end - middle)).sum())
