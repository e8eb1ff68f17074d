"""Values become codes while rows are read: numbers in any order, from which ids are made later."""

import dataclasses
from typing import Protocol

import numpy as np
import polars as pl

from prime_bench.data.chunk import Chunk
from prime_bench.data.numerics import log_buckets
from prime_bench.data.packed import KeyCodes, unpack
from prime_bench.data.vocabulary import Vocabulary, by_count, by_key, by_value


class FieldCodes(Protocol):
    """The codes of one field of the table that has ids."""

    @property
    def n_codes(self) -> int:
        """Codes handed out so far."""

    def encode(self, chunk: Chunk) -> np.ndarray:
        """(n,) int32 codes of the chunk's rows."""

    def is_missing(self, codes: np.ndarray) -> np.ndarray:
        """(n,) whether a code is that of a missing value."""

    def finish(self) -> None:
        """No more rows will come: what only they need goes."""

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """Ids from (n_codes,) counts."""


class TextCodes:
    """Codes of text values.

    Short texts come packed and have the codes of a hash table. The first longer text of a field
    ends that: from its chunk on a text has the code of a polars Categorical, counted on from the
    last short one, and a value of both times has two codes, which its vocabulary joins.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._short = KeyCodes()
        self._long: _CategoricalCodes | None = None

    @property
    def n_codes(self) -> int:
        """Codes handed out so far."""
        return self._short.n_codes + (self._long.n_codes if self._long is not None else 0)

    def encode(self, chunk: Chunk) -> np.ndarray:
        """(n,) int32 codes of the chunk's rows."""
        packed = chunk.packed.get(self.name)
        if packed is not None and self._long is None:
            return self._short.codes(packed)
        column = chunk.categories[self.name] if packed is None else texts_of(packed)
        if self._long is None:
            self._long = _CategoricalCodes(column.dtype)
        return self._long.codes(column) + self._short.n_codes

    def is_missing(self, codes: np.ndarray) -> np.ndarray:
        """(n,) whether a code is that of the empty text."""
        missing: np.ndarray = codes == 0
        if self._long is not None:
            missing |= codes == self._short.n_codes + self._long.missing
        return missing

    def finish(self) -> None:
        """No more rows will come: what only they need goes."""
        self._short.finish()

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """Ids by (-count, text)."""
        if self._long is None:
            return by_key(self._short.keys, counts, min_count=min_count)
        twins, joined = self._joined(counts, self._long)
        ids = by_count(self._long.texts(), joined, min_count=min_count)
        n_long = len(counts) - len(twins)
        return dataclasses.replace(ids, ids=np.concatenate([ids.ids[twins], ids.ids[:n_long]]))

    def n_values(self, counts: np.ndarray, *, min_count: int) -> int:
        """Values, the missing one apart, with `min_count` or more of (n_codes,) counts."""
        if self._long is None:
            return int(np.count_nonzero(counts[1:] >= min_count))
        _, joined = self._joined(counts, self._long)
        return int(np.count_nonzero((joined >= min_count) & (self._long.texts() != "").to_numpy()))

    def _joined(self, counts: np.ndarray, long: "_CategoricalCodes") -> tuple[np.ndarray, ...]:
        """The Categorical's code of each short text, and the counts by the Categorical's codes."""
        n_short = self._short.n_codes
        twins = long.codes(texts_of(self._short.keys))
        joined = np.zeros(long.n_codes, dtype=np.int64)
        joined[: len(counts) - n_short] = counts[n_short:]
        joined[twins] += counts[:n_short]
        return twins, joined


def texts_of(packed: np.ndarray) -> pl.Series:
    """Packed texts (n,) as pl.String."""
    texts = np.full(len(packed), "", dtype=object)
    texts[packed != 0] = unpack(packed[packed != 0]).decode().split("\n")[:-1]
    return pl.Series(texts, dtype=pl.String)


class _CategoricalCodes:
    """The physical codes of a polars Categorical that all chunks share."""

    def __init__(self, given: pl.DataType) -> None:
        self.n_codes = 0
        if not isinstance(given, pl.Categorical) or given.categories.is_global():
            given = pl.Categorical(pl.Categories.random())
        self._dtype = given
        # polars keeps a mapping from text to code only as long as a column uses it.
        self._anchor: pl.Series | None = None
        self.missing = int(self.codes(pl.Series([""], dtype=pl.String))[0])

    def codes(self, column: pl.Series) -> np.ndarray:
        """(n,) int32 codes of texts."""
        if column.dtype != self._dtype:
            column = column.cast(pl.String).cast(self._dtype)
        if len(column) > 0:
            self._anchor = column.head(1)
        codes = column.to_physical().to_numpy().astype(np.int32)
        self.n_codes = max(self.n_codes, int(codes.max(initial=-1)) + 1)
        return codes

    def texts(self) -> pl.Series:
        """The text of each code."""
        codes = pl.Series(np.arange(self.n_codes, dtype=np.uint32))
        return codes.cat.to(self._dtype).cast(pl.String)


class BucketCodes:
    """Codes of a numeric field's buckets under log_bucket."""

    def __init__(self, column: int, *, zero_is_missing: bool) -> None:
        self._column = column
        self._zero_is_missing = zero_is_missing
        self._buckets = KeyCodes()
        self._missing = int(self._buckets.codes(_bits(np.array([np.nan])))[0])

    @property
    def n_codes(self) -> int:
        """Codes handed out so far."""
        return self._buckets.n_codes

    def encode(self, chunk: Chunk) -> np.ndarray:
        """(n,) int32 codes of the chunk's rows."""
        return self._buckets.codes(_bits(log_buckets(chunk.numerics[:, self._column])))

    def is_missing(self, codes: np.ndarray) -> np.ndarray:
        """(n,) whether a code is that of a missing value."""
        missing: np.ndarray = codes == self._missing
        return missing

    def finish(self) -> None:
        """No more rows will come: what only they need goes."""
        self._buckets.finish()

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """Ids in order of value."""
        values = self._buckets.keys.view(np.float64).tolist()
        return by_value(values, counts, min_count=min_count, zero_is_missing=self._zero_is_missing)


def _bits(values: np.ndarray) -> np.ndarray:
    """(n,) uint64 that are equal where the float64 `values` (n,) are, and where both are NaN."""
    values = values + 0.0  # no minus zero
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)
