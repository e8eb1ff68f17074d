"""Files: written whole or not at all, read up to a limit; what an error of the system means."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from prime_bench.base.errors import EnvironmentFault

READ_BYTES = 1 << 20
_PART = ".part-"
PART_FILES = f"{_PART}*"
"""Pattern of the incomplete files that a process leaves if it is killed while it writes."""
MOST_BYTES = 64 << 20
"""Bytes of a JSON file or a log that are read. The largest record measured has about 100 KB."""
_SPACE = "free some space, or name another folder (--data-dir, --runs-dir, --output)"
_RIGHTS = "name a folder of your own (--data-dir, --runs-dir, --output), or change the permissions"
_DESCRIPTORS = "allow more of them (`ulimit -n 4096`), or run fewer jobs at once (--slots)"
_NAME = "name another path (--data-dir, --runs-dir, --output)"
_DISK = "look whether the disk or the network folder is there and sound (`dmesg`), and try again"
_AGAIN = "wait until the other program has ended, and try again"
_MEMORY = "end other programs, allow more (`ulimit -v`), or run fewer jobs at once (--slots)"
_REASONS: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full", _SPACE),
    errno.EDQUOT: ("the disk quota is used up", _SPACE),
    errno.EFBIG: ("the file would be larger than a limit allows (ulimit -f)", _SPACE),
    errno.EACCES: ("permission denied", _RIGHTS),
    errno.EPERM: ("permission denied", _RIGHTS),
    errno.EROFS: ("the file system is read-only", _RIGHTS),
    errno.ENOENT: ("no such file or folder", "it was deleted, or the path is misspelt"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", _NAME),
    errno.EISDIR: ("a folder, where a file belongs", "move it away, or name another path"),
    errno.EEXIST: ("a file is in the way", "move it away, or name another path"),
    errno.ENOTEMPTY: ("a folder with files is in the way", "move it away, or name another path"),
    errno.ENAMETOOLONG: ("the name is too long for the file system", _NAME),
    errno.ELOOP: ("a symbolic link that leads to itself", "delete the link, or name another path"),
    errno.EMFILE: ("the process has too many files open", _DESCRIPTORS),
    errno.ENFILE: ("the machine has too many files open", _DESCRIPTORS),
    errno.EIO: ("the disk reports an error", _DISK),
    errno.ESTALE: ("the network folder has lost the file", _DISK),
    errno.ENXIO: ("the device is not there", _DISK),
    errno.ENODEV: ("the device is not there", _DISK),
    errno.ETIMEDOUT: ("no answer in time", _DISK),
    errno.EBUSY: ("in use by another program", _AGAIN),
    errno.ETXTBSY: ("in use by another program", _AGAIN),
    errno.ENOMEM: ("the memory does not suffice", _MEMORY),
    errno.EAGAIN: ("a resource of the system is used up, such as processes (ulimit -u)", _AGAIN),
    errno.EXDEV: ("on another file system than the folder beside it", _NAME),
}
_OF_ANY_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing about the file that was to be opened."""
_OF_DISKS = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENXIO, errno.ENODEV})
"""Errors of the disk or the network, whatever is in the file."""
_OF_LIBRARIES = {
    "failed to map segment": errno.ENOMEM,
    "Cannot allocate memory": errno.ENOMEM,
    "Too many open files": errno.EMFILE,
}
"""What the loader of shared libraries says in an ImportError, which has no number."""
_OURS = frozenset({errno.EBADF, errno.ECHILD, errno.EFAULT, errno.ENOTSOCK, errno.ENOTTY})
"""Errors of a call that was wrong in itself, whatever the state of the system."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system in the block, which writes below `path`, into an
    EnvironmentFault. FileNotFoundError stays what it is.
    """
    try:
        yield
    except FileNotFoundError:
        raise
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
            raise EnvironmentFault(f"{path}: nothing can be made here", hint=_SPACE) from error


def check_can_write(folder: Path, *, n_bytes: int = 0) -> None:
    """Raise EnvironmentFault where no file of `n_bytes` can be made in a folder, which need not be
    there yet and is not made. Called before hours of work whose result is written there.
    """
    with making(folder):
        try:
            with tempfile.TemporaryFile(dir=nearest_folder(folder)) as file:
                file.write(bytes(n_bytes))
                file.flush()
        except OSError as error:
            # Without the name of the file, which nobody has asked for.
            raise OSError(error.errno, error.strerror) from error


def not_installed(error: BaseException) -> EnvironmentFault | None:
    """Return the fault for a package that is missing; None for any other error."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in ("", "prime_bench"):
        return None
    wanted = f"{package}=={pins()[package]}" if package in pins() else package
    hint = f"pip install {wanted}; `prime-bench doctor` looks at all packages"
    return EnvironmentFault(f"the package {package} is not installed", hint=hint)


def environment_fault(error: BaseException, path: Path | None = None) -> EnvironmentFault | None:
    """Return the fault for an error that the system has caused; None for any other.

    These are errors of the operating system, lack of memory, of threads, a package that is not
    installed, and a panic of a library in Rust, which nearly always follows from one of them. Not
    among them are system calls that were wrong in themselves (a closed descriptor), nor OSErrors
    that a library raises without a number.

    Args:
        error: The error.
        path: The file that it is about, if it names none.
    """
    if isinstance(error, ModuleNotFoundError) and error.name in pins():
        return not_installed(error)
    if isinstance(error, ImportError):
        text = str(error)
        numbers = {number for said, number in _OF_LIBRARIES.items() if said in text}
        error = OSError(numbers.pop(), "", error.name or "a library") if numbers else error
    if isinstance(error, MemoryError):
        return EnvironmentFault("the memory does not suffice", hint=_MEMORY)
    if type(error).__module__ == "pyo3_runtime":
        said = (str(error).splitlines() or ["no reason given"])[0]
        hint = "memory, threads or open files may be short (`ulimit -a`); if not, it is a bug of it"
        return EnvironmentFault(f"a library has given up: {said}", hint=hint)
    if isinstance(error, RuntimeError) and error.args == ("can't start new thread",):
        return EnvironmentFault("the system allows no more threads", hint="`ulimit -u` has a limit")
    if not isinstance(error, OSError) or error.errno is None or error.errno in _OURS:
        return None
    if error.errno == errno.EINVAL and error.filename is None:
        return None
    if error.errno == errno.ENOENT and error.filename is None:
        return EnvironmentFault(
            "the current folder was deleted, or a file in it", hint="change to another folder"
        )
    place = error.filename or path or "the operating system"
    # Other file systems have other errors; those of `open_file` bring their own text.
    reason, advice = _REASONS.get(error.errno, (error.strerror or str(error), _DISK))
    return EnvironmentFault(f"{_shown(place)}: {reason}", hint=advice)


def fault_of_disk(error: BaseException, path: Path) -> EnvironmentFault | None:
    """Return the fault for an error of the disk or the network below `path`; None for any other,
    which may tell of the file.
    """
    of_disk = isinstance(error, OSError) and error.errno in _OF_DISKS
    return environment_fault(error, path) if of_disk else None


def _shown(place: object) -> str:
    """A path as a message has it."""
    return os.fsdecode(place) if isinstance(place, bytes) else str(place)


class NotReadable(OSError):
    """What is at a path is no regular file, or too large to be read; the message says which."""

    def __str__(self) -> str:
        return str(self.strerror)


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading.

    Raises:
        NotReadable: It is something else: a named pipe has no end before somebody writes to it,
            and a device such as /dev/zero has none at all.
        OSError: Another error of this file.
        EnvironmentFault: No file at all can be opened now.
    """
    try:
        # Without O_NONBLOCK the call waits for somebody who opens the pipe for writing.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _OF_ANY_FILE and (fault := environment_fault(error, path)):
            raise fault from error
        raise
    try:
        kind = kind_of(os.fstat(descriptor).st_mode)
        if kind != "a file":
            raise NotReadable(errno.EINVAL, f"{kind}, not a file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def kind_of(mode: int) -> str:
    """Return what a `st_mode` says a path is, such as `a folder`."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def read_file(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file. Raises as `open_file`; NotReadable for more than
    `most_bytes`.
    """
    blocks = []
    with open_file(path) as file:
        # Files below /proc have the size 0 and may have no end.
        n_bytes, n_read = os.fstat(file.fileno()).st_size, 0
        while max(n_bytes, n_read) <= most_bytes and (block := file.read(READ_BYTES)):
            blocks.append(block)
            n_read += len(block)
    if max(n_bytes, n_read) > most_bytes:
        text = f"has {max(n_bytes, n_read):,} bytes, at most {most_bytes:,} bytes are read"
        raise NotReadable(errno.EINVAL, text, str(path))
    return b"".join(blocks)


def read_json(path: Path) -> Any:
    """Return the value in a JSON file. Raises as `read_file`, and ValueError."""
    try:
        return json.loads(read_file(path).decode())
    except RecursionError as error:
        raise ValueError("too many lists and objects within each other") from error


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file atomically: after a crash at any point, the old file or the new one is there."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write in pieces, which appears at `path` when the block ends without an error, and
    else not at all.
    """
    with making(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_PART, delete=False) as part:
            try:
                yield part
                part.flush()
                os.fsync(part.fileno())
                # NamedTemporaryFile makes private files; others may read a record.
                Path(part.name).chmod(0o666 & ~_umask())
                Path(part.name).replace(path)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Delete a file, a symbolic link, or a folder with all that is in it, if it is there.

    Raises EnvironmentFault if it cannot be deleted.
    """
    with writing(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


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
    """Return the SHA-256 of a regular file as 64 hex digits. The file is read in blocks.

    Raises as `open_file`.
    """
    running = hashlib.sha256()
    with open_file(path) as file:
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
