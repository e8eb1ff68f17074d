"""Where raw files are: plain csv, .gz, or in a .zip; read as one kind of stream, with digests."""

import contextlib
import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from prime_bench.base.errors import DataError
from prime_bench.data.card import DatasetCard
from prime_bench.data.chunk import SPLITS

_SUFFIXES = (".csv", ".csv.gz")


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One csv, as it is stored."""

    path: Path
    member: str | None = None
    """Name inside the .zip `path`."""
    split: int | None = None
    """Index into SPLITS of all its rows; None where the rows are split here."""
    size: int
    """Bytes of `path`."""
    mtime_ns: int
    stored_bytes: int
    """Bytes to go through: of the file as stored, or of a member as it unpacks."""

    @property
    def name(self) -> str:
        """For messages and the manifest."""
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    @property
    def compressed(self) -> bool:
        """Whether `size` is not the size of the csv."""
        return self.member is not None or self.path.suffix == ".gz"


def find_sources(card: DatasetCard, path: Path) -> list[SourceFile]:
    """The csv files of `card` at `path`: one for a log, three in SPLITS' order for splits.

    `path` is a file, or else a folder or .zip. Raises DataError where they are not there.
    """
    with reading(path):
        path.stat()
        is_folder, is_file = path.is_dir(), path.is_file()
    if card.kind == "log":
        if is_folder:
            raise DataError(f"{path}: is a folder, expected a csv file", hint="name the file in it")
        return [_plain(path, split=None)]
    if is_folder:
        return [_plain(_in_folder(path, name), split=i) for i, name in enumerate(SPLITS)]
    if is_file and path.suffix == ".zip":
        return _in_zip(path)
    raise DataError(
        f"{path}: expected a folder with {_listed(SPLITS)}, or the published .zip, found a file"
    )


def _listed(splits: tuple[str, ...]) -> str:
    return ", ".join(f"{split}.csv" for split in splits) + " (each may be .csv.gz)"


def _plain(path: Path, *, split: int | None) -> SourceFile:
    with reading(path):
        status = path.stat()
        if not path.is_file():
            raise DataError(f"{path}: is no regular file")
    return SourceFile(
        path=path.absolute(),
        split=split,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        stored_bytes=status.st_size,
    )


def _in_folder(folder: Path, split: str) -> Path:
    with reading(folder):
        there = [folder / f"{split}{suffix}" for suffix in _SUFFIXES]
        there = [path for path in there if path.exists() or path.is_symlink()]
    if len(there) > 1:
        raise DataError(
            f"{folder}: has both {there[0].name} and {there[1].name}", hint="remove one of them"
        )
    if not there:
        missing = [s for s in SPLITS if not any((folder / f"{s}{x}").exists() for x in _SUFFIXES)]
        archives = sorted(path.name for path in folder.glob("*.zip"))
        raise DataError(
            f"{folder}: missing {_listed(tuple(missing))}",
            hint=f"to read an archive, name it: --from {folder / archives[0]}" if archives else "",
        )
    return there[0]


def _in_zip(path: Path) -> list[SourceFile]:
    with reading(path):
        status = path.stat()
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    sources = []
    for split, name in enumerate(SPLITS):
        named = [m for m in members if Path(m.filename).name == f"{name}.csv" and not m.is_dir()]
        # Archives made on a Mac carry a shadow of each file.
        named = [member for member in named if not member.filename.startswith("__MACOSX/")]
        if len(named) != 1:
            found = ", ".join(member.filename for member in members[:10]) or "nothing"
            raise DataError(f"{path}: expected one {name}.csv inside, found {len(named)} ({found})")
        sources.append(
            SourceFile(
                path=path.absolute(),
                member=named[0].filename,
                split=split,
                size=status.st_size,
                mtime_ns=status.st_mtime_ns,
                stored_bytes=named[0].file_size,
            )
        )
    return sources


class Stream:
    """The bytes of one csv, unpacked, with their digests."""

    def __init__(self, source: SourceFile, stored: IO[bytes], content: IO[bytes]) -> None:
        self.source = source
        self.content_bytes = 0
        self._stored = stored
        self._content = content
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256()

    def read(self, n_bytes: int) -> bytes:
        """Up to `n_bytes`, none at the end. Raises DataError for a file that cannot be unpacked."""
        with reading(Path(self.source.name)):
            piece = self._content.read(n_bytes)
        self.content_bytes += len(piece)
        self._md5.update(piece)
        self._sha256.update(piece)
        return piece

    @property
    def done_bytes(self) -> int:
        """Of `source.stored_bytes`."""
        return self.content_bytes if self.source.member is not None else self._stored.tell()

    @property
    def md5(self) -> str:
        """Of what was read."""
        return self._md5.hexdigest()

    @property
    def sha256(self) -> str:
        """Of what was read."""
        return self._sha256.hexdigest()


@contextlib.contextmanager
def open_source(source: SourceFile) -> Iterator[Stream]:
    """Open the csv for reading. Raises DataError where that fails."""
    with contextlib.ExitStack() as stack:
        with reading(Path(source.name)):
            stored: IO[bytes] = stack.enter_context(source.path.open("rb"))
            content = stored
            if source.member is not None:
                archive = stack.enter_context(zipfile.ZipFile(stored))
                content = stack.enter_context(archive.open(source.member))
            elif source.path.suffix == ".gz":
                content = stack.enter_context(
                    io.BufferedReader(gzip.GzipFile(fileobj=stored, mode="rb"))
                )
        yield Stream(source, stored, content)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what can go wrong on reading `path` into a DataError."""
    try:
        yield
    except EOFError as error:
        raise DataError(
            f"{path}: is cut short: the compressed data ends too early", hint="download it again"
        ) from error
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: is damaged or not what its name says: {error}") from error
    except (RuntimeError, NotImplementedError) as error:
        # An encrypted or exotic archive.
        raise DataError(f"{path}: cannot be unpacked: {error}") from error
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file or folder") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: cannot be read: {reason.lower()}") from error


def digest_source(source: SourceFile) -> str:
    """SHA-256 of the uncompressed csv."""
    with open_source(source) as stream:
        while stream.read(1 << 22):
            pass
        return stream.sha256
