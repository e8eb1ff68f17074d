"""What the stages of preparing a table hand to each other: chunks of rows, and progress."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """n rows in file order, from a reader or a generator on their way to the encoder.

    A categorical field is either a column of `categories` or an entry of `packed`.
    """

    categories: pl.DataFrame
    """One column for each field, named as on the card: pl.String, or one pl.Categorical per field
    that stays the same in all chunks. A missing value is the empty text; there are no nulls."""
    numerics: np.ndarray
    """(n, K) float64, values as written; NaN where missing."""
    labels: np.ndarray
    """(n,) uint8, 0 or 1."""
    split: np.ndarray
    """(n,) uint8, index into SPLIT_NAMES; or (n,) int64 times or numbers of rows, for
    a split by time or by order."""
    packed: dict[str, np.ndarray] = field(default_factory=dict)
    """Field name -> (n,) uint64: texts of at most 8 bytes as `data.raw.packed.pack` codes them."""


@dataclass(frozen=True, kw_only=True)
class StageProgress:
    """How far one stage of a long operation is; reported now and then, in order."""

    stage: str
    """The stages in their order: `downloading`; `checking` and `splitting` of a log that has to be
    split; `reading`, or `making` of synthetic rows; `counting`; `writing`."""
    done: int
    """Part of `total`: rows in `making`, `counting` and `writing`, else bytes as stored."""
    total: int
    rows: int
    """Rows done in this stage."""


OnProgress = Callable[[StageProgress], None]


def no_progress(_: StageProgress) -> None:
    """The default `on_progress`, which does nothing."""


def no_log(_: str) -> None:
    """The default `log`, which drops the message."""
