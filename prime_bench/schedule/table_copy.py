"""A prepared table that is copied, in pieces, to a node of a cluster that lacks it.

The node says which piece it wants next (`next_piece`), and the caller reads it (`read_piece`). The
files grow in a hidden folder beside the table's, where they are found again after whatever has
stopped the copy. Each file has to have the digest that the manifest says; then the folder is
renamed into place. Several callers may send the same table: what has come already is not taken
twice.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.files import (
    PART_FILES,
    making,
    nearest_folder,
    sha256_of,
    sync_folder,
    write_whole,
    writing,
)
from prime_bench.base.locks import Busy, locked
from prime_bench.data.manifest import MANIFEST_NAME, Manifest

PIECE_BYTES = 16 << 20
"""Bytes of a piece. Between two processes on one busy machine 109 MB took 3.0 s at best, and 4.0 s
in pieces of 4 MiB."""
_GROWING = ".growing"
_LOCK_S = 30.0


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """What a node needs to know of a table before it gets its files."""

    fingerprint: str
    """SHA-256 over schema, vocabularies and arrays."""
    manifest: bytes
    """Content of manifest.json."""
    sizes: dict[str, int]
    """Bytes of each file except the manifest."""
    digests: dict[str, str]
    """SHA-256 of each file except the manifest."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes.values())

    @classmethod
    def read(cls, folder: Path) -> "TableInfo":
        """Describe the table in `folder`. Raises DataError where it is not complete."""
        manifest = Manifest.read(folder)
        try:
            sizes = {name: (folder / name).stat().st_size for name in manifest.outputs}
            content = (folder / MANIFEST_NAME).read_bytes()
        except FileNotFoundError as error:
            hint = "prepare the table again, which replaces it"
            raise DataError(
                f"{error.filename}: a file of the table is missing", hint=hint
            ) from error
        return cls(
            fingerprint=manifest.fingerprint,
            manifest=content,
            sizes=sizes,
            digests=dict(manifest.outputs),
        )


@dataclass(frozen=True, kw_only=True)
class TablePiece:
    """A part of a file of a table."""

    table: str
    """The caller's path of the table."""
    name: str
    """Path of the file below the table's folder."""
    offset: int
    """Place in the file of the first byte."""
    content: bytes = b""
    """At most `PIECE_BYTES`; empty as a node asks for the piece."""


def read_piece(wanted: TablePiece) -> TablePiece:
    """The piece that a node wants, with its content. Raises EnvironmentFault, and DataError if
    the file has become shorter.
    """
    path = Path(wanted.table) / wanted.name
    with making(path), path.open("rb") as file:
        file.seek(wanted.offset)
        content = file.read(PIECE_BYTES)
    if not content:
        raise DataError(f"{path}: it has become shorter while it was sent")
    return TablePiece(table=wanted.table, name=wanted.name, offset=wanted.offset, content=content)


class TableCopy:
    """The copy of a table on a node."""

    def __init__(self, folder: Path, info: TableInfo) -> None:
        """Nothing is written yet.

        Args:
            folder: Where the table shall be.
            info: What it shall be.
        """
        for name in info.sizes:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise DataError(f"{name}: not the name of a file of a table")
        self._folder, self._info = folder, info
        self._part = folder.with_name(
            f"{PART_FILES.rstrip('*')}{folder.name}-{info.fingerprint[:8]}"
        )
        self._lock = Path(f"{self._part}.lock")

    def next_piece(self, got: TablePiece | None = None) -> tuple[str, int] | None:
        """Take a piece, and return name and offset of the one that is wanted next; None when the
        table is there, or another one is in its place, which stays.

        Raises:
            DataError: A file has not the digest that the manifest says; it is deleted.
            EnvironmentFault: There is too little space, or nothing can be written.
        """
        if (self._folder / MANIFEST_NAME).exists():
            return None
        with making(self._folder):
            self._folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self._lock, wait_s=_LOCK_S), writing(self._folder):
                return self._step(got)
        except Busy as error:
            raise EnvironmentFault(f"{self._folder}: {error} copies it too") from error

    def _step(self, got: TablePiece | None) -> tuple[str, int] | None:
        if (self._folder / MANIFEST_NAME).exists():
            return None  # another caller has sent the rest
        if got is None:
            self._check_space()
        elif got.name in self._info.sizes and _size(self._growing(got.name)) == got.offset:
            with self._growing(got.name).open("ab") as file:
                file.write(got.content)
        for name, size in self._info.sizes.items():
            if not (self._part / name).exists():
                if (there := _size(self._growing(name))) < size:
                    return name, there
                self._finish(name)
        write_whole(self._part / MANIFEST_NAME, self._info.manifest)
        self._part.replace(self._folder)
        sync_folder(self._folder.parent)
        self._lock.unlink(missing_ok=True)
        return None

    def _check_space(self) -> None:
        place = nearest_folder(self._folder)
        free, came = shutil.disk_usage(place).free, 0
        for name in self._info.sizes:
            path = self._part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            came += _size(path) + _size(self._growing(name))
        if (needed := self._info.total_bytes - came) > free:
            raise EnvironmentFault(
                f"{self._folder}: the table needs {needed / 1e6:,.0f} MB more, {free / 1e6:,.0f} MB"
                " are free",
                hint="free some space there, or name another folder with PRIME_BENCH_DATA where "
                "that node's `ray start` runs",
            )

    def _finish(self, name: str) -> None:
        """Take a file that has all its bytes, if they are the right ones."""
        growing = self._growing(name)
        with growing.open("ab") as file:
            os.fsync(file.fileno())
        found, wanted = sha256_of(growing), self._info.digests[name]
        if found != wanted:
            growing.unlink()
            raise DataError(
                f"{self._folder / name}: what was sent has the SHA-256 {found[:12]}, the manifest "
                f"says {wanted[:12]}",
                hint="prepare the table again on the machine that runs `prime-bench run`",
            )
        growing.replace(self._part / name)

    def _growing(self, name: str) -> Path:
        return self._part / f"{name}{_GROWING}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
