"""Values become codes while rows are read: numbers in any order, from which ids are made later."""

from typing import Protocol

import numpy as np
import polars as pl

from prime_bench.data.chunk import Chunk
from prime_bench.data.numerics import log_buckets
from prime_bench.data.vocabulary import Vocabulary, by_count, by_value

_MISSING_CODE = 0


class FieldCodes(Protocol):
    """The codes of one field of the table that has ids."""

    @property
    def n_codes(self) -> int:
        """Codes handed out so far."""

    def encode(self, chunk: Chunk) -> np.ndarray:
        """(n,) int32 codes of the chunk's rows."""

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """Ids from (n_codes,) counts."""


class TextCodes:
    """Codes of text values: the physical codes of a polars Categorical that all chunks share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_codes = 0
        self._dtype: pl.Categorical | None = None
        # polars keeps a mapping from text to code only as long as a column uses it.
        self._anchor: pl.Series | None = None

    def encode(self, chunk: Chunk) -> np.ndarray:
        """(n,) int32 codes of the chunk's rows."""
        column = chunk.categories[self.name]
        if self._dtype is None:
            given = column.dtype
            if not isinstance(given, pl.Categorical) or given.categories.is_global():
                given = pl.Categorical(pl.Categories.random())
            self._dtype = given
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
        return codes.cat.to(self._dtype or pl.Categorical()).cast(pl.String)

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """Ids by (-count, text)."""
        return by_count(self.texts(), counts, min_count=min_count)

    def n_values(self, counts: np.ndarray, *, min_count: int) -> int:
        """Values, the missing one apart, with `min_count` or more of (n_codes,) counts."""
        return int(np.count_nonzero((counts >= min_count) & (self.texts() != "").to_numpy()))


class BucketCodes:
    """Codes of a numeric field's buckets under log_bucket."""

    def __init__(self, column: int, *, zero_is_missing: bool) -> None:
        self._column = column
        self._zero_is_missing = zero_is_missing
        self._values = [np.nan]
        self._codes: dict[float, int] = {}

    @property
    def n_codes(self) -> int:
        """Codes handed out so far, the missing value's included."""
        return len(self._values)

    def encode(self, chunk: Chunk) -> np.ndarray:
        """(n,) int32 codes of the chunk's rows."""
        buckets, inverse = np.unique(
            log_buckets(chunk.numerics[:, self._column]), return_inverse=True
        )
        codes = np.array([self._code(bucket) for bucket in buckets.tolist()], dtype=np.int32)
        return codes[inverse]

    def _code(self, bucket: float) -> int:
        if np.isnan(bucket):
            return _MISSING_CODE
        if bucket not in self._codes:
            self._codes[bucket] = len(self._values)
            self._values.append(bucket)
        return self._codes[bucket]

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """Ids in order of value."""
        return by_value(
            self._values, counts, min_count=min_count, zero_is_missing=self._zero_is_missing
        )
