"""A folder of data that is whole or absent, and the disk space that it needs."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import filelock

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.files import making, nearest_folder, sync_folder, writing


def table_bytes(*, rows: int, n_fields: int) -> dict[str, int]:
    """Bytes of a prepared table and of the rows that wait on disk while it is made.

    A field has 4 bytes in both, a row 1 more in the table and 9 more while it waits; vocabularies
    are small beside it.
    """
    return {"table": rows * (4 * n_fields + 1), "working files": rows * (4 * n_fields + 9)}


def check_space(folder: Path, parts: Mapping[str, int], *, log: Callable[[str], None]) -> None:
    """Say how many bytes are needed below `folder`, which need not exist, and how many are free.

    Raises EnvironmentFault where these are too few.
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
    """For people: 1.23 GB."""
    return f"{n_bytes / 1e9:.2f} GB"


_PREPARING, _REPLACED, _LOCK = ".preparing-", ".replaced-", ".lock-"


def is_quiet(folder: Path) -> bool:
    """Whether nobody writes `folder`, and no killed run left anything beside it."""
    traces = (folder.with_name(prefix + folder.name) for prefix in (_PREPARING, _REPLACED, _LOCK))
    return not any(path.exists() for path in traces)


@contextlib.contextmanager
def sole_writer(folder: Path, *, log: Callable[[str], None]) -> Iterator[None]:
    """Hold the right to write `folder`; wait, and log so, while another process has it.

    What killed runs left beside it goes. After an error nothing is left that was not there.
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
    """A hidden new folder beside `folder`, which takes its place, or vanishes after an error.

    To be used by the sole writer.
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
        # A run that has the old table open keeps its maps: the files live until they are closed.
        folder.rename(replaced)
    preparing.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, *, log: Callable[[str], None]) -> Iterator[None]:
    path = folder.with_name(_LOCK + folder.name)
    # Where no file can be made, this says so; the lock would wait for it without end.
    with making(folder):
        path.touch()
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        log(f"waiting: another process prepares {folder}")
        lock.acquire()
    try:
        yield
    finally:
        # While it is held: whoever waits for it sees that the file is gone, and makes a new one.
        path.unlink(missing_ok=True)
        lock.release()


def _sweep(parent: Path, *, ours: str) -> None:
    """Delete what killed runs left: ours, and that of other variants at which nobody works."""
    left = [path for path in parent.iterdir() if path.name.startswith((_PREPARING, _REPLACED))]
    for path in left:
        name = path.name.removeprefix(_PREPARING).removeprefix(_REPLACED)
        if name == ours:
            shutil.rmtree(path, ignore_errors=True)
            continue
        with contextlib.suppress(filelock.Timeout):
            lock = filelock.FileLock(parent / (_LOCK + name))
            with lock.acquire(timeout=0):
                shutil.rmtree(path, ignore_errors=True)
                Path(lock.lock_file).unlink()
