"""The rows of a synthetic click log, and the metrics of their true click probabilities.

Shapes: n rows, C categorical and K numeric fields.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from prime_bench.data.card import CardColumn
from prime_bench.data.manifest import SPLIT_NAMES, BestPossible
from prime_bench.data.stages import Chunk
from prime_bench.data.synthetic.fields import SHAPES, Sampler, random_words, uniforms
from prime_bench.data.synthetic.response import PlantedResponse
from prime_bench.settings.data import SyntheticSettings

BLOCK_ROWS = 16_384
"""Rows of a block. A block is also a day, so that the log is in the order of time."""
CALIBRATION_BLOCKS = 4
TRAIN_SHARE, VALID_SHARE = 0.8, 0.1
HISTOGRAM_BINS = 1 << 16
"""Bins of [0, 1] in which probabilities are counted, so that memory does not grow with the rows.
Two rows in the same bin count as tied, which is wrong by at most half their difference in
probability. The error of the AUC is below n^2 / (4 * bins * clicked * other), where `clicked` is
the sum of the probabilities and `other` = n - `clicked`: 3e-5 at a click rate of 0.17 if all rows
were in one bin, and about 1e-9 for the rows of this log."""
# Relative traffic of the hours of a day, 0 to 23.
_HOURLY_TRAFFIC = (2, 2, 3, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 7, 6, 6, 6, 6, 5, 4, 3, 3, 3, 2)


@dataclass(frozen=True, kw_only=True)
class SyntheticBlock:
    """n rows before their values are written as text; fields in schema order."""

    codes: np.ndarray
    """(C, n) uint32; 0 is the most frequent (or the missing) value of a field."""
    numerics: np.ndarray
    """(n, K) float64, NaN where missing."""
    probabilities: np.ndarray
    """(n,) float64, the true click probability."""
    labels: np.ndarray
    """(n,) uint8."""
    split: np.ndarray
    """(n,) uint8, index into SPLIT_NAMES."""


class SyntheticLog:
    """The log that `settings` describe, generated block by block; holds a few MB and no rows."""

    def __init__(self, settings: SyntheticSettings) -> None:
        self.settings = settings
        self.shape = SHAPES[settings.shape]
        self.response = PlantedResponse(self.shape, strength=settings.strength, seed=settings.seed)
        self._numeric = [Sampler(field.quantiles()) for field in self.shape.numeric]
        self._categorical = [Sampler(field.quantiles()) for field in self.shape.categorical]
        sample = [self._features(f"calibration/{index}") for index in range(CALIBRATION_BLOCKS)]
        self.response.calibrate(np.concatenate([self.response.scores(*rows) for rows in sample]))

    def blocks(self) -> Iterator[SyntheticBlock]:
        """Yield all blocks in order; the last one may be shorter."""
        for index in range(-(-self.settings.rows // BLOCK_ROWS)):
            yield self.block(index, n=min(BLOCK_ROWS, self.settings.rows - index * BLOCK_ROWS))

    def block(self, index: int, *, n: int = BLOCK_ROWS) -> SyntheticBlock:
        """The first n rows of block `index`."""
        seed = self.settings.seed
        codes, numerics = self._features(f"rows/{index}")
        codes, numerics = codes[:, :n], numerics[:n]
        probabilities = self.response.probabilities(codes, numerics)
        clicks = uniforms(random_words(seed, f"synthetic/labels/{index}", BLOCK_ROWS)[:n])
        splits = uniforms(random_words(seed, f"synthetic/split/{index}", BLOCK_ROWS)[:n])
        split = (splits >= TRAIN_SHARE).astype(np.uint8) + (splits >= TRAIN_SHARE + VALID_SHARE)
        return SyntheticBlock(
            codes=codes,
            numerics=numerics,
            probabilities=probabilities,
            labels=(clicks < probabilities).astype(np.uint8),
            split=split.astype(np.uint8),
        )

    def texts(self, codes: np.ndarray) -> pl.DataFrame:
        """Codes (C, n) as texts, a column for each field; a missing value is the empty text."""
        fields = self.shape.categorical
        return pl.DataFrame([field.write(row) for field, row in zip(fields, codes, strict=True)])

    def _features(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Draw codes (C, BLOCK_ROWS) and numerics (BLOCK_ROWS, K) from the random stream `name`."""
        n_words = (2 * len(self._numeric) + len(self._categorical)) * BLOCK_ROWS
        # Each word of 64 bits serves two draws, low half first on every machine.
        words = random_words(self.settings.seed, f"synthetic/{name}", n_words // 2)
        draws = iter(words.astype("<u8").view("<u4").reshape(-1, BLOCK_ROWS))
        codes = np.empty((len(self._categorical), BLOCK_ROWS), np.uint32)
        for row, sampler in enumerate(self._categorical):
            drawn = sampler.draw(next(draws))
            is_hour = self.shape.categorical[row].style == "hour"
            codes[row] = _hours_of_a_day() if is_hour else drawn
        numerics = np.empty((BLOCK_ROWS, len(self._numeric)))
        for column, sampler in enumerate(self._numeric):
            field = self.shape.numeric[column]
            numerics[:, column] = sampler.draw(next(draws)).astype(np.float64) + field.minimum
            missing = next(draws) < np.uint32(field.missing_share * 2**32)
            numerics[missing, column] = np.nan
        return codes, numerics


def _hours_of_a_day() -> np.ndarray:
    """The hour (BLOCK_ROWS,) uint32 of each row of a block, in rising order."""
    last = np.cumsum(_HOURLY_TRAFFIC) * BLOCK_ROWS // sum(_HOURLY_TRAFFIC)
    return np.searchsorted(last, np.arange(BLOCK_ROWS), side="right").astype(np.uint32)


class BestCounter:
    """Computes the AUC and LogLoss of the true probabilities, block by block.

    No model can do better in expectation. Sums run in the order of the blocks, so the same blocks
    give the same bits.
    """

    def __init__(self) -> None:
        self._clicked = np.zeros((len(SPLIT_NAMES), HISTOGRAM_BINS))
        self._rows = np.zeros((len(SPLIT_NAMES), HISTOGRAM_BINS), np.int64)
        self._variance = np.zeros(len(SPLIT_NAMES))
        self._entropy = np.zeros(len(SPLIT_NAMES))

    def add(self, probabilities: np.ndarray, split: np.ndarray) -> None:
        """Add n rows: probabilities (n,) float64 in (0, 1), split (n,) index into SPLIT_NAMES."""
        for index in range(len(SPLIT_NAMES)):
            p = probabilities[split == index]
            bins = np.minimum((p * HISTOGRAM_BINS).astype(np.int64), HISTOGRAM_BINS - 1)
            self._clicked[index] += np.bincount(bins, weights=p, minlength=HISTOGRAM_BINS)
            self._rows[index] += np.bincount(bins, minlength=HISTOGRAM_BINS)
            self._variance[index] += np.sum(p * (1 - p))
            self._entropy[index] -= np.sum(p * np.log(p) + (1 - p) * np.log1p(-p))

    def result(self) -> dict[str, BestPossible]:
        """Split -> metrics, for splits with at least two rows.

        The expectations are over labels drawn independently for the same rows: `auc` is E[pairs in
        the right order, ties count half] / E[pairs of a clicked and another row], `logloss` the
        mean binary entropy in nats.
        """
        return {
            name: self._best(index)
            for index, name in enumerate(SPLIT_NAMES)
            if self._rows[index].sum() > 1
        }

    def _best(self, index: int) -> BestPossible:
        clicked, rows = self._clicked[index], self._rows[index]
        other = rows - clicked
        below = np.cumsum(other) - other
        # A row is no pair with itself, so p (1 - p) of each row is subtracted from both sums.
        ordered = float(np.sum(clicked * (below + other / 2))) - float(self._variance[index]) / 2
        pairs = float(clicked.sum() * other.sum()) - float(self._variance[index])
        return BestPossible(
            auc=ordered / pairs, logloss=float(self._entropy[index]) / int(rows.sum())
        )


def columns(settings: SyntheticSettings) -> list[CardColumn]:
    """The fields in schema order: numeric ones first, as in Criteo_x4."""
    shape = SHAPES[settings.shape]
    numeric = [CardColumn(name=field.name, role="numeric") for field in shape.numeric]
    return numeric + [
        CardColumn(name=field.name, role="categorical", semantic=field.semantic)
        for field in shape.categorical
    ]


def chunks(settings: SyntheticSettings, *, best: BestCounter | None = None) -> Iterator[Chunk]:
    """Yield all rows in order, a chunk for each block, and add their probabilities to `best`."""
    log = SyntheticLog(settings)
    for block in log.blocks():
        if best is not None:
            best.add(block.probabilities, block.split)
        yield Chunk(
            categories=log.texts(block.codes),
            numerics=block.numerics,
            labels=block.labels,
            split=block.split,
        )
