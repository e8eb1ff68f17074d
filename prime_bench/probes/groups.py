"""Groups of rows by the values of a semantic field, and balanced blocks of rows drawn from them.

Shapes: N rows of a split, k groups, m blocks a group, n = k m blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prime_bench.base.streams import derive
from prime_bench.data.table import PreparedTable, Split
from prime_bench.findings import GroupSize


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """The group of each row of a split."""

    field: str
    names: list[str]
    """The name of each code's group."""
    codes: np.ndarray
    """(N,) integers, indices into `names`."""

    def sizes(self, labels: np.ndarray) -> list[GroupSize]:
        """Count the rows and the positive rows of each group, from the labels (N,) of 0 and 1."""
        both = 2 * self.codes.astype(np.int64) + labels
        counts = np.bincount(both, minlength=2 * len(self.names))
        return [
            GroupSize(name=name, rows=int(pair.sum()), positives=int(pair[1]))
            for name, pair in zip(self.names, counts.reshape(-1, 2), strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class ChosenGroups:
    """The groups that are large enough to be measured, in the order of their codes, and those that
    are not.
    """

    codes: list[int]
    groups: list[GroupSize]
    too_small: list[GroupSize]
    """Without groups that have no row."""


def grouping_of(table: PreparedTable, split: Split, semantic: str) -> Grouping | None:
    """Group a split's rows by the field with the meaning `semantic`; None if the table has none."""
    columns = [i for i, f in enumerate(table.schema.categorical) if f.semantic == semantic]
    if not columns:
        return None
    field = table.schema.categorical[columns[0]]
    names = table.values(field)
    codes = np.ascontiguousarray(split.ids[:, columns[0]])
    return Grouping(field=semantic, names=names, codes=codes)


def no_such_field(semantic: str) -> str:
    """The reason for which a semantic field has no groups."""
    return f"no field of the table means {semantic}"


def null_grouping(n_rows: int, *, name: str, n_groups: int, seed: int) -> Grouping:
    """Random groups of equal probability, a function of the name and the seed alone."""
    codes = (_words(n_rows, seed, f"probe-null/{name}") % np.uint64(n_groups)).astype(np.int32)
    return Grouping(field=name, names=[str(code) for code in range(n_groups)], codes=codes)


def choose(
    grouping: Grouping, labels: np.ndarray, *, rows: int = 1, positives: int = 0, negatives: int = 0
) -> ChosenGroups:
    """Choose the groups with at least `rows` rows, `positives` of them positive and `negatives`
    negative, by the labels (N,) of 0 and 1.
    """
    sizes = grouping.sizes(labels)
    enough = [
        size.rows >= rows
        and size.positives >= positives
        and size.rows - size.positives >= negatives
        for size in sizes
    ]
    return ChosenGroups(
        codes=[code for code, large in enumerate(enough) if large],
        groups=[size for size, large in zip(sizes, enough, strict=True) if large],
        too_small=[s for s, large in zip(sizes, enough, strict=True) if s.rows and not large],
    )


def draw_blocks(
    grouping: Grouping,
    labels: np.ndarray,
    codes: Sequence[int],
    *,
    blocks: int,
    positives: int,
    negatives: int,
    seed: int,
) -> np.ndarray:
    """Draw n = k m disjoint blocks, group by group: row indices (n, positives + negatives), the
    positives of a block first.

    They are a function of the seed, the field and the data, so all arms of a pair get the same.
    """
    keys = _words(len(labels), seed, f"probe-rows/{grouping.field}")
    drawn = []
    for code in codes:
        mine = np.flatnonzero(grouping.codes == code)
        parts = []
        for label, size in ((1, positives), (0, negatives)):
            rows = mine[labels[mine] == label]
            first = rows[np.argsort(keys[rows], kind="stable")[: blocks * size]]
            parts.append(first.reshape(blocks, size))
        drawn.append(np.concatenate(parts, axis=1))
    return np.concatenate(drawn)


def draw_rows(grouping: Grouping, code: int, *, seed: int) -> np.ndarray:
    """All rows of one group in random order."""
    rows = np.flatnonzero(grouping.codes == code)
    keys = _words(len(rows), seed, f"probe-sample/{grouping.field}/{code}")
    return rows[np.argsort(keys, kind="stable")]


def block_groupings(n_groups: int, blocks: int, *, n: int, seed: int, field: str) -> np.ndarray:
    """The group of each block in `n` random groupings with m blocks a group, (n, k m)."""
    n_blocks = n_groups * blocks
    words = _words(n * n_blocks, seed, f"probe-groupings/{field}/block").reshape(n, n_blocks)
    groups: np.ndarray = np.argsort(words, axis=1, kind="stable") // blocks
    return groups


def row_groupings(
    labels: np.ndarray, n_groups: int, *, n: int, seed: int, field: str
) -> np.ndarray:
    """The rows of each group in `n` random groupings of rows with labels (rows,), (n, k, rows / k).
    All groups get the same number of either label; both numbers must be multiples of k.
    """
    parts = []
    for label in (1, 0):
        rows = np.flatnonzero(labels == label)
        words = _words(n * len(rows), seed, f"probe-groupings/{field}/example/{label}")
        order = np.argsort(words.reshape(n, len(rows)), axis=1, kind="stable")
        parts.append(rows[order].reshape(n, n_groups, -1))
    return np.concatenate(parts, axis=2)


def _words(n: int, seed: int, name: str) -> np.ndarray:
    """n random uint64 words; sorting by them gives a permutation. NumPy guarantees that they stay
    the same in all versions.
    """
    return np.random.PCG64(derive(seed, name)).random_raw(n)
