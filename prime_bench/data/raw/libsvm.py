"""Read AFN's libsvm files (`label id:1 id:1 ...`) as the published csv made from them.

A categorical field is `id:1` and becomes the id, a numeric one `index:value` and becomes the value.
Shapes: n lines of W fields, the label first.
"""

import contextlib
import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, cast

import numpy as np

from prime_bench.base.errors import DataError
from prime_bench.data.card import DatasetCard
from prime_bench.data.raw.lines import Lines, blocks, check_first_line, checked, with_line_feeds
from prime_bench.data.raw.source import SourceFile


@dataclass(frozen=True, kw_only=True)
class LibsvmFile(SourceFile):
    """A split in libsvm format, which is read as csv: a header, then label, ids and values."""

    card: DatasetCard
    """Its columns are those of the csv, the label first."""

    @property
    def numeric(self) -> list[bool]:
        """Whether each column after the label is numeric."""
        return [column.role == "numeric" for column in self.card.columns[1:]]

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
    width, first_line, numeric = len(source.card.columns), 1, source.numeric
    text_of = functools.partial(with_line_feeds, content.read)
    for block in blocks(lambda n_bytes: text_of(n_bytes)[1], where=source.name):
        if first_line == 1:
            check_first_line(block.partition(b"\n")[0], where=source.name)
            yield ",".join(source.card.header).encode() + b"\n"
        text = block.replace(b" \n", b"\n")  # some programs end a line with a blank
        lines = checked(text, where=source.name, first_line=first_line, width=width, separator=" ")
        csv = _with_values(lines, numeric) if any(numeric) else _with_ids(lines)
        if csv is None or b"," in text:
            raise _first_fault(text, source=source, first_line=first_line)
        yield csv
        first_line += len(lines.ends)


def _with_ids(lines: Lines) -> bytes | None:
    """The csv of lines without numeric fields; None if one has another form."""
    text = lines.content
    csv = text.replace(b":1 ", b",").replace(b":1\n", b"\n").replace(b" ", b",")
    removed = 2 * (lines.ends.size - len(lines.ends))
    return None if len(text) - len(csv) != removed or b":" in csv else csv


def _with_values(lines: Lines, numeric: list[bool]) -> bytes | None:
    """The csv of lines with numeric fields; None if one has another form."""
    text = lines.text
    starts, stops = lines.ends[:, :-1] + 1, lines.ends[:, 1:]  # (n, W - 1), without the label
    found = np.flatnonzero(text == ord(":"))
    if len(found) != starts.size:
        return None
    colons = found.reshape(starts.shape)
    is_value = np.array(numeric)
    is_one = (stops - colons == 2) & (text[colons + 1] == ord("1"))
    if not ((starts < colons) & (colons < stops - 1) & (is_value | is_one)).all():
        return None
    # Of a numeric field the index and the colon are cut out, of a categorical one `:1`.
    cuts = np.zeros(len(text), dtype=np.int8)
    cuts[np.where(is_value, starts, colons)] = 1
    cuts[np.where(is_value, colons + 1, stops)] = -1
    kept: np.ndarray = text[np.cumsum(cuts, dtype=np.int8) == 0]
    return kept.tobytes().replace(b" ", b",")


def _first_fault(text: bytes, *, source: LibsvmFile, first_line: int) -> DataError:
    field = {True: rb" [^ :,]+:[^ :,]+", False: rb" [^ :,]+:1"}
    form = re.compile(b"".join([rb"[^ :,]+", *(field[is_value] for is_value in source.numeric)]))
    shown = {True: "index:value", False: "id:1"}
    kinds = [shown[is_value] for is_value, _ in itertools.groupby(source.numeric)]
    expected = " ".join(["label", *(f"{kind} {kind} ..." for kind in kinds)])
    for number, line in enumerate(text.split(b"\n")[:-1], start=first_line):
        if not form.fullmatch(line):
            return DataError(
                f"{source.name}: line {number}: expected `{expected}`, found `{line.decode()[:80]}`"
            )
    raise AssertionError("no line of the invalid block is invalid")
