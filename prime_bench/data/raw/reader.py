"""Read csv files as chunks of rows; values of categorical fields stay the texts that they are.

Shapes: n rows of a block, C categorical and K numeric fields, W columns of the file.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from prime_bench.base.errors import DataError
from prime_bench.base.words import counted
from prime_bench.data.card import DatasetCard
from prime_bench.data.manifest import SPLIT_NAMES, InputFile, PublishedForm
from prime_bench.data.raw.frames import ColumnFile, columnar_kind
from prime_bench.data.raw.lines import BLOCK_BYTES, FORMAT_OF_CARD, Lines
from prime_bench.data.raw.packed import MOST_BYTES, integers, pack_text
from prime_bench.data.raw.source import SourceFile, Stream, digests_as_stored, open_source
from prime_bench.data.raw.text import column_fault, read_lines
from prime_bench.data.split import RowHash, split_by_hash
from prime_bench.data.stages import Chunk, OnProgress, StageProgress, no_log, no_progress
from prime_bench.settings.data import DataSettings, LogSettings

_HOURS = np.array([pack_text(f"{hour:02}") for hour in range(24)])
_LABELS = {pack_text(text): label for text, label in (("0", 0), ("1", 1), ("0.0", 0), ("1.0", 1))}
_ISO = (
    r"^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?::(\d{2}(?:\.\d{1,9})?))?)?(Z|[+-]\d{2}:?\d{2})?$"
)
_TIMES = "such as 1700000000, 2024-01-31 or 2024-01-31T10:00:00Z"
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class Reader:
    """Reads the files of one card. Each file that was read adds to `inputs` and `positives`."""

    def __init__(
        self,
        card: DatasetCard,
        settings: DataSettings,
        sources: Sequence[SourceFile],
        *,
        exact: bool = False,
        known: Sequence[str] = (),
        block_bytes: int = BLOCK_BYTES,
        on_progress: OnProgress = no_progress,
        log: Callable[[str], None] = no_log,
    ) -> None:
        """Set up the reader; nothing is read yet.

        Args:
            card: The columns. Rows of a card without a label have the label 0.
            settings: How rows are split; those of a card whose files are not split have the split
                of their file, the first one for a file without.
            sources: The files.
            exact: Whether a file must have the columns of the card alone, in its order.
            known: Columns beside those of the card that a file may have without a message.
            block_bytes: Bytes of a block.
            on_progress: Called after each block.
            log: Called with one-line messages for the user.
        """
        self.inputs: list[InputFile] = []
        self.positives: list[int] = []
        self._card = card
        self._settings = settings
        self._sources = sources
        self._block_bytes = block_bytes
        self._exact = exact
        self._on_progress = on_progress
        self._log = log
        self._ignored = set(known)
        self._parser = _Parser(card, settings)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in file order. Raises DataError, with file and line, for invalid ones."""
        total = sum(source.stored_bytes for source in self._sources)
        before, rows = 0, 0
        for source in self._sources:
            first_row, positives = rows, 0
            with self._opened(source) as (stream, blocks):
                for lines in blocks:
                    chunk = self._parser.chunk(lines, source)
                    yield chunk
                    rows += len(chunk.labels)
                    positives += int(chunk.labels.sum())
                    done = before + stream.done_bytes
                    self._on_progress(
                        StageProgress(stage="reading", done=done, total=total, rows=rows)
                    )
                self.inputs.append(self._input(source, stream, rows=rows - first_row))
            self.positives.append(positives)
            before += source.stored_bytes

    @contextlib.contextmanager
    def _opened(self, source: SourceFile) -> Iterator[tuple[Stream | ColumnFile, Iterator[Lines]]]:
        """Open a file, and choose how it is read: the facts that a Stream has, and its lines."""
        columns = {column.name: column.role == "label" for column in self._card.columns}
        if (kind := columnar_kind(source)) is not None:
            file = ColumnFile(source, kind=kind)
            names = file.names
            if (self._exact and names != list(columns)) or not columns.keys() <= set(names):
                n_columns = (
                    f"expected {counted(len(columns), 'column')}, the {kind} file has {len(names)}"
                )
                raise column_fault(names, list(columns), expectation=f"{source.name}: {n_columns}")
            self._ignore(source, [name for name in names if name not in columns])
            yield file, file.lines(columns, missing=self._card.format.missing)
            return
        with open_source(source) as stream:
            lines = read_lines(
                stream.read,
                where=source.name,
                header=self._card.header,
                form=self._card.format,
                exact=self._exact,
                on_layout=lambda layout: self._ignore(source, layout.extra),
                block_bytes=self._block_bytes,
            )
            # Closed before the stream, which a thread may be reading.
            with contextlib.closing(lines):
                yield stream, lines

    def _ignore(self, source: SourceFile, names: Sequence[str]) -> None:
        """Say once of each column that the card does not have."""
        new = [name for name in names if name not in self._ignored]
        self._ignored.update(new)
        if new:
            more = ", ..." if new[10:] else ""
            self._log(
                f"{source.name}: not on the card, left out:"
                f" {', '.join(f'`{name}`' for name in new[:10])}{more}"
            )

    def _has_published_rows(self, rows: int) -> bool:
        return rows in [file.rows for file in self._card.files.values()]

    def _input(self, source: SourceFile, stream: Stream | ColumnFile, *, rows: int) -> InputFile:
        """The facts of a file that was read, for the manifest. A file whose lines end in CRLF, or
        did when it was published, is read once more for another MD5.
        """
        on_card: dict[str, str] = {split: file.md5 for split, file in self._card.files.items()}
        expected = None if source.split is None else on_card.get(SPLIT_NAMES[source.split])
        published: PublishedForm | None = None
        as_stored = with_crlf = None
        if expected == stream.md5:
            published = "line feeds" if stream.has_crlf else "as stored"
        elif expected is not None and stream.has_crlf:
            # Read again: an MD5 more in the first pass would make every CRLF file 8 % slower.
            as_stored, _ = digests_as_stored(source)
            published = "as stored" if expected == as_stored else None
        elif (
            source.made_from is None
            and self._has_published_rows(rows)
            and isinstance(stream, Stream)
        ):
            # The csv was published with CRLF, and this is made from libsvm, or was converted.
            found, _ = digests_as_stored(source, with_crlf=True)
            if found in [file.md5 for file in self._card.files.values()]:
                with_crlf = found
                published = "CRLF" if expected == found else None
        return InputFile(
            path=source.name,
            size=source.size,
            mtime_ns=source.mtime_ns,
            content_bytes=stream.content_bytes,
            md5=stream.md5,
            sha256=stream.sha256,
            rows=rows,
            made_from=source.made_from,
            md5_as_stored=as_stored,
            md5_with_crlf=with_crlf,
            published=published,
        )


class _Parser:
    """Turns checked lines into chunks."""

    def __init__(self, card: DatasetCard, settings: DataSettings) -> None:
        positions = {column.name: i for i, column in enumerate(card.columns)}
        self._columns = card.columns
        self._is_published = bool(card.files)
        self._label = positions.get(next((c.name for c in card.columns if c.role == "label"), ""))
        self._hours = [positions[c.name] for c in card.fields if c.role == "hour"]
        self._numeric = [positions[c.name] for c in card.fields if c.role == "numeric"]
        self._categorical = [positions[c.name] for c in card.fields if c.role != "numeric"]
        if settings.gauc_by and (group := positions[settings.gauc_by]) not in self._categorical:
            self._categorical.append(group)
        # One Categories per field, so that a text has the same code in all blocks of all files.
        self._types: list[pl.DataType] = [
            pl.Float64() if i in self._numeric else pl.Categorical(pl.Categories.random())
            for i in range(len(card.columns))
        ]
        self._position = {column.role: i for i, column in enumerate(card.columns)}
        self._times_are_numbers: bool | None = None
        self._rows = 0
        self._log = settings if isinstance(settings, LogSettings) else None
        self._hash = RowHash(self._log.split_seed) if self._log is not None else None

    def chunk(self, lines: Lines, source: SourceFile) -> Chunk:
        labels = self._labels(lines, source)
        hours = {position: _hours(lines, source, position) for position in self._hours}
        fits = lines.lengths.max(axis=0) <= MOST_BYTES
        packed = {i: lines.packed[i] for i in self._categorical if fits[i]}
        packed |= {i: _HOURS[column % 100] for i, column in hours.items()}
        numbers: dict[int, np.ndarray | pl.Series | None] = {
            i: integers(lines.packed[i], lines.lengths[:, i]) for i in self._numeric
        }
        longer = [i for i in self._categorical if i not in packed]
        broken = [i for i, column in numbers.items() if column is None]
        parsed = self._parsed(lines, longer + broken)
        numbers |= parsed
        return Chunk(
            categories=pl.DataFrame([parsed[i] for i in longer]),
            packed={self._columns[i].name: column for i, column in packed.items()},
            numerics=self._numerics(numbers, lines, source),
            labels=labels,
            split=self._split(lines, source, hours),
        )

    def _parsed(self, lines: Lines, positions: list[int]) -> dict[int, pl.Series]:
        """Parse columns with polars: texts over 8 bytes, and numbers that are not whole."""
        if not positions:
            return {}
        if lines.frame is not None:
            texts = {position: lines.frame[str(position)] for position in positions}
            for i in set(positions) & set(self._numeric):
                texts[i] = texts[i].str.strip_chars_start(" ")  # as in a csv
            return {
                i: text.cast(self._types[i], strict=False).alias(self._columns[i].name)
                for i, text in texts.items()
            }
        frame = pl.read_csv(
            lines.content,
            has_header=False,
            schema={
                column.name: kind if i in positions else pl.String()
                for i, (column, kind) in enumerate(zip(self._columns, self._types, strict=True))
            },
            columns=sorted(positions),
            quote_char=None,
            # Invalid numbers become null; `_numerics` reports them with their line.
            ignore_errors=True,
        )
        assert frame.height == len(lines.ends), (frame.height, len(lines.ends))  # noqa: S101
        parsed = {position: frame[self._columns[position].name] for position in positions}
        return {
            i: column if i in self._numeric else column.fill_null("")
            for i, column in parsed.items()
        }

    def _labels(self, lines: Lines, source: SourceFile) -> np.ndarray:
        """The labels (n,) uint8, written as `0` and `1`, or `0.0` and `1.0` as some tools do."""
        if self._label is None:
            return np.zeros(len(lines.ends), dtype=np.uint8)
        packed = lines.packed[self._label]
        labels = np.full(len(packed), 255, dtype=np.uint8)
        for text, label in _LABELS.items():
            labels[packed == text] = label
        if (labels > 1).any():
            self._refuse(
                lines,
                source,
                int(np.argmax(labels > 1)),
                self._label,
                "expected 0 or 1",
                hint="write the label column as 0 (no click) and 1 (click) in the file",
            )
        return labels

    def _numerics(
        self, columns: Mapping[int, np.ndarray | pl.Series | None], lines: Lines, source: SourceFile
    ) -> np.ndarray:
        """The numeric values (n, K) float64, NaN where the field is empty."""
        numerics = np.empty((len(lines.ends), len(self._numeric)), dtype=np.float64, order="F")
        bad: list[tuple[int, int]] = []
        for k, position in enumerate(self._numeric):
            column = columns[position]
            if isinstance(column, pl.Series):
                numerics[:, k] = column.to_numpy()
                # The table has float32, so values that are finite only in float64 are refused too.
                faulty = ~(np.abs(numerics[:, k]) <= _FLOAT32_MAX)
                faulty &= lines.lengths[:, position] > 0
                if faulty.any():
                    bad.append((int(np.argmax(faulty)), position))
            else:
                numerics[:, k] = column
        if bad:
            row, position = min(bad)
            self._refuse(
                lines,
                source,
                row,
                position,
                "expected a finite number or nothing",
                hint=self._missing_hint(lines.field(row, position)),
            )
        return numerics

    def _split(self, lines: Lines, source: SourceFile, hours: dict[int, np.ndarray]) -> np.ndarray:
        """The split of each row, or its time or number, as `Chunk.split` has them."""
        n_rows = len(lines.ends)
        if self._log is None or self._hash is None:
            return np.full(n_rows, source.split or 0, dtype=np.uint8)
        if self._log.split == "time":
            return self._times(lines, source) if "time" in self._position else hours[self._hours[0]]
        if self._log.split == "fraction":
            self._rows += n_rows
            return np.arange(self._rows - n_rows, self._rows)
        if self._log.split == "column":
            return self._named_splits(lines, source)
        hashes = self._hash(lines.text, lines.starts(0), lines.ends[:, -1])
        if self._log.split == "group":
            position = self._position["group"]
            of_groups = self._hash(*lines.column(position))
            hashes = np.where(lines.lengths[:, position] > 0, of_groups, hashes)
        return split_by_hash(hashes, self._log.split_fractions)

    def _named_splits(self, lines: Lines, source: SourceFile) -> np.ndarray:
        """(n,) uint8: the splits that the column with the role split names."""
        position = self._position["split"]
        texts: dict[str, list[str]] = {split: [split] for split in SPLIT_NAMES}
        texts |= {str(split): own for split, own in self._columns[position].splits.items()}
        found = np.full(len(lines.ends), len(SPLIT_NAMES), dtype=np.uint8)
        for index, split in enumerate(SPLIT_NAMES):
            for text in texts[split]:
                found[lines.equal(position, text)] = index
        if (found == len(SPLIT_NAMES)).any():
            row = int(np.argmax(found == len(SPLIT_NAMES)))
            known = ", ".join(f"`{text}`" for split in SPLIT_NAMES for text in texts[split])
            self._refuse(lines, source, row, position, f"expected {known}")
        return found

    def _times(self, lines: Lines, source: SourceFile) -> np.ndarray:
        """(n,) int64: whole numbers as they are, or ISO times in microseconds since 1970, UTC."""
        position = self._position["time"]
        text, starts, ends = lines.column(position)
        content = text.tobytes()
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        texts = pl.Series("time", [content[start:end].decode() for start, end in pairs])
        numbers = texts.cast(pl.Int64, strict=False)
        if self._times_are_numbers is None:
            self._times_are_numbers = numbers[0] is not None
        times = numbers if self._times_are_numbers else _iso_times(texts)
        if times.null_count():
            wanted = "a whole number" if self._times_are_numbers else "a time"
            row = int(times.is_null().arg_max() or 0)
            shown = "like that of the first row" if self._rows or row else _TIMES
            self._refuse(lines, source, row, position, f"expected {wanted} {shown}")
        self._rows += len(texts)
        return times.to_numpy()

    def _missing_hint(self, text: str) -> str:
        """What to do about a text among the numbers of the user's own files."""
        if self._is_published or not text.isprintable() or len(text) > 20:
            return ""
        mark = json.dumps(text, ensure_ascii=False)
        return f"if it stands for a missing value: missing = [{mark}] {FORMAT_OF_CARD}"

    def _refuse(
        self,
        lines: Lines,
        source: SourceFile,
        row: int,
        position: int,
        expected: str,
        *,
        hint: str = "",
    ) -> None:
        name = self._columns[position].name
        _refuse(lines, source, row, position, f"`{name}`: {expected}", hint=hint)


def _iso_times(texts: pl.Series) -> pl.Series:
    """Microseconds since 1970 in UTC; null for what is no ISO time."""
    parts = texts.to_frame("time").select(
        pl.col("time").str.extract_groups(_ISO).struct.rename_fields(["day", "hm", "s", "zone"])
    )
    day, hm, seconds, zone = (
        parts["time"].struct.field(name) for name in ("day", "hm", "s", "zone")
    )
    clock = hm.fill_null("00:00") + ":" + seconds.fill_null("00")
    time = (day + " " + clock).str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    offset = zone.str.replace("Z", "+00:00").str.replace(":", "").fill_null("+0000")
    sign = offset.str.starts_with("-").cast(pl.Int64) * -2 + 1
    minutes = offset.str.slice(1, 2).cast(pl.Int64) * 60 + offset.str.slice(3, 2).cast(pl.Int64)
    return time.cast(pl.Int64) - sign * minutes * 60_000_000


def _hours(lines: Lines, source: SourceFile, position: int) -> np.ndarray:
    """Times (n,) int64 as numbers YYMMDDHH. Raises DataError for anything else."""
    start = lines.starts(position)
    good = lines.lengths[:, position] == 8
    if good.all():
        digits = lines.text[start[:, None] + np.arange(8)].astype(np.int64) - ord("0")
        keys = digits @ (10 ** np.arange(7, -1, -1))
        month, day, hour = keys // 10_000 % 100, keys // 100 % 100, keys % 100
        good = ((digits >= 0) & (digits <= 9)).all(axis=1)
        good &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (hour <= 23)
        if good.all():
            return keys
    _refuse(lines, source, int(np.argmin(good)), position, "`hour`: expected 8 digits, YYMMDDHH")
    raise AssertionError("unreachable")


def _refuse(
    lines: Lines, source: SourceFile, row: int, position: int, fault: str, *, hint: str = ""
) -> None:
    raise DataError(
        f"{_place(lines, source, row)}: {fault}, found `{lines.field(row, position)[:80]}`",
        hint=hint,
    )


def _place(lines: Lines, source: SourceFile, row: int) -> str:
    number = lines.number(row)
    return f"{source.name}: row {number}" if lines.unit == "row" else source.place(number)
