"""Writing files so that they are complete or absent, digests, and the bundled files."""

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from prime_bench.base.errors import EnvironmentFault

READ_BYTES = 1 << 20
_PART = ".part-"
PART_FILES = f"{_PART}*"
"""Pattern of the incomplete files that a process leaves if it is killed while it writes."""
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than a limit allows (ulimit -f)",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a file is in the way",
}
_ADVICE = "free some space, or name another folder (--data-dir, --runs-dir, --output)"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system in the block, which writes below `path`, into an
    EnvironmentFault.
    """
    try:
        yield
    except OSError as error:
        fault = environment_fault(error, path)
        if fault is None:
            raise
        raise fault from error


@contextlib.contextmanager
def making(path: Path) -> Iterator[None]:
    """Like `writing`, for a block that only creates `path`: FileNotFoundError is a fault too."""
    with writing(path):
        try:
            yield
        except FileNotFoundError as error:
            # Raised below /proc, where no file can be made, and if the folder was just deleted.
            raise EnvironmentFault(f"{path}: nothing can be made here", hint=_ADVICE) from error


def environment_fault(error: OSError, path: Path | None = None) -> EnvironmentFault | None:
    """Return the fault for a full disk, a missing permission and so on; None for other errors."""
    if error.errno not in _REASONS:
        return None
    return EnvironmentFault(
        f"{error.filename or path or 'a file'}: {_REASONS[error.errno]}",
        hint=_ADVICE,
    )


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file atomically: after a crash at any point, the old file or the new one is there."""
    data = content.encode() if isinstance(content, str) else content
    with making(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_PART, delete=False) as part:
            try:
                part.write(data)
                part.flush()
                os.fsync(part.fileno())
                # NamedTemporaryFile makes private files; others may read a record.
                Path(part.name).chmod(0o666 & ~_umask())
                Path(part.name).replace(path)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
        sync_folder(path.parent)


def nearest_folder(path: Path) -> Path:
    """Return `path` if it exists, else the nearest folder above it that does."""
    whole = path.absolute()
    return next(folder for folder in (whole, *whole.parents) if folder.exists())


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits. The file is read in blocks."""
    running = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            running.update(block)
    return running.hexdigest()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


_PACKAGE = Path(__file__).resolve().parent.parent


def bundled_folder(name: str) -> Path:
    """Return the folder `recipes`, `datasets` or `reports` of this installation."""
    return _bundled(name)


def pins() -> dict[str, str]:
    """Return package -> the version with which this release was tested (`constraints.txt`)."""
    lines = _bundled("constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, _, version in pairs}


def _bundled(name: str) -> Path:
    inside = _PACKAGE / "bundled" / name
    return inside if inside.exists() else _PACKAGE.parent / name
