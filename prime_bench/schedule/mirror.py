"""A folder of files that is copied, in pieces, while a worker writes to it.

On a node of a cluster a `Source` gives the pieces of what has changed in a job's folder; a `Copy`
puts them together in the caller's folder of runs. A file appears there whole or not at all, and as
it was at one moment, whatever its size.
"""

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from prime_bench.base.errors import DataError
from prime_bench.base.files import PART_FILES, sync_folder, write_whole, writing

PIECE_BYTES = 4 << 20
"""Bytes of a piece, and of all pieces that are sent at once."""
_PART = PART_FILES.rstrip("*")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a file."""

    name: str
    """Name of the file."""
    offset: int
    """Place in the file of the first byte. 0 begins the file again."""
    content: bytes
    last: bool
    """Whether the file is complete with this piece."""


class Source:
    """What has changed in a folder since it was last asked."""

    def __init__(
        self,
        folder: Path,
        *,
        only: Container[str] | None = None,
        present: Iterable[str] = (),
        last: str = "",
    ) -> None:
        """Begin to watch a folder, which need not exist yet.

        Args:
            folder: The folder. Its folders and unfinished files are left out.
            only: Names of the files to send; None for all.
            present: Names of the files that the other side has, whatever is in them.
            last: Name of a file that is sent only by `news(whole=True)`, after all others.
        """
        self._folder, self._only, self._last = folder, only, last
        self._sent: dict[str, tuple[int, int, int] | None] = dict.fromkeys(present)
        self._open: tuple[str, IO[bytes], int] | None = None

    def news(self, *, whole: bool = False) -> tuple[list[Piece], list[str], bool]:
        """Return the next pieces, the names of files that are gone, and whether that was all.

        Names are given only when all pieces were. `whole`: nobody writes to the folder any more.
        """
        pieces: list[Piece] = []
        n_bytes = 0
        while n_bytes < PIECE_BYTES:
            self._open = self._open or self._next(whole=whole)
            if self._open is None:
                gone = sorted(self._sent.keys() - self._found().keys())
                for name in gone:
                    del self._sent[name]
                return pieces, gone, True
            piece = self._read(*self._open, most_bytes=PIECE_BYTES - n_bytes)
            n_bytes += len(piece.content) or 1
            pieces.append(piece)
        return pieces, [], False

    def _next(self, *, whole: bool) -> tuple[str, IO[bytes], int] | None:
        """Open the next file that has changed; returns its name and size too, or None."""
        found = self._found()
        for name in sorted(found, key=lambda name: (name == self._last, name)):
            if self._sent.get(name) == found[name] or (name == self._last and not whole):
                continue
            try:
                file = (self._folder / name).open("rb")
            except FileNotFoundError:
                continue  # deleted in the meantime
            # Files are replaced and not changed, but for logs, which grow: what is open stays.
            self._sent[name] = _signature(os.fstat(file.fileno()))
            return name, file, os.fstat(file.fileno()).st_size
        return None

    def _read(self, name: str, file: IO[bytes], size: int, *, most_bytes: int) -> Piece:
        offset = file.tell()
        content = file.read(min(most_bytes, size - offset))
        last = not content or offset + len(content) >= size
        if last:
            file.close()
            self._open = None
        return Piece(name=name, offset=offset, content=content, last=last)

    def _found(self) -> dict[str, tuple[int, int, int]]:
        """Signature of each file in the folder, by name."""
        try:
            with os.scandir(self._folder) as entries:
                files = [entry for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return {}
        found = {}
        for entry in files:
            if entry.name.startswith(_PART):
                continue
            if self._only is not None and entry.name not in self._only:
                continue
            try:
                found[entry.name] = _signature(Path(entry.path).stat())
            except FileNotFoundError:
                continue
        return found


class Copy:
    """The other side of a `Source`: writes pieces as files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, piece: Piece) -> None:
        """Write a piece. Raises EnvironmentFault if that is not possible."""
        path = self._folder / piece.name
        if piece.name != path.name:
            raise DataError(f"{piece.name}: not the name of a file in a job's folder")
        if piece.last and not piece.offset:
            write_whole(path, piece.content)
            return
        part = self._folder / f"{_PART}{piece.name}"
        with writing(part):
            self._folder.mkdir(parents=True, exist_ok=True)
            with part.open("ab" if piece.offset else "wb") as file:
                file.write(piece.content)
                if piece.last:
                    file.flush()
                    os.fsync(file.fileno())
            if piece.last:
                part.replace(path)
                sync_folder(self._folder)

    def remove(self, name: str) -> None:
        """Delete a file that the source no longer has."""
        with writing(self._folder):
            (self._folder / Path(name).name).unlink(missing_ok=True)

    def names(self) -> tuple[str, ...]:
        """Names of the files that are there."""
        if not self._folder.is_dir():
            return ()
        return tuple(sorted(path.name for path in self._folder.iterdir() if path.is_file()))


def _signature(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_size
