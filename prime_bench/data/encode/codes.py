"""From values to ids: numeric rules, codes while rows are read, and the vocabulary."""

import dataclasses
import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from prime_bench.data.manifest import VOCABULARY_FOLDER
from prime_bench.data.raw.packed import KeyCodes, in_text_order, unpack
from prime_bench.data.stages import Chunk
from prime_bench.settings.data import NumericRule


def log_buckets(values: np.ndarray) -> np.ndarray:
    """Buckets of `values` (n,) float64 as whole float64 numbers; NaN stays NaN.

    BARS's rule for Criteo: floor(ln(x)^2) where x > 2, else int(x), which drops the fraction.
    """
    large = values > 2
    buckets: np.ndarray = np.trunc(values)
    buckets[large] = np.floor(np.log(values[large]) ** 2)
    return buckets


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x) ln(1 + |x|), missing 0, as float32."""
    return plain(np.sign(values) * np.log1p(np.abs(values)))


def plain(values: np.ndarray) -> np.ndarray:
    """The values as float32, missing 0."""
    filled: np.ndarray = np.nan_to_num(values, nan=0.0).astype(np.float32)
    return filled


@dataclass
class Ranges:
    """Minimum and maximum of K columns over the training rows; missing values do not count."""

    low: np.ndarray
    """(K,) float64; infinity where nothing was seen."""
    high: np.ndarray
    """(K,) float64; minus infinity where nothing was seen."""

    @classmethod
    def empty(cls, n_columns: int) -> "Ranges":
        """Nothing seen."""
        return cls(low=np.full(n_columns, np.inf), high=np.full(n_columns, -np.inf))

    def see(self, values: np.ndarray) -> None:
        """Widen the ranges by (n, K) training values."""
        self.low = np.fmin(self.low, np.fmin.reduce(values, axis=0, initial=np.inf))
        self.high = np.fmax(self.high, np.fmax.reduce(values, axis=0, initial=-np.inf))

    def scale(self, values: np.ndarray) -> np.ndarray:
        """(n, K) float32: (x - low) / (high - low) cut to [0, 1]; 0 where missing or constant."""
        seen = self.high >= self.low
        low, high = np.where(seen, self.low, 0.0), np.where(seen, self.high, 0.0)
        # Halves, so that the width of a range over nearly all of float64 stays finite; cut first,
        # so that a far value over a tiny width does too.
        width = high / 2 - low / 2
        scaled = (np.clip(values, low, high) / 2 - low / 2) / np.where(width > 0, width, np.inf)
        return plain(np.clip(scaled, 0.0, 1.0))


def spooled(values: np.ndarray, rule: NumericRule) -> np.ndarray:
    """(n, K) values as they wait for the end of the first pass: minmax alone needs the raw ones."""
    if rule == "minmax":
        return values.astype(np.float64)
    return signed_log(values) if rule == "log1p" else plain(values)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The values of one field that own an id."""

    lines: bytes
    """The values, in order of their ids."""
    size: int
    """V: with PAD and out-of-vocabulary."""
    ids: np.ndarray
    """(codes,) int32: the id of each code, out-of-vocabulary for those that own none."""

    def write(self, folder: Path, field: str) -> dict[str, str]:
        """Write the field's file below `folder`; its name in the table and its SHA-256."""
        name = f"{VOCABULARY_FOLDER}/{field}.txt"
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(self.lines)
            file.flush()
            os.fsync(file.fileno())
        return {name: hashlib.sha256(self.lines).hexdigest()}


def by_key(keys: np.ndarray, counts: np.ndarray, *, min_count: int) -> Vocabulary:
    """`by_count` of packed texts: (codes,) uint64, the first of them the empty text."""
    codes = np.flatnonzero(counts >= min_count)
    codes = codes[codes > 0]
    codes = codes[np.argsort(in_text_order(keys[codes]))]
    codes = codes[np.argsort(-counts[codes].astype(np.int64), kind="stable")]
    return _vocabulary(unpack(keys[codes]), codes, n_codes=len(counts))


def by_count(texts: pl.Series, counts: np.ndarray, *, min_count: int) -> Vocabulary:
    """Ids by (-count, UTF-8 bytes of the text) of the values with `min_count` rows or more.

    `texts` and `counts` are indexed by code. The empty text is the missing value and owns no id.
    """
    kept = (
        pl.DataFrame({"text": texts, "count": counts, "code": np.arange(len(counts))})
        .filter((pl.col("count") >= min_count) & (pl.col("text") != ""))
        .sort(["count", "text"], descending=[True, False])
    )
    lines = io.BytesIO()
    kept.select("text").write_csv(lines, include_header=False, quote_style="never")
    return _vocabulary(lines.getvalue(), kept["code"].to_numpy(), n_codes=len(counts))


def by_value(
    values: list[float], counts: np.ndarray, *, min_count: int, zero_is_missing: bool
) -> Vocabulary:
    """Ids in order of value (fidelity 37) of buckets of `min_count` or more rows; NaN: missing."""
    kept = sorted(
        (value, code)
        for code, value in enumerate(values)
        if counts[code] >= min_count and value == value and not (zero_is_missing and value == 0)
    )
    lines = "".join(f"{int(value)}\n" for value, _ in kept).encode()
    codes = np.array([code for _, code in kept], dtype=np.int64)
    return _vocabulary(lines, codes, n_codes=len(counts))


def _vocabulary(lines: bytes, codes: np.ndarray, *, n_codes: int) -> Vocabulary:
    ids = np.full(n_codes, len(codes) + 1, dtype=np.int32)
    ids[codes] = np.arange(1, len(codes) + 1, dtype=np.int32)
    return Vocabulary(lines=lines, size=len(codes) + 2, ids=ids)


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
