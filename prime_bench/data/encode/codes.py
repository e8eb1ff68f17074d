"""From raw values to numbers: rules for numeric fields, vocabularies, and codes of values.

While rows are read, each value gets a provisional *code* in no particular order. When all rows
have been counted, the `Vocabulary` of a field maps codes to *ids*: 0 is PAD, values that reach the
minimum count have ids from 1 on, and all others share the last id (out of vocabulary).

Shapes: n rows, K numeric fields.
"""

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
    """BARS's buckets for Criteo: floor(ln(x)^2) where x > 2, else x without its fraction.

    Takes and returns (n,) float64; the buckets are whole numbers, and NaN stays NaN.
    """
    large = values > 2
    buckets: np.ndarray = np.trunc(values)
    buckets[large] = np.floor(np.log(values[large]) ** 2)
    return buckets


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x) ln(1 + |x|) as float32; 0 where the value is missing (NaN)."""
    return plain(np.sign(values) * np.log1p(np.abs(values)))


def plain(values: np.ndarray) -> np.ndarray:
    """The values as float32; 0 where the value is missing (NaN)."""
    filled: np.ndarray = np.nan_to_num(values, nan=0.0).astype(np.float32)
    return filled


@dataclass
class Ranges:
    """Minimum and maximum of K columns over the train rows, ignoring missing values."""

    low: np.ndarray
    """(K,) float64; infinity for a column without values."""
    high: np.ndarray
    """(K,) float64; minus infinity for a column without values."""

    @classmethod
    def empty(cls, n_columns: int) -> "Ranges":
        """The ranges of no rows."""
        return cls(low=np.full(n_columns, np.inf), high=np.full(n_columns, -np.inf))

    def update(self, values: np.ndarray) -> None:
        """Widen the ranges to include the (n, K) values of train rows."""
        self.low = np.fmin(self.low, np.fmin.reduce(values, axis=0, initial=np.inf))
        self.high = np.fmax(self.high, np.fmax.reduce(values, axis=0, initial=-np.inf))

    def scale(self, values: np.ndarray) -> np.ndarray:
        """(x - low) / (high - low), clipped to [0, 1], as (n, K) float32.

        0 where the value is missing or the column is constant.
        """
        seen = self.high >= self.low
        low, high = np.where(seen, self.low, 0.0), np.where(seen, self.high, 0.0)
        # Halves keep the width of a range over nearly all of float64 finite; clipping first keeps
        # the quotient finite where the width is tiny and the value far outside.
        width = high / 2 - low / 2
        scaled = (np.clip(values, low, high) / 2 - low / 2) / np.where(width > 0, width, np.inf)
        return plain(np.clip(scaled, 0.0, 1.0))


def spooled(values: np.ndarray, rule: NumericRule) -> np.ndarray:
    """The (n, K) values as they are stored between the passes.

    minmax stores raw float64 values, since it needs the ranges of all train rows; the other rules
    can be applied at once and give float32.
    """
    if rule == "minmax":
        return values.astype(np.float64)
    return signed_log(values) if rule == "log1p" else plain(values)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The values of one field that have an id of their own."""

    lines: bytes
    """The values in UTF-8, one a line, in the order of their ids."""
    size: int
    """V: the number of ids, PAD and out-of-vocabulary included."""
    ids: np.ndarray
    """(n_codes,) int32: the id of each code; out-of-vocabulary for values without one."""

    def write(self, folder: Path, field: str) -> dict[str, str]:
        """Write the vocabulary file below `folder`; returns its name in the table -> SHA-256."""
        name = f"{VOCABULARY_FOLDER}/{field}.txt"
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(self.lines)
            file.flush()
            os.fsync(file.fileno())
        return {name: hashlib.sha256(self.lines).hexdigest()}


def by_key(keys: np.ndarray, counts: np.ndarray, *, min_count: int) -> Vocabulary:
    """As `by_count`, for the packed texts `keys` (n_codes,) uint64, of which the first is empty."""
    codes = np.flatnonzero(counts >= min_count)
    codes = codes[codes > 0]
    codes = codes[np.argsort(in_text_order(keys[codes]))]
    codes = codes[np.argsort(-counts[codes].astype(np.int64), kind="stable")]
    return _vocabulary(unpack(keys[codes]), codes, n_codes=len(counts))


def by_count(texts: pl.Series, counts: np.ndarray, *, min_count: int) -> Vocabulary:
    """A vocabulary in the order of falling count, then of the UTF-8 bytes of the text.

    `texts` and `counts` are indexed by code. Values in fewer than `min_count` rows and the empty
    text, which is a missing value, get no id of their own.
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
    """A vocabulary of numeric buckets in the order of their value (fidelity 37).

    `values` and `counts` are indexed by code. Buckets in fewer than `min_count` rows and NaN, which
    is a missing value, get no id of their own; nor does 0 if `zero_is_missing`.
    """
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
    """Gives codes to the values of one field while rows are read."""

    @property
    def n_codes(self) -> int:
        """The number of codes given so far."""

    def encode(self, chunk: Chunk) -> np.ndarray:
        """The codes (n,) int32 of the chunk's rows."""

    def is_missing(self, codes: np.ndarray) -> np.ndarray:
        """Whether each of the (n,) codes stands for a missing value."""

    def finish(self) -> None:
        """Free what only further rows would need. To be called after the last chunk."""

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """The vocabulary, given the rows (n_codes,) of each code."""


def texts_of(packed: np.ndarray) -> pl.Series:
    """The texts (n,) of packed texts as a pl.String series."""
    texts = np.full(len(packed), "", dtype=object)
    texts[packed != 0] = unpack(packed[packed != 0]).decode().split("\n")[:-1]
    return pl.Series(texts, dtype=pl.String)


class _CategoricalCodes:
    """The physical codes of one polars Categorical for all chunks of a field."""

    def __init__(self, given: pl.DataType) -> None:
        self.n_codes = 0
        if not isinstance(given, pl.Categorical) or given.categories.is_global():
            given = pl.Categorical(pl.Categories.random())
        self._dtype = given
        # polars keeps the mapping from text to code only while some column uses it.
        self._kept: pl.Series | None = None
        self.missing = int(self.codes(pl.Series([""], dtype=pl.String))[0])

    def codes(self, column: pl.Series) -> np.ndarray:
        """The codes (n,) int32 of a column of texts."""
        if column.dtype != self._dtype:
            column = column.cast(pl.String).cast(self._dtype)
        if len(column) > 0:
            self._kept = column.head(1)
        codes = column.to_physical().to_numpy().astype(np.int32)
        self.n_codes = max(self.n_codes, int(codes.max(initial=-1)) + 1)
        return codes

    def texts(self) -> pl.Series:
        """The text (n_codes,) of each code."""
        codes = pl.Series(np.arange(self.n_codes, dtype=np.uint32))
        return codes.cat.to(self._dtype).cast(pl.String)


class TextCodes:
    """Codes of text values.

    Chunks whose texts all have at most 8 bytes arrive packed and are coded by a hash table. From
    the first chunk with a longer text on, the codes are those of a polars Categorical, shifted by
    the number of hash-table codes. A value that occurs before and after that chunk has two codes;
    `vocabulary` adds up their counts and gives both the same id.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._short = KeyCodes()
        self._long: _CategoricalCodes | None = None

    @property
    def n_codes(self) -> int:
        """The number of codes given so far."""
        return self._short.n_codes + (self._long.n_codes if self._long is not None else 0)

    def encode(self, chunk: Chunk) -> np.ndarray:
        """The codes (n,) int32 of the chunk's rows."""
        packed = chunk.packed.get(self.name)
        if packed is not None and self._long is None:
            return self._short.codes(packed)
        column = chunk.categories[self.name] if packed is None else texts_of(packed)
        if self._long is None:
            self._long = _CategoricalCodes(column.dtype)
        return self._long.codes(column) + self._short.n_codes

    def is_missing(self, codes: np.ndarray) -> np.ndarray:
        """Whether each of the (n,) codes stands for the empty text."""
        missing: np.ndarray = codes == 0
        if self._long is not None:
            missing |= codes == self._short.n_codes + self._long.missing
        return missing

    def finish(self) -> None:
        """Free what only further rows would need. To be called after the last chunk."""
        self._short.finish()

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """The vocabulary in the order of `by_count`."""
        if self._long is None:
            return by_key(self._short.keys, counts, min_count=min_count)
        twins, joined = self._joined(counts, self._long)
        ids = by_count(self._long.texts(), joined, min_count=min_count)
        n_long = len(counts) - len(twins)
        return dataclasses.replace(ids, ids=np.concatenate([ids.ids[twins], ids.ids[:n_long]]))

    def n_values(self, counts: np.ndarray, *, min_count: int) -> int:
        """The number of values with `min_count` or more of the (n_codes,) counts, without the empty
        text.
        """
        if self._long is None:
            return int(np.count_nonzero(counts[1:] >= min_count))
        _, joined = self._joined(counts, self._long)
        return int(np.count_nonzero((joined >= min_count) & (self._long.texts() != "").to_numpy()))

    def _joined(self, counts: np.ndarray, long: "_CategoricalCodes") -> tuple[np.ndarray, ...]:
        """The Categorical code of each hash-table code, and all counts by Categorical code."""
        n_short = self._short.n_codes
        twins = long.codes(texts_of(self._short.keys))
        joined = np.zeros(long.n_codes, dtype=np.int64)
        joined[: len(counts) - n_short] = counts[n_short:]
        joined[twins] += counts[:n_short]
        return twins, joined


class BucketCodes:
    """Codes of the buckets of one numeric field, for the rule log_bucket."""

    def __init__(self, column: int, *, zero_is_missing: bool) -> None:
        self._column = column
        self._zero_is_missing = zero_is_missing
        self._buckets = KeyCodes()
        self._missing = int(self._buckets.codes(_bits(np.array([np.nan])))[0])

    @property
    def n_codes(self) -> int:
        """The number of codes given so far."""
        return self._buckets.n_codes

    def encode(self, chunk: Chunk) -> np.ndarray:
        """The codes (n,) int32 of the chunk's rows."""
        return self._buckets.codes(_bits(log_buckets(chunk.numerics[:, self._column])))

    def is_missing(self, codes: np.ndarray) -> np.ndarray:
        """Whether each of the (n,) codes stands for a missing value."""
        missing: np.ndarray = codes == self._missing
        return missing

    def finish(self) -> None:
        """Free what only further rows would need. To be called after the last chunk."""
        self._buckets.finish()

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """The vocabulary in the order of `by_value`."""
        values = self._buckets.keys.view(np.float64).tolist()
        return by_value(values, counts, min_count=min_count, zero_is_missing=self._zero_is_missing)


def _bits(values: np.ndarray) -> np.ndarray:
    """(n,) float64 as uint64 keys: equal values, and any two NaN, have equal keys."""
    values = values + 0.0  # no minus zero
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)
