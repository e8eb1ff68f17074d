"""Temporary folders; those that killed processes have left are deleted when the next is made."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from prime_bench.base.locks import locked

_PREFIX = "prime-bench-"
_LOCK = ".lock"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder in the folder for temporary files (TMPDIR), deleted at the end of the context.

    It lies beside a lock that this process holds. The operating system ends the lock with the
    process, however that ends, so that others can tell which folders were left.

    Raises EnvironmentFault where it cannot be made.
    """
    place = Path(tempfile.gettempdir())
    delete_leftovers(place)
    folder = place / f"{_PREFIX}{uuid.uuid4().hex}"
    file = Path(f"{folder}{_LOCK}")
    # Another process may be looking, at this moment, whether the file is a leftover.
    with locked(file, wait_s=None):
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            file.unlink(missing_ok=True)


def delete_leftovers(place: Path) -> None:
    """Delete the folders below `place` that killed processes have left."""
    for file in place.glob(f"{_PREFIX}*{_LOCK}"):
        # An error: its process lives, or it is another user's, or it has just been deleted.
        with contextlib.suppress(OSError), _existing_lock(file):
            shutil.rmtree(file.with_suffix(""), ignore_errors=True)
            file.unlink()


@contextlib.contextmanager
def _existing_lock(file: Path) -> Iterator[None]:
    """Hold the lock on a file that exists, and never make it: nobody would delete what is made for
    a folder that is gone. Raises OSError.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:
            raise FileNotFoundError(file)  # another file may have the name by now
        yield
    finally:
        os.close(descriptor)
