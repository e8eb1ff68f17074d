"""A raw file, plain, compressed, or inside a .zip or .tar.gz, read as a stream with digests."""

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from prime_bench.base.archives import zip_members
from prime_bench.base.errors import DataError, EnvironmentFault, did_you_mean
from prime_bench.data.raw.lines import with_line_feeds


def _names_beside(path: Path) -> list[str]:
    """The other names in the folder of `path`; none where it cannot be read."""
    try:
        return [beside.name for beside in path.parent.iterdir() if beside.name != path.name]
    except OSError:
        return []


def _zstd(stored: IO[bytes]) -> Any:
    """Open a .zst file with Python (3.14 and later), or with pyarrow, which fuxictr brings."""
    try:
        from compression import zstd

        return zstd.open(stored)
    except ImportError:
        pass
    try:
        import pyarrow
    except ImportError as error:
        raise EnvironmentFault(
            "a .zst file needs Python 3.14 or pyarrow", hint="pip install pyarrow"
        ) from error
    return pyarrow.CompressedInputStream(stored, "zstd")


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _zstd,
}
PACKED = tuple(_OPENERS)
"""Endings, in small letters, of the names of compressed files that are read."""


def unpacked_name(name: str) -> str:
    """A file's name in small letters, without folders and the ending of a compressed file."""
    base = PurePosixPath(name).name.lower()
    return base.removesuffix(_ending(base)) if _ending(base) in PACKED else base


def _ending(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A csv file, and how it is stored."""

    path: Path
    member: str | None = None
    """Name inside the archive `path`, without folders in a .tar.gz; None for a file of its own."""
    split: int | None = None
    """Index into SPLIT_NAMES of all rows; None if `prepare` splits the rows."""
    size: int
    """Bytes of `path`."""
    mtime_ns: int
    stored_bytes: int
    """Bytes to read, for progress: of the file as stored, or of a .zip member uncompressed."""
    made_from: str | None = None
    """SHA-256 of the log that `prepare` split into this file; None for other files."""

    @property
    def name(self) -> str:
        """The name in messages and in the manifest."""
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    @property
    def compressed(self) -> bool:
        """Whether `size` differs from the size of the csv."""
        return self.member is not None or _ending(self.path.name) in PACKED

    def place(self, line: int) -> str:
        """The place of a line of the csv, counted from 1, for a message."""
        return f"{self.name}: line {line}"

    def open(self, stack: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
        """Open the file; returns (stored, content), which `stack` closes.

        `content` gives the bytes of the csv, and `stored.tell()` how many of `stored_bytes` were
        read.
        """
        stored: IO[bytes] = stack.enter_context(self.path.open("rb"))
        if self.member is not None and _ending(self.path.name) == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(stored))
            entry = zip_members(archive, where=self.path)[self.member]
            member = stack.enter_context(archive.open(entry))
            return member, _unpacked(member, self.member, stack)
        content = _unpacked(stored, self.path.name, stack)
        return stored, content if self.member is None else self._in_tar(content, stack)

    def _in_tar(self, unpacked: IO[bytes], stack: contextlib.ExitStack) -> IO[bytes]:
        # As a stream: to seek in compressed data means to decompress it again.
        archive = tarfile.open(fileobj=unpacked, mode="r|")  # noqa: SIM115
        stack.enter_context(archive)
        for entry in archive:
            if entry.isfile() and Path(entry.name).name == self.member:
                content = archive.extractfile(entry)
                if content is not None:
                    return stack.enter_context(content)
        raise DataError(f"{self.path}: has no {self.member} inside")


def _unpacked(stored: IO[bytes], name: str, stack: contextlib.ExitStack) -> IO[bytes]:
    """The content of a file that is compressed if its name says so."""
    opener = _OPENERS.get(_ending(name))
    return stored if opener is None else stack.enter_context(io.BufferedReader(opener(stored)))


class Stream:
    """The bytes of a csv, decompressed, with line feeds in place of CRLF, and their digests."""

    def __init__(self, source: SourceFile, stored: IO[bytes], content: IO[bytes]) -> None:
        self.source = source
        self.content_bytes = 0
        self._stored = stored
        self._content = content
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256()
        self.has_crlf = False
        """Whether CRLF was replaced so far."""

    def read(self, n_bytes: int) -> bytes:
        """About `n_bytes`, none at the end. Raises DataError if the file cannot be decompressed."""
        with reading(Path(self.source.name)):
            piece, text = with_line_feeds(self._content.read, n_bytes)
        self.content_bytes += len(piece)
        self.has_crlf |= len(text) < len(piece)
        self._md5.update(text)
        self._sha256.update(piece)
        return text

    @property
    def done_bytes(self) -> int:
        """How many of `source.stored_bytes` were read."""
        return self._stored.tell()

    @property
    def md5(self) -> str:
        """MD5 of what was read so far, with line feeds in place of CRLF."""
        return self._md5.hexdigest()

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes read so far, as they are stored."""
        return self._sha256.hexdigest()


@contextlib.contextmanager
def open_source(source: SourceFile) -> Iterator[Stream]:
    """Open the csv for reading. Raises DataError if that fails."""
    with contextlib.ExitStack() as stack:
        with reading(Path(source.name)):
            stored, content = source.open(stack)
        yield Stream(source, stored, content)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors from reading `path` into a DataError with a message for the user."""
    try:
        yield
    except EOFError as error:
        raise DataError(
            f"{path}: is cut short: the compressed data ends too early", hint="download it again"
        ) from error
    except (
        gzip.BadGzipFile,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        tarfile.TarError,
    ) as error:
        raise DataError(f"{path}: is damaged or not what its name says: {error}") from error
    except (RuntimeError, NotImplementedError) as error:
        # An encrypted archive, or a compression method that zipfile lacks.
        raise DataError(f"{path}: cannot be unpacked: {error}") from error
    except FileNotFoundError as error:
        near = did_you_mean(path.name, _names_beside(path))
        raise DataError(f"{path}: there is no such file or folder{near}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is None:  # from bz2
            raise DataError(f"{path}: is damaged or not what its name says: {error}") from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: cannot be read: {reason.lower()}") from error


def digests_as_stored(source: SourceFile, *, with_crlf: bool = False) -> tuple[str, str]:
    """MD5 and SHA-256 of the uncompressed content as it is, or `with_crlf` in place of each line
    feed.
    """
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with contextlib.ExitStack() as stack, reading(Path(source.name)):
        _, content = source.open(stack)
        while piece := content.read(1 << 22):
            text = piece.replace(b"\n", b"\r\n") if with_crlf else piece
            md5.update(text)
            sha256.update(text)
    return md5.hexdigest(), sha256.hexdigest()


def digest_source(source: SourceFile) -> str:
    """SHA-256 of the uncompressed content."""
    return digests_as_stored(source)[1]
