"""Write a folder so that it is complete or absent, by one process at a time, and check disk space.

with sole_writer(folder, log=log), replacing(folder) as hidden:
    ...  # write files into `hidden`
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.files import making, nearest_folder, sync_folder, writing
from prime_bench.base.locks import Busy, locked


def table_bytes(*, rows: int, n_fields: int) -> dict[str, int]:
    """Estimate the bytes of a prepared table and of the encoder's spool.

    Both have 4 bytes per field and row; a row of the table has 1 more byte, a row of the spool 9.
    Vocabularies are small in comparison and not counted.
    """
    return {"table": rows * (4 * n_fields + 1), "working files": rows * (4 * n_fields + 9)}


def check_space(folder: Path, parts: Mapping[str, int], *, log: Callable[[str], None]) -> None:
    """Check that the bytes in `parts` are free on the disk of `folder`, which need not exist.

    Logs what is needed and what is free. Raises EnvironmentFault if too little is free.
    """
    there = nearest_folder(folder)
    with writing(there):
        free = shutil.disk_usage(there).free
    needed = sum(parts.values())
    listed = ", ".join(f"{what} {gigabytes(n_bytes)}" for what, n_bytes in parts.items())
    need = f"about {gigabytes(needed)} of disk ({listed}), {gigabytes(free)} are free"
    if needed > free:
        raise EnvironmentFault(
            f"{folder}: needs {need}", hint="free some space, or name another folder (--data-dir)"
        )
    log(f"{folder}: needs {need}")


def gigabytes(n_bytes: int) -> str:
    """Format a number of bytes, such as `1.23 GB`."""
    return f"{n_bytes / 1e9:.2f} GB"


_PREPARING, _REPLACED, _LOCK = ".preparing-", ".replaced-", ".lock-"


def is_quiet(folder: Path) -> bool:
    """Whether no process writes `folder` and no killed process left files beside it."""
    traces = (folder.with_name(prefix + folder.name) for prefix in (_PREPARING, _REPLACED, _LOCK))
    return not any(path.exists() for path in traces)


@contextlib.contextmanager
def sole_writer(folder: Path, *, log: Callable[[str], None]) -> Iterator[None]:
    """Lock `folder` for writing; wait, after a message to `log`, while another process has it.

    Files that killed processes left beside the folder are deleted. After an error, parent folders
    that were created for it are removed again.
    """
    parent = folder.parent
    made = [path for path in (parent, *parent.parents) if not path.exists()]
    with writing(parent):
        try:
            with making(parent):
                parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder, log=log):
                _sweep(parent, ours=folder.name)
                yield
        except BaseException:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new hidden folder beside `folder` that replaces it when the block ends.

    After an error the hidden folder is deleted and `folder` stays as it was. The caller must hold
    `sole_writer(folder)`.
    """
    preparing = folder.with_name(_PREPARING + folder.name)
    try:
        preparing.mkdir()
        yield preparing
        _publish(preparing, folder)
    except BaseException:
        shutil.rmtree(preparing, ignore_errors=True)
        raise


def _publish(preparing: Path, folder: Path) -> None:
    for path in (*preparing.iterdir(), preparing):
        if path.is_dir():
            sync_folder(path)
    replaced = folder.with_name(_REPLACED + folder.name)
    if folder.exists():
        # A process that has mapped the old files can go on reading them until it closes them.
        folder.rename(replaced)
    preparing.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, *, log: Callable[[str], None]) -> Iterator[None]:
    path = folder.with_name(_LOCK + folder.name)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
        except Busy as whose:
            log(f"waiting: {whose} prepares {folder}")
            stack.enter_context(locked(path, wait_s=None))
        try:
            yield
        finally:
            # Unlinked while locked: a waiting process sees that its file is gone and makes another.
            path.unlink(missing_ok=True)


def _sweep(parent: Path, *, ours: str) -> None:
    """Delete what killed processes left, of `ours` and of other folders that nobody writes now."""
    left = [path for path in parent.iterdir() if path.name.startswith((_PREPARING, _REPLACED))]
    for path in left:
        name = path.name.removeprefix(_PREPARING).removeprefix(_REPLACED)
        if name == ours:
            shutil.rmtree(path, ignore_errors=True)
            continue
        lock = parent / (_LOCK + name)
        # What cannot be locked is of another process, or another user's to mend.
        with contextlib.suppress(Busy, DataError, EnvironmentFault), locked(lock):
            shutil.rmtree(path, ignore_errors=True)
            lock.unlink()
