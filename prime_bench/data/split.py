"""Which split a row of a log belongs to: by a hash of its bytes, or by time."""

from collections.abc import Mapping, Sequence

import numpy as np

from prime_bench.base.errors import DataError
from prime_bench.base.streams import derive

_PIECE_BYTES = 1 << 18
_EVEN = np.uint64(0x9E3779B97F4A7C15)


def mix(words: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 over (n,) uint64: a bijection that moves every output bit."""
    mixed: np.ndarray = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


class RowHash:
    """A seeded 64-bit hash of a line's bytes, ours, so that no library's version can move a row."""

    def __init__(self, seed: int) -> None:
        self._start = np.uint64(derive(seed, "split"))
        self._multipliers = self._first_multipliers(1 << 10)

    def _first_multipliers(self, n_positions: int) -> np.ndarray:
        return mix(self._start + np.arange(1, n_positions + 1, dtype=np.uint64) * _EVEN)

    def __call__(self, text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Hashes (n,) uint64 of neighbouring lines, text[starts[i]:ends[i] + 1], of (bytes,) uint8.

        The sum over a line's bytes, its line feed included, of byte times a random multiplier of
        its position, mixed.
        """
        longest = int((ends - starts).max(initial=0)) + 1
        if longest > len(self._multipliers):
            self._multipliers = self._first_multipliers(2 * longest)
        hashes = np.empty(len(starts), dtype=np.uint64)
        # In pieces that stay in the cache; a line is never cut.
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
    """Splits (n,) uint8 of (n,) uint64 hashes, as numbers in [0, 1) between summed fractions."""
    train, valid, _ = fractions
    cuts = [int(train * 2**53), int((train + valid) * 2**53)]
    return np.searchsorted(
        np.array(cuts, dtype=np.uint64), hashes >> np.uint64(11), side="right"
    ).astype(np.uint8)


def split_by_time(rows_at: Mapping[int, int], fractions: Sequence[float]) -> dict[int, int]:
    """The split of each time: earliest first, cut where the rows before are nearest to their share.

    `rows_at` has the rows of each time. Raises DataError where the times are too few.
    """
    times = sorted(rows_at)
    if len(times) < 3:
        raise DataError(
            f"a split by time needs at least 3 distinct hours, the file has {len(times)}",
            hint="use --split hash",
        )
    before = np.concatenate([[0], np.cumsum([rows_at[time] for time in times])])
    shares = np.cumsum(fractions)[:2] * before[-1]
    # Each split keeps at least one hour.
    first = 1 + int(np.argmin(np.abs(before[1 : len(times) - 1] - shares[0])))
    second = first + 1 + int(np.argmin(np.abs(before[first + 1 : len(times)] - shares[1])))
    return {time: int(i >= first) + int(i >= second) for i, time in enumerate(times)}
