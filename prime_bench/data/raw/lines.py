"""Split raw bytes into blocks of lines, checked for their number of fields and for plain UTF-8.

This is the fast way, for files without quoted fields and with the columns of the card in its order.

Shapes: n lines of W fields.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from prime_bench.base.errors import DataError
from prime_bench.data.prefetch import prefetch
from prime_bench.data.raw.packed import pack

BLOCK_BYTES = 1 << 21  # so small that the arrays made from a block fit into the cache
LONGEST_LINE = 1 << 26
_LINE_FEED = ord("\n")
SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", " ": "space"}
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"PK\3\4": ("zip", "unzip"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"7z\xbc\xaf\x27\x1c": ("7z", "7z x"),
    b"Rar!": ("rar", "unrar x"),
}
"""First bytes of compressed files, their kind, and the program that unpacks them."""
FORMAT_OF_CARD = "in the card's [format]"
"""Where a hint has a key that says how text files are written."""
_READ = ("gzip", "bzip2", "xz", "zip", "zstd")
_BOM = b"\xef\xbb\xbf"
_CARRIAGE_RETURN = ord("\r")
_UNIX = "end lines in a line feed, or in a carriage return and a line feed"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the lines of a text file are built, and where they have the columns of a card."""

    separator: str
    """One of `SEPARATORS`."""
    quote: str
    """The quotation mark around fields; empty if marks are ordinary characters."""
    missing: tuple[str, ...]
    """Texts that stand for a missing value, besides the empty one."""
    width: int
    """Number of fields of a line."""
    positions: tuple[int, ...]
    """Position in the line of each column of the card, in the card's order."""
    extra: tuple[str, ...] = ()
    """Names of the columns that the card does not have."""

    def is_plain(self, content: bytes) -> bool:
        """Whether a block of lines has, but for the separator, the form of a plain csv."""
        return (
            self.positions == tuple(range(self.width))
            and not self.missing
            and not (self.quote and self.quote.encode() in content)
            and (self.separator == "," or b"," not in content)
        )


@dataclass(frozen=True, kw_only=True)
class Lines:
    """n checked lines of W fields."""

    content: bytes
    """The bytes of the lines; each line ends in a line feed."""
    first_line: int
    """Number of the first line in its file, from 1."""
    ends: np.ndarray
    """(n, W) int64: position of the comma or line feed after each field. Fields may have them too
    where there is a frame."""
    numbers: np.ndarray | None = None
    """(n,) number of each row in its file, from 1; None if they are those of adjacent lines."""
    unit: Literal["line", "row"] = "line"
    """What `numbers` count: lines of a text, or rows of a Parquet or Arrow file."""
    frame: pl.DataFrame | None = None
    """The fields as columns of texts named `0`, `1`, ..., where they were parsed already."""

    def number(self, row: int) -> int:
        """The number of a row in its file, from 1."""
        return self.first_line + row if self.numbers is None else int(self.numbers[row])

    @property
    def text(self) -> np.ndarray:
        """The content as (bytes,) uint8."""
        return np.frombuffer(self.content, dtype=np.uint8)

    def starts(self, column: int) -> np.ndarray:
        """Positions (n,) of the first bytes of a column's fields."""
        starts: np.ndarray = self._starts[:, column]
        return starts

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(n, W) int64: number of bytes of each field."""
        lengths: np.ndarray = self.ends - self._starts
        return lengths

    @functools.cached_property
    def packed(self) -> np.ndarray:
        """(W, n) uint64: the fields as `packed.pack` codes them, longer ones cut to 8 bytes."""
        packed = pack(self.content, self._starts.ravel(), self.lengths.ravel())
        # A column is contiguous, since callers work column by column.
        return np.ascontiguousarray(packed.reshape(self.ends.shape).T)

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """(n, W) int64: position of the first byte of each field."""
        starts = np.zeros(self.ends.size, dtype=np.int64)
        np.add(self.ends.ravel()[:-1], 1, out=starts[1:])
        return starts.reshape(self.ends.shape)

    def column(self, column: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The fields of a column as adjacent lines: text (bytes,) uint8, starts (n,), ends (n,)."""
        lengths = self.lengths[:, column] + 1
        starts = np.cumsum(lengths) - lengths
        ends = starts + lengths - 1
        shifts = self.starts(column) - starts
        text = self.text.take(np.arange(lengths.sum()) + np.repeat(shifts, lengths))
        text[ends] = _LINE_FEED
        return text, starts, ends

    def equal(self, column: int, value: str) -> np.ndarray:
        """Whether each of the n fields of a column is `value`."""
        wanted = np.frombuffer(value.encode(), dtype=np.uint8)
        equal: np.ndarray = self.lengths[:, column] == len(wanted)
        rows = np.flatnonzero(equal)
        found = self.text[self.starts(column)[rows][:, None] + np.arange(len(wanted))]
        equal[rows] = (found == wanted).all(axis=1)
        return equal

    def field(self, row: int, column: int) -> str:
        """The text of one field."""
        start, end = self.starts(column)[row], self.ends[row, column]
        return self.content[start:end].decode()


def with_line_feeds(read: Callable[[int], bytes], n_bytes: int) -> tuple[bytes, bytes]:
    """Read about `n_bytes`; returns them as they are, and with CRLF replaced by line feeds.

    Both are empty at the end of the file. No CRLF is cut in two.
    """
    piece = read(n_bytes)
    while piece.endswith(b"\r") and (more := read(1)):
        piece += more
    if b"\r" not in piece:
        return piece, piece
    text = np.frombuffer(piece, dtype=np.uint8)
    after = np.flatnonzero(text == _CARRIAGE_RETURN) + 1
    if (text.take(after, mode="clip") == _LINE_FEED).all():
        # Five times as fast as `translate`, sixteen times as to replace two bytes.
        return piece, piece.replace(b"\r", b"")
    return piece, piece.replace(b"\r\n", b"\n")


def blocks(
    read: Callable[[int], bytes], *, where: str, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """Yield blocks of whole lines, read in advance in a thread.

    A byte order mark is left out, and a missing line feed at the end of the file is added. Raises
    DataError if a line is too long.
    """
    rest = b""
    at_start = True
    with prefetch(iter(functools.partial(read, block_bytes), b"")) as pieces:
        for piece in pieces:
            if at_start:
                # A mark that a very small first piece cuts in two is not found, and refused.
                piece, at_start = piece.removeprefix(_BOM), False
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield b"".join((rest, memoryview(piece)[:cut]))
                rest = piece[cut:]
            else:
                rest += piece
                _check_line_ends(rest, where=where)
    if rest:
        yield rest + b"\n"


def _check_line_ends(unfinished: bytes, *, where: str) -> None:
    if len(unfinished) > LONGEST_LINE:
        fault = "lines end in a carriage return alone" if b"\r" in unfinished else "no csv file"
        hint = _UNIX if b"\r" in unfinished else ""
        raise DataError(f"{where}: no line end in {len(unfinished):,} bytes: {fault}", hint=hint)


def checked(
    content: bytes,
    *,
    where: str,
    first_line: int,
    width: int,
    separator: str = ",",
    quote: str = '"',
) -> Lines:
    """Check that each line of a block has `width` fields of plain UTF-8 text.

    Quotation marks (`quote`, if any), carriage returns (a Stream has replaced CRLF) and NUL bytes
    are not allowed. Raises DataError, with file and line, for the first invalid line.
    """
    text = np.frombuffer(content, dtype=np.uint8)
    # Separators (comma, tab or space), line feeds and forbidden bytes have ASCII codes up to the
    # comma's, and in most files few other bytes do: one pass over the bytes finds them.
    forbidden = (b"\r", b"\0", *([quote.encode()] if quote else []))
    if ord(separator) <= ord(","):
        ends = np.flatnonzero(text <= ord(","))
        kinds = text.take(ends)
        wanted = (kinds == ord(separator)) | (kinds == _LINE_FEED)
        clean = True
        if not wanted.all():
            clean = not any(byte in content for byte in forbidden)
            ends, kinds = ends[wanted], kinds[wanted]
    else:
        ends = np.flatnonzero((text == ord(separator)) | (text == _LINE_FEED))
        kinds = text.take(ends)
        clean = not any(byte in content for byte in forbidden)
    line = np.array([ord(separator)] * (width - 1) + [_LINE_FEED], dtype=np.uint8)
    fits = len(ends) % width == 0 and bool((kinds.reshape(-1, width) == line).all())
    if not fits or not clean or not is_utf8(content):
        raise _first_fault(
            content,
            where=where,
            first_line=first_line,
            width=width,
            separator=separator,
            quote=quote,
        )
    return Lines(content=content, first_line=first_line, ends=ends.reshape(-1, width))


def is_utf8(content: bytes) -> bool:
    """Whether bytes are UTF-8."""
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _first_fault(
    content: bytes, *, where: str, first_line: int, width: int, separator: str, quote: str
) -> DataError:
    for number, line in enumerate(content.split(b"\n")[:-1], start=first_line):
        fault = character_fault(line, quote=quote)
        if fault is not None:
            return DataError(f"{where}: line {number}: {fault[0]}", hint=fault[1])
        if not line:
            return DataError(f"{where}: line {number} is blank", hint="remove blank lines")
        found = line.count(separator.encode()) + 1
        if found != width:
            return DataError(
                f"{where}: {counts(width, separator)}, line {number} has"
                f" {found}{likeness(line.decode(), found)}"
            )
    raise AssertionError("no line of the invalid block is invalid")


def counts(width: int, separator: str) -> str:
    """What a message says of the expected number of fields."""
    return f"expected {width} {SEPARATORS[separator]}-separated fields"


def likeness(line: str, found: int) -> str:
    """For a line of one field, the separator that it seems to have; else empty."""
    names = [name for separator, name in SEPARATORS.items() if separator in line]
    return f"; it looks {names[0]}-separated" if found == 1 and names else ""


def character_fault(line: bytes, *, quote: str) -> tuple[str, str] | None:
    """A message and a hint if a line has forbidden bytes, `quote` (if any) included; else None."""
    if b"\0" in line:
        return "has a NUL byte; this is not a text file in UTF-8", "convert the file to UTF-8"
    if b"\r" in line:
        return "has a carriage return that no line feed follows", _UNIX
    if quote and quote.encode() in line:
        return "has a quotation mark; quoted fields are not part of this format", ""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start + 1} of the line)", "convert the file to UTF-8"
    return None


def check_first_line(line: bytes, *, where: str, quote: str = "") -> None:
    """Raise DataError if the first line, without its line feed, shows that the file is not text.

    So it does if it ends inside a name in quotation marks (`quote`, if any). A carriage return at
    its end is allowed here, since `checked` reports it.
    """
    for start, (kind, program) in _COMPRESSED.items():
        if line.startswith(start):
            named = (
                "name it .gz, .bz2, .xz, .zst or .zip if it is not, or " if kind in _READ else ""
            )
            raise DataError(
                f"{where}: is compressed ({kind})",
                hint=f"{named}unpack it first, for example with `{program}`",
            )
    if line.startswith((b"PAR1", b"ARROW1")):
        raise DataError(
            f"{where}: is a Parquet or Arrow file inside another", hint="unpack it, and name it"
        )
    if b"\r" in line[:-1]:
        raise DataError(f"{where}: line 1: lines end in a carriage return alone", hint=_UNIX)
    if quote and line.count(quote.encode()) % 2:
        raise DataError(
            f"{where}: line 1: a quoted name has no end",
            hint="a column's name may not have a line feed; write a quotation mark inside a quoted"
            " name twice",
        )
