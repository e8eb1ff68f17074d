"""Locks of the operating system on files: one process at a time, as long as that process lives."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import filelock

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.files import kind_of, making

_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY})
"""What `flock` answers where the file system, or the server behind it, has no locks."""
_HOLDER_BYTES = 1000
_POLL_S = 0.02
SOMEBODY = "another process"
"""Who holds a lock whose file does not say."""


class Busy(Exception):
    """Another process holds the lock; the message says which."""


@contextlib.contextmanager
def locked(path: Path, *, wait_s: float | None = 0.0) -> Iterator[None]:
    """Hold the lock on the file `path`, which is created with its folder; it is not deleted.

    The holder's machine, process and time are written into the file, for those who wait.

    Args:
        path: The file.
        wait_s: Seconds to wait for another process; None for as long as it takes.

    Raises:
        Busy: Another process has the lock.
        DataError: At `path` is something that is not a file.
        EnvironmentFault: The folder cannot be written, or its file system has no locks.
    """
    lock = filelock.FileLock(
        path,
        # Its own kind of lock for such file systems outlives a process that is killed.
        fallback_to_soft=False,
        on_acquired=_sign,
        poll_interval=_POLL_S,
    )
    with making(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _check(path)
        try:
            # At least two tries: a process that only asks who holds the lock (`holder`) has it for
            # a moment.
            lock.acquire(timeout=-1 if wait_s is None else max(wait_s, 2 * _POLL_S))
        except filelock.Timeout:
            # filelock takes a folder in which no file can be made, as below /proc, for one that is
            # being made, and would try for ever.
            if not path.exists():
                # Under another name: the file may just have been deleted by its holder, and one
                # made here would stay.
                tempfile.TemporaryFile(dir=path.parent).close()
            raise Busy(holder(path) or SOMEBODY) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                _drop_unsigned(path)
                raise _no_locks(path, error) from error
            raise
    try:
        yield
    finally:
        lock.release()


def holder(path: Path) -> str | None:
    """Return which process holds the lock on the file `path`; None if none does.

    Only reads, so it works in a folder of another user too, and others who ask do not notice it.
    Raises DataError for something that is not a file.
    """
    _check(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise DataError(
            f"{path}: permission denied, so that nobody can say whether its job runs",
            hint="ask its owner for the right to read it",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _signed(os.read(descriptor, _HOLDER_BYTES))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None  # where there are no locks, nobody holds one
        raise
    finally:
        os.close(descriptor)
    return None


def _check(path: Path) -> None:
    """Raise DataError for a folder, a symbolic link and the like."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        raise DataError(
            f"{path}: {kind_of(mode)}, where the file of a lock belongs", hint="move it away"
        )


def _sign(descriptor: int) -> None:
    """Write who holds the lock into its file."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    whose = {"host": socket.gethostname(), "pid": os.getpid(), "since": now}
    text = (json.dumps(whose) + "\n").encode()
    # The disk may be full, and the lock is held all the same.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def _signed(text: bytes) -> str:
    """What `_sign` has written, as a message has it."""
    try:
        found = json.loads(text)
        return f"process {int(found['pid'])} on {found['host']}, since {found['since']}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return SOMEBODY


def _drop_unsigned(path: Path) -> None:
    """Delete the file that a failed attempt has made, unless somebody has written into it."""
    with contextlib.suppress(OSError):
        if path.lstat().st_size == 0:
            path.unlink()


def _no_locks(path: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"{path.parent}: this file system has no locks (flock: {error.strerror}), which keep two "
        "processes from writing the same files",
        hint="name a folder on another disk (--data-dir, --runs-dir), or have the locks of this "
        "one switched on; NFS needs its lock service, or the mount option local_lock=flock",
    )
