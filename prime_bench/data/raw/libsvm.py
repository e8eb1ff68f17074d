"""Read AFN's libsvm files of Avazu (`label id:1 id:1 ...`) as the published csv made from them."""

import contextlib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

from prime_bench.base.errors import DataError
from prime_bench.data.raw.lines import blocks, check_first_line, checked, with_line_feeds
from prime_bench.data.raw.source import SourceFile

_LINE = re.compile(rb"[^ :,]+( [^ :,]+:1)+")


@dataclass(frozen=True, kw_only=True)
class LibsvmFile(SourceFile):
    """A split in libsvm format, which is read as csv: a header, then label and ids."""

    header: tuple[str, ...]
    """Names of the csv's columns."""

    @property
    def compressed(self) -> bool:
        """True, since the csv has another size than the file."""
        return True

    def place(self, line: int) -> str:
        """The place of a line of the csv. The csv has a header that the file lacks."""
        return super().place(line - 1)

    def open(self, stack: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
        """Open the file; returns (stored, content) as `SourceFile.open` does."""
        stored, content = super().open(stack)
        return stored, cast(IO[bytes], _Csv(content, source=self))


class _Csv:
    """A file object with `read` alone, which is all that a Stream needs."""

    def __init__(self, content: IO[bytes], *, source: LibsvmFile) -> None:
        self._pieces = _converted(content, source=source)
        self._ready = b""

    def read(self, n_bytes: int) -> bytes:
        """Up to `n_bytes` of the csv, none at its end."""
        if not self._ready:
            self._ready = next(self._pieces, b"")
        piece, self._ready = self._ready[:n_bytes], self._ready[n_bytes:]
        return piece


def _converted(content: IO[bytes], *, source: LibsvmFile) -> Iterator[bytes]:
    width, first_line = len(source.header), 1
    text_of = functools.partial(with_line_feeds, content.read)
    for block in blocks(lambda n_bytes: text_of(n_bytes)[1], where=source.name):
        if first_line == 1:
            check_first_line(block.partition(b"\n")[0], where=source.name)
            yield ",".join(source.header).encode() + b"\n"
        text = block.replace(b" \n", b"\n")  # some programs end a line with a blank
        lines = checked(text, where=source.name, first_line=first_line, width=width, separator=" ")
        csv = text.replace(b":1 ", b",").replace(b":1\n", b"\n").replace(b" ", b",")
        removed = 2 * (width - 1) * len(lines.ends)
        if len(text) - len(csv) != removed or b":" in csv or b"," in text:
            raise _first_fault(text, source=source, first_line=first_line)
        yield csv
        first_line += len(lines.ends)


def _first_fault(text: bytes, *, source: LibsvmFile, first_line: int) -> DataError:
    for number, line in enumerate(text.split(b"\n")[:-1], start=first_line):
        if not _LINE.fullmatch(line):
            return DataError(
                f"{source.name}: line {number}: expected `label id:1 id:1 ...`,"
                f" found `{line.decode()[:80]}`"
            )
    raise AssertionError("no line of the invalid block is invalid")
