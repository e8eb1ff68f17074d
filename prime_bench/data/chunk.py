"""A block of raw rows on its way into a table: from a reader or generator to the encoder."""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """n rows in file order."""

    categories: pl.DataFrame
    """(n, ...) columns named as the card's categorical fields: pl.String, or one pl.Categorical a
    field that stays the same in all chunks. A missing value is the empty text; there are no
    nulls."""
    numerics: np.ndarray
    """(n, K) float64, values as written; NaN where missing."""
    labels: np.ndarray
    """(n,) uint8, 0 or 1."""
    split: np.ndarray
    """(n,) uint8, index into SPLITS; or (n,) int64 keys that a split rule orders by (time)."""
    packed: dict[str, np.ndarray] = field(default_factory=dict)
    """Of the categorical fields that `categories` lacks: (n,) uint64, texts of 8 bytes or less as
    `packed.pack` makes them."""
