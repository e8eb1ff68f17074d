"""Encode chunks of raw rows as the arrays of a prepared table, in bounded memory.

There are three passes. The first gives each value a provisional code and writes the coded rows to a
temporary spool on disk; the second counts the codes, from which the vocabularies follow; the third
replaces codes by ids and writes the arrays. The order of codes may vary between runs (polars gives
them in threads). The table does not depend on it: ids follow the vocabulary, which is sorted.

Shapes: n rows of a block, C categorical fields, K numeric fields, V codes of a field.
"""

import contextlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prime_bench.base.errors import DataError
from prime_bench.base.files import sha256_of, write_whole
from prime_bench.base.words import counted
from prime_bench.data.card import CardColumn
from prime_bench.data.encode.codes import (
    BucketCodes,
    FieldCodes,
    NumericFields,
    QuantileCodes,
    TextCodes,
    Vocabulary,
)
from prime_bench.data.encode.spool import ArrayFile, Spool, SpoolBlock
from prime_bench.data.manifest import SCHEMA_NAME, SPLIT_NAMES, NumericFit, SplitCounts
from prime_bench.data.prefetch import prefetch
from prime_bench.data.schema import Field, Schema
from prime_bench.data.split import TimeCounts, split_by_time
from prime_bench.data.stages import Chunk, OnProgress, StageProgress, no_progress
from prime_bench.settings.data import DataSettings, LogSettings, NumericRule

_TRAIN = 0


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """What `encode` wrote, and what it counted."""

    schema: Schema
    rows: SplitCounts
    positives: SplitCounts
    train_values: dict[str, int]
    """Name of each text field -> its values with `train_values_min_count` or more train rows."""
    missing: dict[str, SplitCounts]
    """Name of each field -> its rows without a value."""
    numeric: dict[str, NumericFit]
    """Name of each numeric field -> how it was transformed."""
    outputs: dict[str, str]
    """Name of each written file in the folder -> SHA-256."""


def encode(
    chunks: Iterable[Chunk],
    *,
    fields: Sequence[CardColumn],
    settings: DataSettings,
    folder: Path,
    train_values_min_count: int = 1,
    on_progress: OnProgress = no_progress,
) -> Encoded:
    """Write arrays, vocabularies and schema of all rows in `chunks` into the empty `folder`.

    `fields` are the card's columns with the roles categorical, hour and numeric, in schema order.
    Raises DataError if a split has no rows.
    """
    coders = _coders(fields, settings)
    coded = list(coders.values())
    if settings.gauc_by and settings.gauc_by not in coders:
        # A column that only has the groups of rows comes last, and is no field.
        coded.append(TextCodes(settings.gauc_by))
    numeric = [column for column in fields if column.role == "numeric"]
    # Names of the numeric fields that stay numbers; the others have coders.
    numbers = [column.name for column in numeric if column.name not in coders]
    rules = NumericFields([c.rule(settings) for c in numeric if c.name in numbers])
    spool = Spool(
        folder / "spool",
        n_codes=len(coded),
        n_numerics=len(numbers),
        numeric_dtype=rules.dtype,
    )
    positions = [k for k, column in enumerate(numeric) if column.name in numbers]
    with contextlib.closing(spool), prefetch(chunks) as read:
        splits = _spool_rows(
            read,
            spool,
            coders=coded,
            rules=rules,
            positions=positions,
            settings=settings,
        )
        for coder in coded:
            coder.finish()
        counts = _count(spool, splits, coded, rules, on_progress)
        written = _write_vocabularies(
            coders, counts, settings, folder, train_values_min_count=train_values_min_count
        )
        outputs = {path: digest for one in written for path, digest in one.outputs.items()}
        vocabularies = {name: one.vocabulary for name, one in zip(coders, written, strict=True)}
        schema = _schema(fields, vocabularies)
        write_whole(folder / SCHEMA_NAME, json.dumps(schema.plain(), indent=1, ensure_ascii=False))
        outputs[SCHEMA_NAME] = sha256_of(folder / SCHEMA_NAME)
        groups = None
        if settings.gauc_by:
            place = list(coders).index(settings.gauc_by) if settings.gauc_by in coders else -1
            groups = _Groups.of(coded[place], counts.codes[place], place=place)
        writer = _Writer(list(vocabularies.values()), rules, splits, on_progress, groups=groups)
        outputs |= writer.write(spool, folder, rows=counts.rows)
    missing = np.delete(splits.missing.T, slice(len(coders), len(coded)), axis=0)
    return Encoded(
        schema=schema,
        rows=_split_counts(counts.rows),
        positives=_split_counts(counts.positives),
        train_values={
            name: one.train_values
            for name, one in zip(coders, written, strict=True)
            if one.train_values is not None
        },
        missing={
            name: _split_counts(of_field)
            for name, of_field in zip([*coders, *numbers], missing, strict=True)
        },
        numeric={
            column.name: rules.constants(numbers.index(column.name))
            if column.name in numbers
            else _fit(coders[column.name], rule=column.rule(settings))
            for column in numeric
        },
        outputs=dict(sorted(outputs.items())),
    )


def _coders(fields: Sequence[CardColumn], settings: DataSettings) -> dict[str, FieldCodes]:
    """Name of each field that gets ids -> its coder, in schema order."""
    coders: dict[str, FieldCodes] = {}
    numeric = [column.name for column in fields if column.role == "numeric"]
    for column in fields:
        if column.role != "numeric":
            coders[column.name] = TextCodes(column.name)
        elif column.rule(settings) == "log_bucket":
            coders[column.name] = BucketCodes(
                numeric.index(column.name), zero_is_missing=settings.zero_is_missing
            )
        elif column.rule(settings) == "quantile":
            coders[column.name] = QuantileCodes(
                numeric.index(column.name), n_bins=column.n_bins(settings)
            )
    return coders


def _fit(coder: FieldCodes, *, rule: NumericRule) -> NumericFit:
    """The rule of a numeric field that gets ids."""
    return NumericFit(rule=rule, cuts=coder.cuts if isinstance(coder, QuantileCodes) else None)


class _Splits:
    """The split of each row of the spool. A split by time or by order is known only after the last
    row.
    """

    missing: np.ndarray
    """(3, C + K) int64: rows without a value, of the coded fields and then of the numeric ones."""

    def __init__(
        self,
        counts: TimeCounts,
        settings: DataSettings,
    ) -> None:
        if isinstance(settings, LogSettings) and settings.split in ("time", "fraction"):
            rows_at = dict(zip(counts.times.tolist(), counts.rows.tolist(), strict=True))
            split_at = split_by_time(rows_at, settings.split_fractions)
        else:
            split_at = {split: split for split in range(len(SPLIT_NAMES))}
        self._shift = counts.shift
        self._keys = np.array(sorted(split_at), dtype=np.int64)
        self._split = np.array([split_at[key] for key in sorted(split_at)], dtype=np.uint8)
        self.missing = np.zeros((len(SPLIT_NAMES), counts.missing.shape[1]), dtype=np.int64)
        for key, missing in zip(counts.times.tolist(), counts.missing, strict=True):
            self.missing[split_at[key]] += missing

    def of(self, block: SpoolBlock) -> np.ndarray:
        """(n,) uint8, index into SPLIT_NAMES."""
        keys = block.split() >> self._shift
        split: np.ndarray = self._split[np.searchsorted(self._keys, keys)]
        return split


def _spool_rows(
    chunks: Iterable[Chunk],
    spool: Spool,
    *,
    coders: Sequence[FieldCodes],
    rules: NumericFields,
    positions: Sequence[int],
    settings: DataSettings,
) -> _Splits:
    """Write all rows to the spool; `positions` are those of its numeric fields in a chunk."""
    n_fields = len(coders) + spool.n_numerics
    counts = TimeCounts(n_fields=n_fields)
    for chunk in chunks:
        n_rows = len(chunk.labels)
        codes = np.empty((len(coders), n_rows), dtype=np.int32)
        missing = np.empty((n_fields, n_rows), dtype=bool)
        for field, coder in enumerate(coders):
            codes[field] = coder.encode(chunk)
            missing[field] = coder.is_missing(codes[field])
        numerics = np.empty((n_rows, 0), dtype=spool.numeric_dtype)
        if spool.n_numerics:
            own = chunk.numerics[:, positions] if len(coders) else chunk.numerics
            numerics = rules.spooled(own)
            missing[len(coders) :] = np.isnan(own).T
        spool.append(codes=codes, numerics=numerics, labels=chunk.labels, split=chunk.split)
        if n_rows:
            counts.add(chunk.split, missing)
    spool.finish()
    return _Splits(counts, settings)


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """What the second pass has counted."""

    codes: list[np.ndarray]
    """Rows of each code in train, and in the other splits: (2, V) uint32 for each coded field."""
    rows: np.ndarray
    """(3,) int64: rows of each split."""
    positives: np.ndarray
    """(3,) int64: rows with label 1."""

    def vocabulary_counts(
        self, field: int, coder: FieldCodes, settings: DataSettings
    ) -> np.ndarray:
        """(V,): the rows of each code in the splits from which the vocabulary is made."""
        train, rest = self.codes[field]
        alone = settings.vocabulary == "train" or isinstance(coder, QuantileCodes)
        counts: np.ndarray = train if alone else train + rest
        return counts


def _count(
    spool: Spool,
    splits: _Splits,
    coders: Sequence[FieldCodes],
    rules: NumericFields,
    on_progress: OnProgress,
) -> _Counted:
    """The second pass: count codes and labels, and fit the rules of numeric fields.

    Raises DataError if a split has no rows.
    """
    counts = [np.zeros((2, coder.n_codes), dtype=np.uint32) for coder in coders]
    rows = np.zeros(len(SPLIT_NAMES), dtype=np.int64)
    positives = np.zeros(len(SPLIT_NAMES), dtype=np.int64)
    read = ((block, splits.of(block), block.codes()) for block in spool.blocks)
    with prefetch(read) as blocks:
        for block, split, codes in blocks:
            rows += np.bincount(split, minlength=len(SPLIT_NAMES))
            positives += np.bincount(split[block.labels() == 1], minlength=len(SPLIT_NAMES))
            for part, mask in enumerate((split == _TRAIN, split != _TRAIN)):
                chosen = codes if mask.all() else codes[:, mask]
                for count, values in zip(counts, chosen, strict=True):
                    np.add.at(count[part], values, np.uint32(1))
            if rules.is_fitted:
                rules.fit(block.numerics()[split == _TRAIN])
            done = int(rows.sum())
            on_progress(StageProgress(stage="counting", done=done, total=spool.rows, rows=done))
    empty = [name for name, count in zip(SPLIT_NAMES, rows, strict=True) if count == 0]
    if empty:
        raise DataError(
            f"the split leaves no row for {' and '.join(empty)} ({counted(spool.rows, 'row')} "
            "in all)",
            hint="give more rows, or split them otherwise (`split`, `split_fractions`)",
        )
    if rules.has_deviations:
        for block in spool.blocks:
            rules.fit_deviations(block.numerics()[splits.of(block) == _TRAIN])
    return _Counted(codes=counts, rows=rows, positives=positives)


@dataclass(frozen=True, kw_only=True)
class _WrittenVocabulary:
    """The vocabulary of one field, and its file."""

    vocabulary: Vocabulary
    train_values: int | None
    """Values with enough train rows; None for a numeric field."""
    outputs: dict[str, str]


def _write_vocabularies(
    coders: Mapping[str, FieldCodes],
    counted: _Counted,
    settings: DataSettings,
    folder: Path,
    *,
    train_values_min_count: int,
) -> list[_WrittenVocabulary]:
    """Make the vocabulary of each coder and write it below `folder`."""

    def write(position: int, name: str, coder: FieldCodes) -> _WrittenVocabulary:
        vocabulary = coder.vocabulary(
            counted.vocabulary_counts(position, coder, settings), min_count=settings.min_count
        )
        train_values = None
        if isinstance(coder, TextCodes):
            train_values = coder.n_values(
                counted.codes[position][_TRAIN], min_count=train_values_min_count
            )
        outputs = vocabulary.write(folder, name)
        return _WrittenVocabulary(vocabulary=vocabulary, train_values=train_values, outputs=outputs)

    # Sorting the values of one field overlaps with waiting for the disk for another.
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(write, itertools.count(), coders, coders.values()))


def _schema(fields: Sequence[CardColumn], vocabularies: dict[str, Vocabulary]) -> Schema:
    return Schema(
        fields=[
            Field(
                name=column.name,
                kind="categorical" if column.name in vocabularies else "numeric",
                vocabulary_size=(
                    vocabularies[column.name].size if column.name in vocabularies else None
                ),
                semantic=column.semantic,
            )
            for column in fields
        ]
    )


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """The groups of rows, by a column of codes."""

    place: int
    """Index of the column among those of the spool."""
    of_codes: np.ndarray
    """(V,) int32: the group of each code, from 1 on by falling number of rows; 0 without a value.
    """

    @classmethod
    def of(cls, coder: FieldCodes, counts: np.ndarray, *, place: int) -> "_Groups":
        """The groups, given the rows (2, V) of each code; no value is too rare for a group."""
        vocabulary = coder.vocabulary(counts[0] + counts[1], min_count=1)
        ids = vocabulary.ids
        return cls(place=place, of_codes=np.where(ids == vocabulary.size - 1, 0, ids))


class _Writer:
    """The third pass: replaces codes by ids and writes each row to the files of its split."""

    def __init__(
        self,
        vocabularies: Sequence[Vocabulary],
        rules: NumericFields,
        splits: _Splits,
        on_progress: OnProgress,
        *,
        groups: _Groups | None,
    ) -> None:
        self._vocabularies = vocabularies
        self._groups = groups
        self._rules = rules
        self._splits = splits
        self._on_progress = on_progress

    def write(self, spool: Spool, folder: Path, *, rows: np.ndarray) -> dict[str, str]:
        """Write the arrays, three a split or four with groups; returns file name -> SHA-256."""
        files: dict[str, ArrayFile] = {}
        kinds: list[tuple[str, type, tuple[int, ...]]] = [
            ("ids", np.int32, (len(self._vocabularies),)),
            ("numerics", np.float32, (spool.n_numerics,)),
            ("labels", np.uint8, ()),
        ]
        if self._groups is not None:
            kinds.append(("groups", np.int32, ()))
        with contextlib.ExitStack() as stack:
            for split, n_rows in zip(SPLIT_NAMES, rows.tolist(), strict=True):
                for kind, dtype, width in kinds:
                    name = f"{split}.{kind}.npy"
                    file = ArrayFile(folder / name, dtype=dtype, shape=(n_rows, *width))
                    files[name] = stack.enter_context(contextlib.closing(file))
            done, blocks = 0, map(self._arrays, spool.blocks)
            for split_of, arrays in stack.enter_context(prefetch(blocks)):
                for index, name in enumerate(SPLIT_NAMES):
                    chosen = split_of == index
                    for kind, array in arrays.items():
                        # Most blocks lie in one split and need no copy.
                        rows = array if chosen.all() else array[chosen]
                        files[f"{name}.{kind}.npy"].append(rows)
                done += len(split_of)
                self._on_progress(
                    StageProgress(stage="writing", done=done, total=spool.rows, rows=done)
                )
            return {name: file.finish() for name, file in files.items()}

    def _arrays(self, block: SpoolBlock) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The split (n,) of each row, and the arrays of the block by kind."""
        numerics, codes = self._rules.values(block.numerics()), block.codes()
        arrays = {"ids": self._ids(block, codes), "numerics": numerics, "labels": block.labels()}
        if self._groups is not None:
            arrays["groups"] = self._groups.of_codes[codes[self._groups.place]]
        return self._splits.of(block), arrays

    def _ids(self, block: SpoolBlock, codes: np.ndarray) -> np.ndarray:
        """The ids (n, C) int32 of a block, given its codes."""
        ids = np.empty((len(self._vocabularies), block.rows), dtype=np.int32)
        for field, vocabulary in enumerate(self._vocabularies):
            # Codes are always in range, and mode="clip" saves numpy a buffer.
            vocabulary.ids.take(codes[field], out=ids[field], mode="clip")
        return np.ascontiguousarray(ids.T)


def _split_counts(counts: np.ndarray) -> SplitCounts:
    return SplitCounts.model_validate(dict(zip(SPLIT_NAMES, counts.tolist(), strict=True)))
