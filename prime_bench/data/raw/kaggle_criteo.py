"""Split Kaggle's Criteo log, one file without a header, into the three csv files of Criteo_x4.

There are two passes. The first checks every line and keeps the labels, from which the folds are
drawn; the second writes each row to the file of its fold. Memory: one byte for each row, and 8
bytes for each row of the larger class while folds are drawn. Disk: one copy of the log.
"""

import contextlib
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from prime_bench.base.errors import DataError
from prime_bench.data.card import DatasetCard
from prime_bench.data.manifest import SPLIT_NAMES
from prime_bench.data.raw.lines import BLOCK_BYTES, Lines, blocks, check_first_line, checked
from prime_bench.data.raw.source import SourceFile, Stream, open_source
from prime_bench.data.split import stratified_folds
from prime_bench.data.stages import OnProgress, StageProgress, no_progress

# How the published split was drawn, and which folds make up which split (fidelity 31).
N_FOLDS, SEED = 10, 2018
FOLDS = {"train": tuple(range(2, N_FOLDS)), "valid": (1,), "test": (0,)}
_TO_CSV = bytes.maketrans(b"\t", b",")


@dataclass(frozen=True, kw_only=True)
class KaggleFile(SourceFile):
    """Kaggle's train.txt: label and 39 fields, tab-separated, the rows of all splits."""

    @property
    def compressed(self) -> bool:
        """True, since the csv has another size than the file."""
        return True


@dataclass(frozen=True, kw_only=True)
class FoldsFile(SourceFile):
    """A split of the log as csv, stored as a file for each fold. It can be read once: each file is
    deleted after it was read.
    """

    header: bytes
    parts: tuple[Path, ...]
    folds: np.ndarray
    """The fold (N,) int8 of each row of the log."""

    def place(self, line: int) -> str:
        """The place in the log of a line of the csv."""
        before = line - 2
        for fold in FOLDS[SPLIT_NAMES[self.split or 0]]:
            rows = np.flatnonzero(self.folds == fold)
            if before < len(rows):
                return super().place(int(rows[before]) + 1)
            before -= len(rows)
        raise AssertionError(f"the split has no line {line}")

    def open(self, stack: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
        """Open the file; returns (stored, content), which are the same object here."""
        content = cast(IO[bytes], _Parts(self.header, self.parts))
        stack.callback(content.close)
        return content, content


class _Parts:
    """A file object that reads files one after another and deletes each to free disk space."""

    def __init__(self, header: bytes, parts: tuple[Path, ...]) -> None:
        self._next = header
        self._pieces = self._read(parts)
        self._done = 0

    def _read(self, parts: tuple[Path, ...]) -> Generator[bytes, None, None]:
        for part in parts:
            with part.open("rb") as file:
                while piece := file.read(BLOCK_BYTES):
                    yield piece
            part.unlink()

    def read(self, _n_bytes: int) -> bytes:
        """The next piece of at most BLOCK_BYTES; empty at the end."""
        piece, self._next = self._next, b""
        piece = piece or next(self._pieces, b"")
        self._done += len(piece)
        return piece

    def tell(self) -> int:
        """The number of bytes read so far."""
        return self._done

    def close(self) -> None:
        """Close the file that is open."""
        self._pieces.close()


@contextlib.contextmanager
def split_log(
    card: DatasetCard,
    log: KaggleFile,
    folder: Path,
    *,
    check_space: Callable[[int, int], None],
    on_progress: OnProgress = no_progress,
) -> Iterator[list[FoldsFile]]:
    """The log's three splits in the order of SPLIT_NAMES, written below the new `folder`.

    Before the files are written, `check_space` is called with the bytes and the rows of the log.
    Raises DataError, with file and line, for the first invalid line.
    """
    first = _Pass(log, on_progress, stage="checking")
    with contextlib.closing(first.lines(width=len(card.header))) as checked_lines:
        labels = np.concatenate(
            [_labels(lines, log) for lines in checked_lines] or [np.empty(0, dtype=np.uint8)]
        )
    if not len(labels):
        raise DataError(f"{log.name}: the file is empty")
    check_space(first.stream.content_bytes, len(labels))
    folds = stratified_folds(labels, n_folds=N_FOLDS, seed=SEED)
    del labels
    folder.mkdir()
    try:
        parts = {fold: folder / f"fold-{fold}" for fold in range(N_FOLDS)}
        second = _Pass(log, on_progress, stage="splitting")
        _write(second, folds, parts)
        if second.stream.sha256 != first.stream.sha256:
            raise DataError(f"{log.name}: was changed while it was read")
        header = ",".join(card.header).encode() + b"\n"
        yield [
            FoldsFile(
                path=log.path,
                member=log.member,
                split=i,
                size=log.size,
                mtime_ns=log.mtime_ns,
                stored_bytes=len(header) + sum(parts[f].stat().st_size for f in FOLDS[split]),
                made_from=first.stream.sha256,
                header=header,
                parts=tuple(parts[fold] for fold in FOLDS[split]),
                folds=folds,
            )
            for i, split in enumerate(SPLIT_NAMES)
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Pass:
    """One pass over the whole log."""

    stream: Stream

    def __init__(self, log: KaggleFile, on_progress: OnProgress, *, stage: str) -> None:
        self._log = log
        self._on_progress = on_progress
        self._stage = stage

    def blocks(self) -> Generator[bytes, None, None]:
        """Yield blocks of whole lines. The caller must close the generator to close the log."""
        rows = 0
        with open_source(self._log) as self.stream:
            for block in blocks(self.stream.read, where=self._log.name):
                yield block
                rows += block.count(b"\n")
                self._on_progress(
                    StageProgress(
                        stage=self._stage,
                        done=self.stream.done_bytes,
                        total=self._log.stored_bytes,
                        rows=rows,
                    )
                )

    def lines(self, *, width: int) -> Generator[Lines, None, None]:
        """Yield checked lines. The caller must close the generator, as that of `blocks`."""
        with contextlib.closing(self.blocks()) as content:
            yield from self._checked(content, width=width)

    def _checked(self, content: Iterable[bytes], *, width: int) -> Iterator[Lines]:
        first_line = 1
        for block in content:
            if first_line == 1:
                _check_start(block.partition(b"\n")[0], where=self._log.name, width=width)
            lines = checked(
                block, where=self._log.name, first_line=first_line, width=width, separator="\t"
            )
            if b"," in block:
                row = block[: block.index(b",")].count(b"\n")
                raise DataError(
                    f"{self._log.name}: line {first_line + row}: has a comma; no field may have one"
                )
            yield lines
            first_line += len(lines.ends)


def _check_start(line: bytes, *, where: str, width: int) -> None:
    check_first_line(line, where=where)
    if line.count(b"\t") == width - 2:
        raise DataError(
            f"{where}: expected {width} tab-separated fields, line 1 has {width - 1}; this may be"
            " Kaggle's test.txt, which has no labels",
            hint="the log is the file train.txt",
        )


def _labels(lines: Lines, log: KaggleFile) -> np.ndarray:
    """The labels (n,) uint8, which are the first fields."""
    digit = lines.text[lines.starts(0)]
    good = ((digit == ord("0")) | (digit == ord("1"))) & (lines.ends[:, 0] == lines.starts(0) + 1)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"{log.name}: line {lines.first_line + row}: label: expected 0 or 1,"
            f" found `{lines.field(row, 0)[:80]}`"
        )
    labels: np.ndarray = digit - ord("0")
    return labels


def _write(log: _Pass, folds: np.ndarray, parts: dict[int, Path]) -> None:
    start = 0
    with contextlib.ExitStack() as stack:
        files = {fold: stack.enter_context(path.open("wb")) for fold, path in parts.items()}
        for block in stack.enter_context(contextlib.closing(log.blocks())):
            rows = block.translate(_TO_CSV).split(b"\n")[:-1]
            own = folds[start : start + len(rows)]
            for fold, file in files.items():
                chosen = np.flatnonzero(own == fold).tolist()
                file.writelines([rows[i] + b"\n" for i in chosen])
            start += len(rows)
