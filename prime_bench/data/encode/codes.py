"""From raw values to numbers: rules for numeric fields, vocabularies, and codes of values.

While rows are read, each value gets a provisional *code* in no particular order. When all rows
have been counted, the `Vocabulary` of a field maps codes to *ids*: 0 is PAD, values that reach the
minimum count have ids from 1 on, and all others share the last id (out of vocabulary).

Shapes: n rows, K numeric fields.
"""

import dataclasses
import functools
import hashlib
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from prime_bench.data.manifest import NumericFit, vocabulary_file
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
    return as_float32(np.sign(values) * np.log1p(np.abs(values)))


def as_float32(values: np.ndarray) -> np.ndarray:
    """The values as they are, as float32; 0 where one is missing (NaN). This is the rule raw."""
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
        return as_float32(np.clip(scaled, 0.0, 1.0))


class ExactSums:
    """Sums of K columns of float64 without any rounding, so that the order of rows is no matter.

    A value is a whole number of 53 bits times a power of two. The whole numbers of each power are
    added in two halves, whose sums over less than 2^36 rows fit into int64.
    """

    _LOWEST = 1100  # more than the exponent of the smallest number, 2^-1074
    _POWERS = 2200
    _HALF = 26

    def __init__(self, n_columns: int) -> None:
        self._high = np.zeros((n_columns, self._POWERS), dtype=np.int64)
        self._low = np.zeros((n_columns, self._POWERS), dtype=np.int64)
        self.counts = np.zeros(n_columns, dtype=np.int64)
        """(K,): number of values of each column."""

    def update(self, values: np.ndarray) -> None:
        """Add the (n, K) values of rows, leaving out missing ones (NaN)."""
        for k, column in enumerate(values.T):
            present = column[~np.isnan(column)]
            fraction, power = np.frexp(present)
            whole = np.ldexp(fraction, 53).astype(np.int64)
            high = whole >> self._HALF
            low = whole - (high << self._HALF)
            place = power.astype(np.int64) + self._LOWEST
            # Sums of whole numbers below 2^53 are exact in bincount's float64: 2^25 rows a block.
            for sums, part in ((self._high, high), (self._low, low)):
                sums[k] += np.bincount(place, part, minlength=self._POWERS).astype(np.int64)
            self.counts[k] += len(present)

    def means(self) -> np.ndarray:
        """(K,) float64: the correctly rounded mean of each column, NaN without values."""
        return np.array(
            [
                float(self._total(k) / int(count)) if count else np.nan
                for k, count in enumerate(self.counts)
            ]
        )

    def _total(self, k: int) -> Fraction:
        places = np.flatnonzero(self._high[k] | self._low[k]).tolist()
        return sum(
            (
                ((int(self._high[k, place]) << self._HALF) + int(self._low[k, place]))
                * Fraction(2) ** (place - self._LOWEST - 53)
                for place in places
            ),
            Fraction(),
        )


class NumericFields:
    """The rules of the K numeric fields that stay numbers, fitted to training rows.

    Rows come three times: as read (`spooled`), the training rows among them (`fit`, and for the
    rule standard `fit_deviations`), and all again (`values`).
    """

    def __init__(self, rules: Sequence[NumericRule]) -> None:
        self.rules = rules
        self.is_fitted = "minmax" in rules or "standard" in rules
        self._standard = [k for k, rule in enumerate(rules) if rule == "standard"]
        self._ranges = Ranges.empty(len(rules))
        self._sums = ExactSums(len(self._standard))
        self._squares = ExactSums(len(self._standard))

    @classmethod
    def fitted(cls, fits: Sequence[NumericFit]) -> "NumericFields":
        """The rules with the constants that they were fitted to, for rows of another log."""
        fields = cls([fit.rule for fit in fits])
        for k, fit in enumerate(fits):
            if fit.low is not None and fit.high is not None:
                fields._ranges.low[k], fields._ranges.high[k] = fit.low, fit.high
        of_standard = [fits[k] for k in fields._standard]
        # In place of what `fit` would have given; NaN without values, as there.
        fields._means = np.array([fit.mean for fit in of_standard], dtype=np.float64)
        fields._deviations = np.array([fit.deviation for fit in of_standard], dtype=np.float64)
        return fields

    @property
    def dtype(self) -> type[np.floating]:
        """The type of the values between the passes: as read where a rule needs all of them."""
        return np.float64 if self.is_fitted else np.float32

    @property
    def has_deviations(self) -> bool:
        """Whether `fit_deviations` is to be called for all training rows, after `fit`."""
        return bool(self._standard)

    def spooled(self, values: np.ndarray) -> np.ndarray:
        """The (n, K) values as they are stored between the passes."""
        return values if self.is_fitted else self._transformed(values)

    def fit(self, values: np.ndarray) -> None:
        """Include the (n, K) values of training rows, as spooled."""
        self._ranges.update(values)
        self._sums.update(values[:, self._standard])

    def fit_deviations(self, values: np.ndarray) -> None:
        """Include the (n, K) values of training rows, after `fit` has had all of them."""
        self._squares.update((values[:, self._standard] - self._means) ** 2)

    def values(self, spooled: np.ndarray) -> np.ndarray:
        """The (n, K) float32 of the table, from what was spooled."""
        return self._transformed(spooled) if self.is_fitted else spooled

    def constants(self, k: int) -> NumericFit:
        """The rule of field k, and what it was fitted to."""
        rule, low, high = self.rules[k], float(self._ranges.low[k]), float(self._ranges.high[k])
        if rule == "minmax" and low <= high:
            return NumericFit(rule=rule, low=low, high=high)
        if rule == "standard":
            place = self._standard.index(k)
            mean, deviation = float(self._means[place]), float(self._deviations[place])
            if not math.isnan(mean):
                return NumericFit(rule=rule, mean=mean, deviation=deviation)
        return NumericFit(rule=rule)

    @functools.cached_property
    def _means(self) -> np.ndarray:
        return self._sums.means()

    @functools.cached_property
    def _deviations(self) -> np.ndarray:
        deviations: np.ndarray = np.sqrt(self._squares.means())
        return deviations

    def _transformed(self, values: np.ndarray) -> np.ndarray:
        if len(set(self.rules)) == 1:
            return self._by_rule(self.rules[0], values)
        changed = np.empty(values.shape, dtype=np.float32)
        for rule in dict.fromkeys(self.rules):
            columns = [k for k, own in enumerate(self.rules) if own == rule]
            changed[:, columns] = self._by_rule(rule, values, columns)
        return changed

    def _by_rule(
        self, rule: NumericRule, values: np.ndarray, columns: list[int] | None = None
    ) -> np.ndarray:
        """The values of the `columns` of one rule, or of all."""
        own = values if columns is None else values[:, columns]
        if rule == "minmax":
            ranges = self._ranges
            if columns is not None:
                ranges = Ranges(low=ranges.low[columns], high=ranges.high[columns])
            return ranges.scale(own)
        if rule == "standard":
            width = np.where(self._deviations > 0, self._deviations, np.inf)
            return as_float32((own - self._means) / width)
        return signed_log(own) if rule == "log1p" else as_float32(own)


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
        name = vocabulary_file(field)
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(self.lines)
            file.flush()
            os.fsync(file.fileno())
        return {name: hashlib.sha256(self.lines).hexdigest()}


def by_key(keys: np.ndarray, counts: np.ndarray, *, min_count: int) -> Vocabulary:
    """As `by_count`, for the packed texts `keys` (n_codes,) uint64; the first one is empty."""
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


class CategoricalCodes:
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
        self._long: CategoricalCodes | None = None

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
            self._long = CategoricalCodes(column.dtype)
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

    def _joined(self, counts: np.ndarray, long: "CategoricalCodes") -> tuple[np.ndarray, ...]:
        """The Categorical code of each hash-table code, and all counts by Categorical code."""
        n_short = self._short.n_codes
        twins = long.codes(texts_of(self._short.keys))
        joined = np.zeros(long.n_codes, dtype=np.int64)
        joined[: len(counts) - n_short] = counts[n_short:]
        joined[twins] += counts[:n_short]
        return twins, joined


class _NumberCodes:
    """Codes of the distinct values of one numeric field, which is column `column` of a chunk."""

    def __init__(self, column: int) -> None:
        self._column = column
        self._keys = KeyCodes()
        self._missing = int(self._keys.codes(_bits(np.array([np.nan])))[0])

    @property
    def n_codes(self) -> int:
        """The number of codes given so far."""
        return self._keys.n_codes

    @property
    def values(self) -> np.ndarray:
        """The value of each code, (n_codes,) float64; NaN stands for a missing one."""
        return self._keys.keys.view(np.float64)

    def encode(self, chunk: Chunk) -> np.ndarray:
        """The codes (n,) int32 of the chunk's rows."""
        return self._keys.codes(_bits(chunk.numerics[:, self._column]))

    def is_missing(self, codes: np.ndarray) -> np.ndarray:
        """Whether each of the (n,) codes stands for a missing value."""
        missing: np.ndarray = codes == self._missing
        return missing

    def finish(self) -> None:
        """Free what only further rows would need. To be called after the last chunk."""
        self._keys.finish()


class BucketCodes(_NumberCodes):
    """Codes of the buckets of one numeric field, for the rule log_bucket."""

    def __init__(self, column: int, *, zero_is_missing: bool) -> None:
        super().__init__(column)
        self._zero_is_missing = zero_is_missing

    def encode(self, chunk: Chunk) -> np.ndarray:
        """The codes (n,) int32 of the buckets of the chunk's rows."""
        return self._keys.codes(_bits(log_buckets(chunk.numerics[:, self._column])))

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:
        """The vocabulary in the order of `by_value`."""
        values, zero = self.values.tolist(), self._zero_is_missing
        return by_value(values, counts, min_count=min_count, zero_is_missing=zero)


class QuantileCodes(_NumberCodes):
    """Codes of the values of one numeric field, for the rule quantile.

    Cut k of Q bins is the smallest value that k/Q of the training rows with a value do not exceed.
    A bin holds the values above a cut, up to and including the next one.
    """

    def __init__(self, column: int, *, n_bins: int) -> None:
        super().__init__(column)
        self._n_bins = n_bins
        self.cuts: list[float] = []
        """The cuts that divide training rows, rising; known once `vocabulary` was called."""

    def vocabulary(self, counts: np.ndarray, *, min_count: int) -> Vocabulary:  # noqa: ARG002
        """The bins in the order of their values, given the training rows (n_codes,) of each code.

        A bin has training rows, whatever `min_count` says. Missing values are out of vocabulary.
        """
        self.cuts = quantile_cuts(self.values, counts, n_bins=self._n_bins)
        n_bins = len(self.cuts) + 1
        ids = np.searchsorted(np.array(self.cuts), self.values, side="left").astype(np.int32) + 1
        ids[self._missing] = n_bins + 1
        lines = [f"<= {cut!r}" for cut in self.cuts]
        lines.append(f"> {self.cuts[-1]!r}" if self.cuts else "all")
        content = "".join(f"{line}\n" for line in lines).encode()
        return Vocabulary(lines=content, size=n_bins + 2, ids=ids)


def quantile_cuts(values: np.ndarray, counts: np.ndarray, *, n_bins: int) -> list[float]:
    """The distinct cuts between bins, each below the highest value.

    `values` (V,) float64 are distinct and occur in `counts` (V,) training rows; NaN is left out.
    """
    seen = (counts > 0) & ~np.isnan(values)
    order = np.argsort(values[seen])
    ordered, below = values[seen][order], np.cumsum(counts[seen][order].astype(np.int64))
    if not len(ordered):
        return []
    # n k / Q in whole numbers: the first value that as many rows do not exceed.
    wanted = np.arange(1, n_bins, dtype=np.int64) * below[-1]
    cuts = np.unique(ordered[np.searchsorted(below * n_bins, wanted, side="left")])
    found: list[float] = cuts[cuts < ordered[-1]].tolist()
    return found


def _bits(values: np.ndarray) -> np.ndarray:
    """(n,) float64 as uint64 keys: equal values, and any two NaN, have equal keys."""
    values = values + 0.0  # no minus zero
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)
