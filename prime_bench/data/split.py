"""Assign rows to splits: by a hash of bytes, by time or order, or by stratified folds."""

from collections.abc import Mapping, Sequence

import numpy as np

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.streams import derive
from prime_bench.base.words import counted

_PIECE_BYTES = 1 << 18
_MOST_FOLDS = 127  # the largest number in int8
_EVEN = np.uint64(0x9E3779B97F4A7C15)


def mix(words: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 on (n,) uint64, a bijection.

    Each input bit changes each output bit with probability about 1/2.
    """
    mixed: np.ndarray = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


class RowHash:
    """A seeded 64-bit hash of lines.

    It is defined here so that no version of a library can move a row to another split.
    """

    def __init__(self, seed: int) -> None:
        self._start = np.uint64(derive(seed, "split"))
        self._multipliers = self._first_multipliers(1 << 10)

    def _first_multipliers(self, n_positions: int) -> np.ndarray:
        return mix(self._start + np.arange(1, n_positions + 1, dtype=np.uint64) * _EVEN)

    def __call__(self, text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Hash n adjacent lines text[starts[i] : ends[i] + 1] of `text` (bytes,) uint8.

        Returns (n,) uint64. The hash of a line is mix(sum of byte_j * multiplier_j) over its bytes,
        line feed included, where multiplier_j is random and depends on the position j alone.
        """
        longest = int((ends - starts).max(initial=0)) + 1
        if longest > len(self._multipliers):
            self._multipliers = self._first_multipliers(2 * longest)
        hashes = np.empty(len(starts), dtype=np.uint64)
        # In pieces of whole lines that fit into the cache.
        first = 0
        while first < len(starts):
            last = int(np.searchsorted(starts, starts[first] + _PIECE_BYTES, side="right"))
            hashes[first:last] = self._piece(text, starts[first:last], ends[last - 1] + 1)
            first = last
        return hashes

    def _piece(self, text: np.ndarray, starts: np.ndarray, end: int) -> np.ndarray:
        local = starts - starts[0]
        lengths = np.diff(local, append=end - starts[0])
        position = np.arange(end - starts[0]) - np.repeat(local, lengths)
        products = np.take(self._multipliers, position, mode="clip")
        products *= text[starts[0] : end]
        return mix(np.add.reduceat(products, local))


def split_by_hash(hashes: np.ndarray, fractions: Sequence[float]) -> np.ndarray:
    """The split (n,) uint8 of rows with (n,) uint64 hashes.

    The upper 53 bits of a hash are read as a number in [0, 1) and compared with the cumulated
    `fractions` of train, valid and test.
    """
    train, valid, _ = fractions
    cuts = [int(train * 2**53), int((train + valid) * 2**53)]
    return np.searchsorted(
        np.array(cuts, dtype=np.uint64), hashes >> np.uint64(11), side="right"
    ).astype(np.uint8)


def split_by_time(rows_at: Mapping[int, int], fractions: Sequence[float]) -> dict[int, int]:
    """Assign each time to a split: train first, then valid, then test.

    `rows_at` is time -> number of rows. The cuts are where the number of earlier rows is nearest to
    the cumulated `fractions`; each split gets at least one time. Raises DataError for fewer than 3
    times.
    """
    times = sorted(rows_at)
    if len(times) < 3:
        raise DataError(
            f"a split by time needs at least 3 distinct times, the file has {len(times)}",
            hint="use --split hash",
        )
    before = np.concatenate([[0], np.cumsum([rows_at[time] for time in times])])
    shares = np.cumsum(fractions)[:2] * before[-1]
    # Each split keeps at least one time.
    first = 1 + int(np.argmin(np.abs(before[1 : len(times) - 1] - shares[0])))
    second = first + 1 + int(np.argmin(np.abs(before[first + 1 : len(times)] - shares[1])))
    return {time: int(i >= first) + int(i >= second) for i, time in enumerate(times)}


class TimeCounts:
    """Rows, and missing values of F fields, at each time, in bounded memory.

    Times are integers, such as microseconds or numbers of rows. Where there are more distinct ones
    than `MOST`, neighbours are joined: a time is `time >> shift`, with the smallest shift that is
    sufficient, which does not depend on the order of the rows.
    """

    MOST = 1 << 16

    def __init__(self, *, n_fields: int) -> None:
        self.shift = 0
        self.times: np.ndarray = np.empty(0, dtype=np.int64)
        """(T,) sorted."""
        self.rows: np.ndarray = np.empty(0, dtype=np.int64)
        """(T,): rows at each time."""
        self.missing: np.ndarray = np.empty((0, n_fields), dtype=np.int64)
        """(T, F): rows without a value at each time."""

    def add(self, times: np.ndarray, missing: np.ndarray) -> None:
        """Count n rows: `times` (n,) int64, `missing` (F, n) bool."""
        times = times >> self.shift
        own, rows = np.unique(times, return_counts=True)
        if len(own) == 1:
            counts = np.count_nonzero(missing, axis=1)[None]
        else:
            order = np.argsort(times, kind="stable")
            starts = np.cumsum(rows) - rows
            counts = np.add.reduceat(missing[:, order], starts, axis=1, dtype=np.int64).T
        places = np.asarray(self.times.searchsorted(own))
        places[places == len(self.times)] = 0
        if len(self.times) and (self.times[places] == own).all():
            self.rows[places] += rows
            self.missing[places] += counts
            return
        self._join(
            np.concatenate([self.times, own]),
            np.concatenate([self.rows, rows]),
            np.concatenate([self.missing, counts]),
        )
        while len(self.times) > self.MOST:
            self.shift += 1
            self._join(self.times >> 1, self.rows, self.missing)

    def _join(self, times: np.ndarray, rows: np.ndarray, missing: np.ndarray) -> None:
        order = np.argsort(times, kind="stable")
        self.times, starts = np.unique(times[order], return_index=True)
        self.rows = np.add.reduceat(rows[order], starts)
        self.missing = np.add.reduceat(missing[order], starts, axis=0)


def stratified_folds(labels: np.ndarray, *, n_folds: int, seed: int) -> np.ndarray:
    """Assign rows with (N,) integer labels to folds (N,) int8 that have the classes in proportion.

    The folds are the test folds of scikit-learn 0.19.1's `StratifiedKFold(n_folds, shuffle=True,
    random_state=seed)` (fidelity 31), which later versions draw differently: the positions 0..n-1
    of the n rows of a class are shuffled by a fresh `RandomState(seed)` and cut into folds, of
    which the first n mod n_folds are one row longer. NumPy guarantees that generator's draws to
    stay the same (NEP 19).

    Raises UsageError for fewer than 2 or more than 127 folds, DataError if a class has fewer rows
    than there are folds.
    """
    if not 2 <= n_folds <= _MOST_FOLDS:
        raise UsageError(f"n_folds must be between 2 and {_MOST_FOLDS}, got {n_folds}")
    folds = np.empty(len(labels), dtype=np.int8)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        if len(rows) < n_folds:
            raise DataError(
                f"label {label} has {counted(len(rows), 'row')}, too few for {n_folds} folds"
            )
        # A shuffle depends on the length alone, so that rows can be shuffled in place of positions.
        np.random.RandomState(seed).shuffle(rows)
        sizes = np.full(n_folds, len(rows) // n_folds)
        sizes[: len(rows) % n_folds] += 1
        folds[rows] = np.repeat(np.arange(n_folds, dtype=np.int8), sizes)
    return folds
