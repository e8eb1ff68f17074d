"""Split raw bytes into blocks of lines, checked for their number of fields and for plain UTF-8.

Shapes: n lines of W fields.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from prime_bench.base.errors import DataError
from prime_bench.data.prefetch import prefetch
from prime_bench.data.raw.packed import pack

BLOCK_BYTES = 1 << 21  # so small that the arrays made from a block fit into the cache
_LONGEST_LINE = 1 << 26
_LINE_FEED = ord("\n")
_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", " ": "space"}
_SUBMISSIONS = (["id", "click"], ["id", "predicted"])
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
_READ = ("gzip", "bzip2", "xz", "zip")
_BOM = b"\xef\xbb\xbf"
_CARRIAGE_RETURN = ord("\r")
_UNIX = "end lines in a line feed, or in a carriage return and a line feed"


@dataclass(frozen=True, kw_only=True)
class Lines:
    """n checked lines of W fields."""

    content: bytes
    """The bytes of the lines; each line ends in a line feed."""
    first_line: int
    """Number of the first line in its file, from 1."""
    ends: np.ndarray
    """(n, W) int64: position of the separator or line feed after each field."""

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
        return piece, piece.translate(None, b"\r")  # three times as fast as to replace
    return piece, piece.replace(b"\r\n", b"\n")


def read_lines(
    read: Callable[[int], bytes],
    *,
    where: str,
    header: Sequence[str],
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Lines]:
    """Check the header and yield blocks of the checked lines after it.

    `read(n)` returns up to n bytes, none at the end, and line feeds in place of CRLF; `where` is
    the file's name in messages. Raises DataError, with file and line, for the first invalid line.
    """
    next_line = 0
    for content in blocks(read, where=where, block_bytes=block_bytes):
        if next_line == 0:
            first, _, content = content.partition(b"\n")
            check_header(first, where=where, expected=header)
            next_line = 2
        if content:
            lines = checked(content, where=where, first_line=next_line, width=len(header))
            next_line += len(lines.ends)
            yield lines
    if next_line == 0:
        raise DataError(f"{where}: the file is empty")
    if next_line == 2:
        raise DataError(f"{where}: has a header and no rows")


def blocks(
    read: Callable[[int], bytes], *, where: str, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """Yield blocks of whole lines, read in advance in a thread.

    A missing line feed at the end of the file is added. Raises DataError if a line is too long.
    """
    rest = b""
    with prefetch(iter(functools.partial(read, block_bytes), b"")) as pieces:
        for piece in pieces:
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
    if len(unfinished) > _LONGEST_LINE:
        fault = "lines end in a carriage return alone" if b"\r" in unfinished else "no csv file"
        hint = _UNIX if b"\r" in unfinished else ""
        raise DataError(f"{where}: no line end in {len(unfinished):,} bytes: {fault}", hint=hint)


def checked(
    content: bytes, *, where: str, first_line: int, width: int, separator: str = ","
) -> Lines:
    """Check that each line of a block has `width` fields of plain UTF-8 text.

    Quotation marks, carriage returns (a Stream has replaced CRLF) and NUL bytes are not allowed.
    Raises DataError, with file and line, for the first invalid line.
    """
    text = np.frombuffer(content, dtype=np.uint8)
    # Separators (comma, tab or space), line feeds and forbidden bytes have ASCII codes up to the
    # comma's, and in most files few other bytes do: one pass over the bytes finds them.
    ends = np.flatnonzero(text <= ord(","))
    kinds = text.take(ends)
    wanted = (kinds == ord(separator)) | (kinds == _LINE_FEED)
    clean = True
    if not wanted.all():
        clean = not any(byte in content for byte in (b"\r", b"\0", b'"'))
        ends, kinds = ends[wanted], kinds[wanted]
    line = np.array([ord(separator)] * (width - 1) + [_LINE_FEED], dtype=np.uint8)
    fits = len(ends) % width == 0 and bool((kinds.reshape(-1, width) == line).all())
    if not fits or not clean or not _is_utf8(content):
        raise _first_fault(
            content, where=where, first_line=first_line, width=width, separator=separator
        )
    return Lines(content=content, first_line=first_line, ends=ends.reshape(-1, width))


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _first_fault(
    content: bytes, *, where: str, first_line: int, width: int, separator: str
) -> DataError:
    for number, line in enumerate(content.split(b"\n")[:-1], start=first_line):
        fault = _character_fault(line)
        if fault is not None:
            return DataError(f"{where}: line {number}: {fault[0]}", hint=fault[1])
        if not line:
            return DataError(f"{where}: line {number} is blank", hint="remove blank lines")
        found = line.count(separator.encode()) + 1
        if found != width:
            counts = f"expected {width} {_SEPARATORS[separator]}-separated fields"
            return DataError(
                f"{where}: {counts}, line {number} has {found}{_likeness(line.decode(), found)}"
            )
    raise AssertionError("no line of the invalid block is invalid")


def _character_fault(line: bytes) -> tuple[str, str] | None:
    """A message and a hint if a line has forbidden bytes, else None."""
    if b"\0" in line:
        return "has a NUL byte; this is not a text file", ""
    if b"\r" in line:
        return "has a carriage return that no line feed follows", _UNIX
    if b'"' in line:
        return "has a quotation mark; quoted fields are not part of this format", ""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start + 1} of the line)", "convert the file to UTF-8"
    return None


def check_first_line(line: bytes, *, where: str) -> None:
    """Raise DataError if the first line, without its line feed, shows that the file is not text.

    A carriage return at its end is allowed here, since `checked` reports it.
    """
    for start, (kind, program) in _COMPRESSED.items():
        if line.startswith(start):
            named = "name it .gz, .bz2, .xz or .zip if it is not, or " if kind in _READ else ""
            raise DataError(
                f"{where}: is compressed ({kind})",
                hint=f"{named}unpack it first, for example with `{program}`",
            )
    if line.startswith(_BOM):
        raise DataError(
            f"{where}: line 1 starts with a byte order mark", hint="save it as UTF-8 without one"
        )
    if b"\r" in line[:-1]:
        raise DataError(f"{where}: line 1: lines end in a carriage return alone", hint=_UNIX)


def check_header(line: bytes, *, where: str, expected: Sequence[str]) -> None:
    """Raise DataError unless `line`, without its line feed, is the expected header."""
    check_first_line(line, where=where)
    fault = _character_fault(line)
    if fault is not None:
        raise DataError(f"{where}: line 1 {fault[0]}", hint=fault[1])
    found = line.decode().split(",")
    if found != list(expected):
        message, hint = _header_fault(line.decode(), found, list(expected))
        raise DataError(f"{where}: {message}", hint=hint)


def _likeness(line: str, found: int) -> str:
    """For a line of one field, the separator that it seems to have; else empty."""
    names = [name for separator, name in _SEPARATORS.items() if separator in line]
    return f"; it looks {names[0]}-separated" if found == 1 and names else ""


def _header_fault(line: str, found: list[str], expected: list[str]) -> tuple[str, str]:
    counts = f"expected {len(expected)} comma-separated fields, line 1 has {len(found)}"
    if [name.lower() for name in found] in _SUBMISSIONS:
        return (
            f"{counts}; this is Kaggle's sample submission",
            "the log is the file train.gz or train.csv (Avazu), train.txt (Criteo)",
        )
    if not line:
        return "line 1 is blank, expected the header", ""
    if looks := _likeness(line, len(found)):
        return f"{counts}{looks}", ""
    if found[1:] == expected and not found[0]:
        return f"{counts}; the first column has no name", "remove the first column"
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if len(missing) == len(expected):
        return f"{counts}; no header, or that of another file", f"header: {','.join(expected)}"
    twice = sorted({name for name in found if found.count(name) > 1})
    parts = [
        f"{what} {', '.join(f'`{name}`' for name in names[:5])}" + (", ..." if names[5:] else "")
        for what, names in (("missing", missing), ("unexpected", extra), ("twice", twice))
        if names
    ]
    return f"{counts}; {'; '.join(parts) or 'the columns are in another order'}", ""
