"""What the training rows of a table show of a column: of no use, lost by its rule, or telling the
label.

Shapes: N training rows, n of them sampled, C categorical fields, K numeric fields.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from prime_bench.data.manifest import NumericFit, SplitCounts
from prime_bench.data.schema import Schema

MOST_SAMPLED_ROWS = 1 << 18
"""Training rows, evenly spaced, from which it is found whether a column tells the label."""
_ROWS_AT_ONCE = 1 << 17
# Thresholds of the warnings, which are choices and change no table.
_A_VALUE_A_ROW = 0.9
"""Distinct values a row from which no value can be learnt."""
_MOSTLY = 0.5
"""Share of the rows above which a column is mostly missing."""
_TELLS_AUC = 0.999
"""AUC of a column alone from which it tells the label."""
_TELLS_ERRORS = 0.001
"""Values of a column tell the label if they are wrong for at most this share of the rows with the
rarer label."""
_FEWEST_ROWS = 20
"""Rows below which a share of rows shows nothing."""
_KNOWN = "is it known before the click?"


def column_warnings(
    folder: Path,
    *,
    schema: Schema,
    numeric: Mapping[str, NumericFit],
    missing: Mapping[str, SplitCounts],
    train_values: Mapping[str, int],
) -> list[str]:
    """Warnings about columns of the table in `folder`, each a sentence with counts.

    Args:
        folder: Has the arrays of the training rows.
        schema: The fields.
        numeric: The rule of each numeric field.
        missing: The rows without a value of each field.
        train_values: Distinct values in the training rows of each field of texts.
    """
    labels = np.load(folder / "train.labels.npy", mmap_mode="r")
    found: dict[str, list[str]] = {field.name: [] for field in schema.fields}
    step = -(-len(labels) // MOST_SAMPLED_ROWS)
    sampled = np.asarray(labels[::step])
    if schema.categorical:
        ids = np.load(folder / "train.ids.npy", mmap_mode="r")
        counts = _rows_of_ids(ids, schema)
        for position, field in enumerate(schema.categorical):
            lost, none = counts[position], missing[field.name].train
            own = np.asarray(ids[::step, position])
            found[field.name].append(_id_tells(own, sampled, unknown=len(lost) - 1))
            if field.name in numeric:
                found[field.name].append(_number_tells(own, sampled))
                found[field.name] += _of_ids(numeric[field.name].rule, lost, missing=none)
            else:
                values = train_values[field.name]
                found[field.name] += _of_texts(values, rows=len(labels), missing=none)
    if schema.numeric:
        numbers = np.load(folder / "train.numerics.npy", mmap_mode="r")
        low, high = _ranges(numbers)
        for position, field in enumerate(schema.numeric):
            own = np.asarray(numbers[::step, position])
            found[field.name].append(_number_tells(own, sampled))
            found[field.name] += _of_numbers(
                numeric[field.name].rule,
                low=float(low[position]),
                high=float(high[position]),
                rows=len(labels),
                missing=missing[field.name].train,
            )
    return [f"`{name}`: {next(filter(None, why))}" for name, why in found.items() if any(why)]


def _rows_of_ids(ids: np.ndarray, schema: Schema) -> list[np.ndarray]:
    """The training rows of each id, (V,) int64 for each categorical field."""
    counts = [np.zeros(size, dtype=np.int64) for size in schema.shape.vocabulary_sizes]
    for start in range(0, len(ids), _ROWS_AT_ONCE):
        rows = np.asarray(ids[start : start + _ROWS_AT_ONCE])
        for count, column in zip(counts, rows.T, strict=True):
            count += np.bincount(column, minlength=len(count))
    return counts


def _ranges(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest value (K,) of each numeric field."""
    parts = [
        np.asarray(numbers[start : start + _ROWS_AT_ONCE])
        for start in range(0, len(numbers), _ROWS_AT_ONCE)
    ]
    return (
        np.min([part.min(axis=0) for part in parts], axis=0),
        np.max([part.max(axis=0) for part in parts], axis=0),
    )


def _of_texts(values: int, *, rows: int, missing: int) -> Iterator[str]:
    """Warnings of a field of texts with so many distinct values in the training rows."""
    present = rows - missing
    if values == 0 or (values == 1 and missing == 0):
        yield f"{'one' if values else 'no'} value in all {rows:,} training rows"
    elif present >= _FEWEST_ROWS and values >= _A_VALUE_A_ROW * present:
        yield (
            f"{values:,} values in {present:,} training rows with a value, nearly one a row:"
            " nothing learnt of one holds for other rows"
        )
    else:
        yield from _mostly_missing(missing, rows)


def _of_ids(rule: str, rows_of_id: np.ndarray, *, missing: int) -> Iterator[str]:
    """Warnings of a numeric field that has ids: `rows_of_id` (V,) has those without an id last."""
    rows, lost = int(rows_of_id.sum()), int(rows_of_id[-1])
    if missing == rows:
        yield f"no value in all {rows:,} training rows"
    elif np.count_nonzero(rows_of_id) == 1:
        left = "no id" if lost else "one id"
        yield f"the rule {rule} leaves {left} in all {rows:,} training rows"
    elif missing <= _MOSTLY * rows < lost:
        yield (
            f"the rule {rule} leaves {lost:,} of {rows:,} training rows without an id, of which"
            f" {missing:,} have no value"
        )
    else:
        yield from _mostly_missing(missing, rows)


def _of_numbers(rule: str, *, low: float, high: float, rows: int, missing: int) -> Iterator[str]:
    """Warnings of a numeric field whose training rows go from `low` to `high` under its rule."""
    if missing == rows:
        yield f"no value in all {rows:,} training rows"
    elif low == high:
        yield f"the rule {rule} leaves one value, {low:g}, in all {rows:,} training rows"
    else:
        yield from _mostly_missing(missing, rows)


def _mostly_missing(missing: int, rows: int) -> Iterator[str]:
    if missing > _MOSTLY * rows:
        yield f"missing in {missing:,} of {rows:,} training rows"


def _number_tells(values: np.ndarray, labels: np.ndarray) -> str:
    """A warning if the (n,) numbers order the (n,) labels; else empty."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if len(labels) < _FEWEST_ROWS or min(positives, negatives) < 2:
        return ""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The mean rank of each distinct value, as for ties in the statistic of Mann and Whitney.
    ranks = np.cumsum(counts) - (counts - 1) / 2
    above = float(ranks[place[labels == 1]].sum()) - positives * (positives + 1) / 2
    auc = above / (positives * negatives)
    if max(auc, 1 - auc) < _TELLS_AUC:
        return ""
    return f"alone has AUC {auc:.4f} on {len(labels):,} training rows: {_KNOWN}"


def _id_tells(ids: np.ndarray, labels: np.ndarray, *, unknown: int) -> str:
    """A warning if values that repeat among the (n,) ids have one label each; else empty.

    The id `unknown` stands for many values.
    """
    known = ids != unknown
    values, place, counts = np.unique(ids[known], return_inverse=True, return_counts=True)
    positives = np.bincount(place, labels[known], minlength=len(values))
    repeated = counts > 1
    rows, clicked = int(counts[repeated].sum()), int(positives[repeated].sum())
    errors = int(np.minimum(positives, counts - positives)[repeated].sum())
    fewer = min(clicked, rows - clicked)
    if rows < max(_FEWEST_ROWS, len(labels) / 10) or fewer < 2 or errors > _TELLS_ERRORS * fewer:
        return ""
    return (
        f"its {np.count_nonzero(repeated):,} values that repeat tell the label in {rows - errors:,}"
        f" of {rows:,} training rows: {_KNOWN}"
    )
