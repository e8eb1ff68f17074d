"""The AUC and LogLoss of the true probabilities, which no model can beat but by luck."""

import numpy as np

from prime_bench.data.chunk import SPLITS
from prime_bench.data.manifest import BestPossible

HISTOGRAM_BINS = 1 << 16
"""Bins of [0, 1], so that memory does not grow with the rows. Two rows of one bin count as half a
pair each way, which is wrong by half their difference in probability. So the AUC's error is below
n^2 / (4 * bins * clicked * other), with `clicked` the sum of the probabilities: 3e-5 at a click
rate of 0.17 if all rows fell into one bin, and about 1e-9 for rows as they are."""


class BestCounter:
    """Takes true probabilities block by block; the order of the blocks is the order of the sums."""

    def __init__(self) -> None:
        self._clicked = np.zeros((len(SPLITS), HISTOGRAM_BINS))
        self._rows = np.zeros((len(SPLITS), HISTOGRAM_BINS), np.int64)
        self._variance = np.zeros(len(SPLITS))
        self._entropy = np.zeros(len(SPLITS))

    def add(self, probabilities: np.ndarray, split: np.ndarray) -> None:
        """Count n rows: probabilities (n,) float64 in (0, 1), split (n,) index into SPLITS."""
        for index in range(len(SPLITS)):
            p = probabilities[split == index]
            bins = np.minimum((p * HISTOGRAM_BINS).astype(np.int64), HISTOGRAM_BINS - 1)
            self._clicked[index] += np.bincount(bins, weights=p, minlength=HISTOGRAM_BINS)
            self._rows[index] += np.bincount(bins, minlength=HISTOGRAM_BINS)
            self._variance[index] += np.sum(p * (1 - p))
            self._entropy[index] -= np.sum(p * np.log(p) + (1 - p) * np.log1p(-p))

    def result(self) -> dict[str, BestPossible]:
        """By split, of those with two rows or more.

        `auc` is E[pairs in the right order, ties half] / E[pairs of a clicked and another row],
        `logloss` the mean binary entropy in nats, both over labels drawn anew for the same rows.
        """
        return {
            name: self._best(index)
            for index, name in enumerate(SPLITS)
            if self._rows[index].sum() > 1
        }

    def _best(self, index: int) -> BestPossible:
        clicked, rows = self._clicked[index], self._rows[index]
        other = rows - clicked
        below = np.cumsum(other) - other
        # A row makes no pair with itself, so its p (1 - p) leaves the tied half and the pairs.
        ordered = float(np.sum(clicked * (below + other / 2))) - float(self._variance[index]) / 2
        pairs = float(clicked.sum() * other.sum()) - float(self._variance[index])
        return BestPossible(
            auc=ordered / pairs, logloss=float(self._entropy[index]) / int(rows.sum())
        )
