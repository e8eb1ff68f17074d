"""Files that are whole or absent, their digests, and where the bundled ones lie."""

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
"""Pattern of what a process that is killed while it writes leaves beside the file."""
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a file is in the way",
}
_ADVICE = "free some space, or name another folder (--data-dir, --runs-dir, --output)"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an operating-system error on writing below `path` into an EnvironmentFault."""
    try:
        yield
    except OSError as error:
        fault = environment_fault(error, path)
        if fault is None:
            raise
        raise fault from error


@contextlib.contextmanager
def making(path: Path) -> Iterator[None]:
    """As `writing`, for a block that only makes `path`: what is not found is then its place."""
    with writing(path):
        try:
            yield
        except FileNotFoundError as error:
            # So answers /proc, where nobody may make a file, and a folder deleted meanwhile.
            raise EnvironmentFault(f"{path}: nothing can be made here", hint=_ADVICE) from error


def environment_fault(error: OSError, path: Path | None = None) -> EnvironmentFault | None:
    """The message for a full disk, a missing permission and the like; None for another error."""
    if error.errno not in _REASONS:
        return None
    return EnvironmentFault(
        f"{error.filename or path or 'a file'}: {_REASONS[error.errno]}",
        hint=_ADVICE,
    )


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write `path` so that readers, and crashes at any point, find the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    with making(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_PART, delete=False) as part:
            try:
                part.write(data)
                part.flush()
                os.fsync(part.fileno())
                # NamedTemporaryFile makes private files; a record is meant to be shared.
                Path(part.name).chmod(0o666 & ~_umask())
                Path(part.name).replace(path)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
        sync_folder(path.parent)


def nearest_folder(path: Path) -> Path:
    """`path`, or where it is not there yet the nearest folder above it that is."""
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
    """SHA-256 of a file's bytes as 64 hex digits, read in blocks."""
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
    """The folder `recipes`, `datasets` or `reports` that came with this installation."""
    return _bundled(name)


def pins() -> dict[str, str]:
    """Package -> the version that this release was checked with, from `constraints.txt`."""
    lines = _bundled("constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, _, version in pairs}


def _bundled(name: str) -> Path:
    inside = _PACKAGE / "bundled" / name
    return inside if inside.exists() else _PACKAGE.parent / name
