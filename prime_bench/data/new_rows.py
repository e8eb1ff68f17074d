"""Rows of raw files, encoded with the vocabularies and constants of a prepared table.

They are read as `prepare` reads a log, but need no label and no column by which a log is split. A
value without an id of its own is out of vocabulary, as it is in the table.

Shapes: n rows of a block, C categorical and K numeric fields of the table.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import open_file
from prime_bench.data.card import CardColumn, DatasetCard, load_card
from prime_bench.data.encode.codes import CategoricalCodes, NumericFields, log_buckets
from prime_bench.data.manifest import (
    SCHEMA_NAME,
    Manifest,
    NumericFit,
    TableSpec,
    vocabulary_file,
)
from prime_bench.data.prefetch import prefetch
from prime_bench.data.raw.find import find_sources
from prime_bench.data.raw.lines import FORMAT_OF_CARD
from prime_bench.data.raw.packed import MOST_BYTES, pack
from prime_bench.data.raw.reader import Reader
from prime_bench.data.stages import Chunk, OnProgress, no_log, no_progress
from prime_bench.data.synthetic.rows import columns as synthetic_columns
from prime_bench.data.table import PreparedTable, Split
from prime_bench.settings.data import DataSettings, SyntheticSettings

_AGAIN = "delete its folder and prepare it again, from the same files: its jobs keep their ids"

_STAYS = (
    "but the card of this job is that of its table, and another card makes other jobs: to predict "
    "with this one, change the file, in which an empty text is a missing value"
)


class NewRows:
    """Rows of raw files as rows of a table. What is read adds to `rows` and `unknown`."""

    rows: int
    """Rows read so far."""
    unknown: dict[str, int]
    """Name of each field with ids -> its values so far that are not in the vocabulary; missing ones
    are not counted."""

    def __init__(
        self,
        table: PreparedTable,
        source: Path | Sequence[Path],
        *,
        on_progress: OnProgress = no_progress,
        log: Callable[[str], None] = no_log,
    ) -> None:
        """Find the files, and read the vocabularies of the table. No row is read yet.

        Args:
            table: The table.
            source: One or more files, folders, archives or patterns, as `prepare` takes for a log.
            on_progress: Called as the files are read.
            log: Called with the columns that a file has and the card has not.

        Raises:
            DataError: A file is missing, or the table is not as it was prepared, or was by a
                version that did not keep what is needed.
        """
        card, settings = _card_of(table)
        fields = card.fields
        if isinstance(settings, SyntheticSettings):
            fields = synthetic_columns(settings)
        plain = card.model_copy(update={"kind": "log", "columns": fields, "files": {}})
        self._reader = Reader(
            plain,
            DataSettings(),
            find_sources(plain, source),
            known=card.header,
            on_progress=on_progress,
            log=log,
        )
        _check_file(table, SCHEMA_NAME)
        numeric = [column for column in fields if column.role == "numeric"]
        with_ids = {field.name for field in table.schema.categorical}
        self._ids = [
            _ids_of(table, column, settings, numeric=numeric)
            for column in fields
            if column.name in with_ids
        ]
        self._positions = [k for k, one in enumerate(numeric) if one.name not in with_ids]
        self._rules = NumericFields.fitted(
            [_fit_of(table, numeric[k], settings) for k in self._positions]
        )
        self.rows = 0
        self.unknown = dict.fromkeys((one.name for one in self._ids), 0)

    def blocks(self, *, n_rows: int) -> Iterator[Split]:
        """Yield all rows in the order of the files, `n_rows` at a time, with labels of 0; the last
        block may have fewer. Raises DataError, with file and line, for the first invalid row.
        """
        kept: list[tuple[np.ndarray, np.ndarray]] = []
        with _card_stays(), prefetch(self._reader.chunks()) as chunks:
            for chunk in chunks:
                kept.append(self._encoded(chunk))
                while sum(len(ids) for ids, _ in kept) >= n_rows:
                    ids, numerics = (np.concatenate(parts) for parts in zip(*kept, strict=True))
                    kept = [(ids[n_rows:], numerics[n_rows:])]
                    yield _split(ids[:n_rows], numerics[:n_rows])
        ids, numerics = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        if len(ids):
            yield _split(ids, numerics)

    def _encoded(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The ids (n, C) int32 and numeric values (n, K) float32 of a chunk."""
        n_rows = len(chunk.labels)
        ids = np.empty((n_rows, len(self._ids)), dtype=np.int32)
        for column, field in enumerate(self._ids):
            ids[:, column], missing = field.ids(chunk)
            unknown = (ids[:, column] == field.out_of_vocabulary) & ~missing
            self.unknown[field.name] += int(unknown.sum())
        self.rows += n_rows
        own = chunk.numerics[:, self._positions]
        return ids, self._rules.values(self._rules.spooled(own))


@contextlib.contextmanager
def _card_stays() -> Iterator[None]:
    """Add to a hint that would change the card what that would mean for a job that is done."""
    try:
        yield
    except DataError as error:
        if error.hint and FORMAT_OF_CARD in error.hint:
            raise DataError(error.message, hint=f"{error.hint}; {_STAYS}") from error
        raise


def _split(ids: np.ndarray, numerics: np.ndarray) -> Split:
    return Split(ids=ids, numerics=numerics, labels=np.zeros(len(ids), dtype=np.uint8))


class _FieldIds(Protocol):
    """The ids of the values of one field."""

    name: str
    out_of_vocabulary: int

    def ids(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The ids (n,) int32 of the chunk's rows, and whether each value is missing (n,)."""


class _TextIds:
    """Ids of texts. Short ones are found by their packed form, as `TextCodes` finds them."""

    def __init__(self, name: str, values: list[bytes]) -> None:
        self.name, self.out_of_vocabulary = name, len(values) + 1
        short = [number for number, value in enumerate(values) if len(value) <= MOST_BYTES]
        lengths = np.array([len(values[number]) for number in short], dtype=np.int64)
        keys = pack(b"".join(values[n] for n in short), np.cumsum(lengths) - lengths, lengths)
        order = np.argsort(keys)
        self._keys = keys[order]
        self._ids = np.array(short, dtype=np.int32)[order] + 1
        self._texts = pl.Series([value.decode() for value in values], dtype=pl.String)
        self._long: CategoricalCodes | None = None
        self._known = np.empty(0, dtype=np.int32)

    def ids(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        packed = chunk.packed.get(self.name)
        if packed is None:
            return self._of_texts(chunk.categories[self.name])
        ids = np.full(len(packed), self.out_of_vocabulary, dtype=np.int32)
        if len(self._keys):
            places = np.searchsorted(self._keys, packed).clip(max=len(self._keys) - 1)
            found = self._keys[places] == packed
            ids[found] = self._ids[places[found]]
        return ids, packed == 0

    def _of_texts(self, column: pl.Series) -> tuple[np.ndarray, np.ndarray]:
        if self._long is None:
            self._long = CategoricalCodes(column.dtype)
            self._known = self._long.codes(self._texts)
        codes = self._long.codes(column)
        ids = np.full(self._long.n_codes, self.out_of_vocabulary, dtype=np.int32)
        ids[self._known] = np.arange(1, len(self._known) + 1, dtype=np.int32)
        return ids[codes], codes == self._long.missing


class _BucketIds:
    """Ids of the buckets of a numeric field, for the rule log_bucket."""

    def __init__(
        self, name: str, values: list[bytes], *, column: int, zero_is_missing: bool
    ) -> None:
        self.name, self.out_of_vocabulary = name, len(values) + 1
        self._column, self._zero_is_missing = column, zero_is_missing
        self._values = np.array([float(value) for value in values])  # in rising order

    def ids(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        buckets = log_buckets(chunk.numerics[:, self._column])
        ids = np.full(len(buckets), self.out_of_vocabulary, dtype=np.int32)
        if len(self._values):
            places = np.searchsorted(self._values, buckets).clip(max=len(self._values) - 1)
            found = self._values[places] == buckets
            ids[found] = places[found] + 1
        return ids, np.isnan(buckets) | (self._zero_is_missing & (buckets == 0))


class _BinIds:
    """Ids of the bins of a numeric field, for the rule quantile."""

    def __init__(self, name: str, cuts: list[float], *, column: int) -> None:
        self.name, self.out_of_vocabulary = name, len(cuts) + 2
        self._column, self._cuts = column, np.array(cuts)

    def ids(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        values = chunk.numerics[:, self._column]
        missing = np.isnan(values)
        ids = np.searchsorted(self._cuts, values, side="left").astype(np.int32) + 1
        ids[missing] = self.out_of_vocabulary
        return ids, missing


def _ids_of(
    table: PreparedTable,
    column: CardColumn,
    settings: DataSettings,
    *,
    numeric: Sequence[CardColumn],
) -> _FieldIds:
    values = _vocabulary(table, column.name)
    if column.role != "numeric":
        return _TextIds(column.name, values)
    place = numeric.index(column)
    if column.rule(settings) == "log_bucket":
        zero = settings.zero_is_missing
        return _BucketIds(column.name, values, column=place, zero_is_missing=zero)
    return _BinIds(column.name, _fit_of(table, column, settings).cuts or [], column=place)


def _fit_of(table: PreparedTable, column: CardColumn, settings: DataSettings) -> NumericFit:
    """The rule of a numeric field with its constants. Raises DataError where they were not kept."""
    rule = column.rule(settings)
    if table.manifest.numeric is not None:
        return table.manifest.numeric[column.name]
    if rule in ("minmax", "standard", "quantile"):
        raise DataError(
            f"{table.path}: was prepared by a version that did not keep what the rule {rule} of"
            f" `{column.name}` was fitted to",
            hint=_AGAIN,
        )
    return NumericFit(rule=rule)


def _card_of(table: PreparedTable) -> tuple[DatasetCard, DataSettings]:
    """The card and the settings from which a table was prepared."""
    manifest: Manifest = table.manifest
    try:
        card = manifest.card or load_card(manifest.dataset)
        settings = card.settings_class.parse(manifest.settings, where=str(table.path))
    except UsageError as error:
        raise DataError(error.message, hint=_AGAIN) from error
    if TableSpec(card=card, settings=settings).digest != manifest.variant:
        raise DataError(
            f"{table.path}: was prepared with another card `{card.name}` than that of this version",
            hint=_AGAIN,
        )
    return card, settings


def _check_file(table: PreparedTable, name: str) -> bytes:
    """The content of a file of the table. Raises DataError unless it is as it was prepared."""
    path = table.path / name
    try:
        with open_file(path) as file:
            content = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}", hint=_AGAIN) from error
    if hashlib.sha256(content).hexdigest() != table.manifest.outputs[name]:
        raise DataError(f"{path}: was changed since it was prepared", hint=_AGAIN)
    return content


def _vocabulary(table: PreparedTable, name: str) -> list[bytes]:
    """The values of a field in the order of their ids, from 1."""
    values = _check_file(table, vocabulary_file(name)).split(b"\n")[:-1]
    (size,) = (field.vocabulary_size for field in table.schema.categorical if field.name == name)
    if size != len(values) + 2:
        raise DataError(
            f"{table.path}: the vocabulary of `{name}` has values with a line feed, and cannot be"
            " read back",
            hint="prepare the log without such values",
        )
    return values
