"""From counted codes to ids: PAD 0, values from 1, out-of-vocabulary last.

A vocabulary file holds one value a line, UTF-8: line n is the value of id n.
"""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from prime_bench.data.manifest import VOCABULARY_FOLDER
from prime_bench.data.packed import in_text_order, unpack


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
