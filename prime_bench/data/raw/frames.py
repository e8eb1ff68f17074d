"""Files that are not plain csv, read with polars: quoted, columns in any order, Parquet, Arrow.

Whatever the form of a file, a row becomes the line that a plain csv in the order of the card would
have, so that its hash and its values are the same. Such a line is never parsed again: where its
fields end is known, so a field may hold a comma or a line feed.

Shapes: n rows of W columns of the card.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import polars as pl

from prime_bench.base.errors import DataError
from prime_bench.data.raw.lines import (
    FORMAT_OF_CARD,
    Layout,
    Lines,
    character_fault,
    counts,
    is_utf8,
    likeness,
)
from prime_bench.data.raw.source import SourceFile, digests_as_stored, reading

_BATCH_ROWS = 1 << 14
_LINE_FEED = ord("\n")
_WHOLE = 2.0**53
"""Below it a float64 has every integer."""
_DAYS, _SECONDS = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S%.f"
_MAGIC = {b"PAR1": "Parquet", b"ARROW1": "Arrow IPC"}


def quoted_lines(
    content: bytes, *, where: str, first_line: int, layout: Layout
) -> tuple[Lines | None, bytes]:
    """Parse a block of lines with polars (RFC 4180).

    Returns the lines of the rows that are complete, None if there is none, and the bytes of a row
    that goes on in the next block. Raises DataError, with file and line, for the first invalid row.
    """
    text = np.frombuffer(content, dtype=np.uint8)
    separator = ord(layout.separator)
    quotes = np.flatnonzero(text == ord(layout.quote)) if layout.quote else np.empty(0, dtype=int)
    ends = np.flatnonzero((text == separator) | (text == _LINE_FEED))
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    row_ends = ends[text[ends] == _LINE_FEED]
    cut = int(row_ends[-1]) + 1 if len(row_ends) else 0
    whole, rest = content[:cut], content[cut:]
    if not cut:
        return None, rest
    ends, quotes = ends[ends < cut], quotes[quotes < cut]
    line = np.array([separator] * (layout.width - 1) + [_LINE_FEED], dtype=np.uint8)
    fits = len(ends) % layout.width == 0
    fits = fits and bool((text[ends].reshape(-1, layout.width) == line).all())
    feeds = np.flatnonzero(text[:cut] == _LINE_FEED)
    starts = np.append(0, row_ends[:-1] + 1)
    numbers = first_line + np.searchsorted(feeds, starts)
    clean = b"\0" not in whole and b"\r" not in whole and is_utf8(whole)
    if not fits or not clean or not _quotes_are_sound(text[:cut], quotes, separator):
        raise _first_fault(whole, row_ends, numbers, where=where, layout=layout)
    names = [str(position) for position in range(layout.width)]
    frame = pl.read_csv(
        whole,
        has_header=False,
        separator=layout.separator,
        quote_char=layout.quote or None,
        schema=dict.fromkeys(names, pl.String()),
        columns=sorted(layout.positions),
    ).select(pl.col(names[position]) for position in layout.positions)
    assert frame.height == len(row_ends), (frame.height, len(row_ends))  # noqa: S101
    return lines_of(frame, numbers=numbers, missing=layout.missing), rest


def lines_of(
    frame: pl.DataFrame,
    *,
    numbers: np.ndarray,
    missing: Sequence[str] = (),
    unit: Literal["line", "row"] = "line",
) -> Lines:
    """The lines (n, W) of a frame of texts; `missing` texts become empty.

    `numbers` (n,) are those of the rows in their file, from 1, which counts in `unit`.
    """
    frame = frame.select(pl.all().fill_null(""))
    if missing:
        frame = frame.with_columns(
            pl.when(pl.all().is_in(list(missing))).then(pl.lit("")).otherwise(pl.all()).name.keep()
        )
    lengths = frame.select(pl.all().str.len_bytes()).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths.ravel() + 1).reshape(lengths.shape) - 1
    joined = frame.select(pl.concat_str(pl.all(), separator=",")).to_series().str.join("\n")
    content = f"{joined.item()}\n".encode()
    return Lines(
        content=content,
        first_line=int(numbers[0]),
        ends=ends,
        numbers=numbers,
        unit=unit,
        frame=frame.rename(dict(zip(frame.columns, map(str, range(frame.width)), strict=True))),
    )


def _quotes_are_sound(text: np.ndarray, quotes: np.ndarray, separator: int) -> bool:
    """Whether each quotation mark starts or ends a field, or is one of two that stand for one."""
    if not len(quotes):
        return True
    padded = np.concatenate([[_LINE_FEED], text])  # the byte before position i is padded[i]
    opening, closing = quotes[::2], quotes[1::2]
    before, after = padded[opening], text[closing + 1]
    # A mark that opens directly behind one that closed stands, with it, for a mark in the text.
    again = np.isin(opening, closing + 1)
    starts = (before == separator) | (before == _LINE_FEED) | again
    ends = (after == separator) | (after == _LINE_FEED) | np.isin(closing + 1, opening)
    return bool(starts.all() and ends.all())


def _first_fault(
    content: bytes, row_ends: np.ndarray, numbers: np.ndarray, *, where: str, layout: Layout
) -> DataError:
    start = 0
    for end, number in zip(row_ends.tolist(), numbers.tolist(), strict=True):
        row = content[start:end]
        start = end + 1
        fault = character_fault(row, quote="")
        if fault is not None:
            return DataError(f"{where}: line {number}: {fault[0]}", hint=fault[1])
        if not row:
            return DataError(f"{where}: line {number} is blank", hint="remove blank lines")
        text = np.frombuffer(row + b"\n", dtype=np.uint8)
        quotes = np.flatnonzero(text == ord(layout.quote)) if layout.quote else np.empty(0, int)
        if not _quotes_are_sound(text, quotes, ord(layout.separator)):
            return DataError(
                f"{where}: line {number}: has a quotation mark inside a field",
                hint="quote the whole field, and write a mark in it twice; or, if marks are"
                f' ordinary characters of this file, set quote = "" {FORMAT_OF_CARD}',
            )
        separators = np.flatnonzero(text == ord(layout.separator))
        found = 1 + int((np.searchsorted(quotes, separators) % 2 == 0).sum())
        if found != layout.width:
            expected = counts(layout.width, layout.separator)
            return DataError(
                f"{where}: {expected}, line {number} has {found}{likeness(row.decode(), found)}"
            )
    raise AssertionError("no row of the invalid block is invalid")


def columnar_kind(source: SourceFile) -> str | None:
    """`Parquet` or `Arrow IPC` if a file of its own starts as one, else None."""
    if type(source) is not SourceFile or source.compressed:
        return None
    with reading(source.path), source.path.open("rb") as file:
        start = file.read(8)
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)


class ColumnFile:
    """A Parquet or Arrow IPC file, with what a Stream tells of a text file."""

    has_crlf = False

    def __init__(self, source: SourceFile, *, kind: str) -> None:
        self._path = source.path
        self._kind = kind
        self._rows = 0
        self._done = 0
        self.content_bytes = source.size
        self.md5, self.sha256 = digests_as_stored(source)

    @property
    def done_bytes(self) -> int:
        """The share of the rows that were read, as bytes of the file."""
        return self.content_bytes * self._done // max(self._rows, 1)

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        with self._reading():
            return self._scan().collect_schema().names()

    def lines(
        self, columns: Mapping[str, bool], *, missing: Sequence[str], batch_rows: int = _BATCH_ROWS
    ) -> Iterator[Lines]:
        """Yield the rows in the order of the file.

        `columns` are those of the card in its order: name -> whether it is the label. Raises
        DataError for a column whose type has no text, and where the file cannot be read.
        """
        with self._reading():
            scan = self._scan()
            schema = scan.collect_schema()
            texts = []
            whole = self._whole([name for name in columns if schema[name].is_float()])
            for name, is_label in columns.items():
                text = _text_of(
                    pl.col(name), schema[name], is_label=is_label, is_whole=name in whole
                )
                if text is None:
                    raise DataError(
                        f"{self._path}: `{name}`: a column of type {schema[name]} is not read",
                        hint="write it as text, numbers, times or true and false",
                    )
                texts.append(text.alias(name))
            self._rows = scan.select(pl.len()).collect().item()
            batches = scan.select(texts).collect_batches(chunk_size=batch_rows, maintain_order=True)
        with contextlib.closing(batches) if hasattr(batches, "close") else contextlib.nullcontext():
            while True:
                with self._reading():
                    batch = next(batches, None)
                if batch is None:
                    break
                if batch.height:
                    numbers = np.arange(self._done + 1, self._done + batch.height + 1)
                    self._done += batch.height
                    yield lines_of(batch, numbers=numbers, missing=missing, unit="row")
        if not self._done:
            raise DataError(f"{self._path}: has no rows")

    @property
    def unread(self) -> dict[str, str]:
        """The columns whose type has no text -> their type."""
        with self._reading():
            schema = self._scan().collect_schema()
        return {
            name: str(dtype)
            for name, dtype in schema.items()
            if _text_of(pl.col(name), dtype, is_label=False, is_whole=False) is None
        }

    def _whole(self, floats: Sequence[str]) -> set[str]:
        """Those of the columns of floats that have whole numbers alone, besides missing values."""
        if not floats:
            return set()
        column = pl.col(*floats)
        found = self._scan().select((column.is_nan() | (column == column.floor())).all())
        return {
            name
            for name, whole in found.collect(engine="streaming").row(0, named=True).items()
            if whole
        }

    def _scan(self) -> pl.LazyFrame:
        if self._kind == "Parquet":
            return pl.scan_parquet(self._path, glob=False)
        return pl.scan_ipc(self._path)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            reason = str(error).strip().split("\n")[0]
            raise DataError(
                f"{self._path}: is damaged or no {self._kind} file: {reason}"
            ) from error


def _text_of(
    column: pl.Expr, dtype: pl.DataType, *, is_label: bool, is_whole: bool
) -> pl.Expr | None:
    """The text of a typed column as a csv has it; None for types that have none.

    Floats of a column that `is_whole` are written without a point, since whole numbers with missing
    values are stored as floats; those of other columns have one, as programs write them. NaN is
    missing.
    """
    if dtype == pl.String:
        return column
    if dtype.is_integer() or dtype.is_decimal() or dtype == pl.Null:
        return column.cast(pl.String)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    if dtype == pl.Boolean:
        return column.cast(pl.Int8).cast(pl.String) if is_label else column.cast(pl.String)
    if dtype.is_float():
        whole = (column.abs() < _WHOLE) if is_whole else pl.lit(False)
        return (
            pl.when(column.is_nan())
            .then(None)
            .when(whole)
            .then(column.cast(pl.Int64, strict=False).cast(pl.String))
            .otherwise(column.cast(pl.String))
        )
    if dtype == pl.Date:
        return column.dt.to_string(_DAYS)
    if isinstance(dtype, pl.Datetime):
        if dtype.time_zone is None:
            return column.dt.to_string(_SECONDS)
        return column.dt.convert_time_zone("UTC").dt.to_string(f"{_SECONDS}+00:00")
    return None
