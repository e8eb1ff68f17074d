"""Temporary folders; those that killed processes have left are deleted when the next is made."""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from prime_bench.base.errors import UserError
from prime_bench.base.locks import Busy, locked

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
        # Else its process lives, or it is another user's.
        with contextlib.suppress(Busy, UserError, OSError), locked(file):
            shutil.rmtree(file.with_suffix(""), ignore_errors=True)
            file.unlink(missing_ok=True)
