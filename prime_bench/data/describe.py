"""Statistics of a prepared table: sizes, click rates, out-of-vocabulary and missing values."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prime_bench.data.manifest import SPLIT_NAMES, Manifest
from prime_bench.data.table import PreparedTable, Split

N_PIECES = 60
"""Pieces of a split whose click rates `prime-bench show dataset` draws."""
_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True, kw_only=True)
class SplitFacts:
    """Statistics of one split."""

    rows: int
    positives: int
    click_rate: float
    difference: float
    """Click rate minus the click rate of the train split."""
    standard_error: float
    """Standard error of `difference` under a random split of the rows; 0 for train."""
    click_rates: list[float]
    """Click rates of `N_PIECES` equal pieces in file order; of each row if there are fewer rows."""


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """Statistics of one field."""

    name: str
    kind: str
    """`categorical` or `numeric`."""
    semantic: str | None
    vocabulary_size: int | None
    """Number of ids, PAD and out-of-vocabulary included; None for a numeric field."""
    out_of_vocabulary: dict[str, float] | None
    """Split -> share of rows whose value has no id of its own, missing values included; None for a
    numeric field."""
    untrained: dict[str, float] | None
    """Split -> share of rows whose id occurs in no train row; None for a numeric field."""
    missing: dict[str, float] | None
    """Split -> share of rows without a value; None for tables whose manifest has no counts."""


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """Statistics of a prepared table."""

    splits: dict[str, SplitFacts]
    fields: list[FieldFacts]


def describe(table: PreparedTable) -> TableFacts:
    """Compute the statistics of `table`, reading all ids and labels in bounded memory."""
    splits = {name: table.split(name) for name in SPLIT_NAMES}
    sizes = table.schema.shape.vocabulary_sizes
    seen = [np.zeros(size, dtype=bool) for size in sizes]
    for ids in _parts(splits["train"].ids):
        for field, column in enumerate(ids.T):
            seen[field][column] = True
    unknown = _ShareOf([np.arange(size) == size - 1 for size in sizes], splits)
    untrained = _ShareOf([~own for own in seen], splits)
    position = {field.name: i for i, field in enumerate(table.schema.categorical)}
    return TableFacts(
        splits={name: _split_facts(table.manifest, name, split) for name, split in splits.items()},
        fields=[
            FieldFacts(
                name=field.name,
                kind=field.kind,
                semantic=field.semantic,
                vocabulary_size=field.vocabulary_size,
                out_of_vocabulary=unknown.of(position.get(field.name)),
                untrained=untrained.of(position.get(field.name)),
                missing=_missing(table.manifest, field.name),
            )
            for field in table.schema.fields
        ],
    )


class _ShareOf:
    """The share of rows of each split whose id is among chosen ones, for each field."""

    def __init__(self, chosen: Sequence[np.ndarray], splits: Mapping[str, Split]) -> None:
        """`chosen` has a bool array (V,) for each categorical field."""
        self._shares: dict[str, np.ndarray] = {}
        for name, split in splits.items():
            counts = np.zeros(len(chosen), dtype=np.int64)
            for ids in _parts(split.ids):
                counts += [
                    np.count_nonzero(own[column]) for own, column in zip(chosen, ids.T, strict=True)
                ]
            self._shares[name] = counts / len(split)

    def of(self, field: int | None) -> dict[str, float] | None:
        """Split -> share for the categorical field at position `field`; None if `field` is None."""
        if field is None:
            return None
        return {name: float(shares[field]) for name, shares in self._shares.items()}


def _parts(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield np.asarray(rows[start : start + _ROWS_AT_ONCE])


def _split_facts(manifest: Manifest, name: str, split: Split) -> SplitFacts:
    rows, positives = getattr(manifest.rows, name), getattr(manifest.positives, name)
    train_rows, train_positives = manifest.rows.train, manifest.positives.train
    error = 0.0
    if name != "train":
        rate = (positives + train_positives) / (rows + train_rows)
        error = math.sqrt(rate * (1 - rate) * (1 / rows + 1 / train_rows))
    return SplitFacts(
        rows=rows,
        positives=positives,
        click_rate=positives / rows,
        difference=positives / rows - train_positives / train_rows,
        standard_error=error,
        click_rates=list(_click_rates(split.labels)),
    )


def _click_rates(labels: np.ndarray) -> Iterator[float]:
    borders = np.linspace(0, len(labels), min(N_PIECES, len(labels)) + 1).astype(np.int64)
    for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        yield float(labels[start:end].mean())


def _missing(manifest: Manifest, field: str) -> dict[str, float] | None:
    counts = (manifest.missing or {}).get(field)
    if counts is None:
        return None
    return {name: getattr(counts, name) / getattr(manifest.rows, name) for name in SPLIT_NAMES}
