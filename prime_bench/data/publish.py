"""A folder that is whole or absent: made hidden, renamed at the end, swept after a killed run."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from prime_bench.base.files import making, sync_folder, writing

_PREPARING, _REPLACED, _LOCK = ".preparing-", ".replaced-", ".lock-"


def is_quiet(folder: Path) -> bool:
    """Whether nobody writes `folder`, and no killed run left anything beside it."""
    traces = (folder.with_name(prefix + folder.name) for prefix in (_PREPARING, _REPLACED, _LOCK))
    return not any(path.exists() for path in traces)


@contextlib.contextmanager
def sole_writer(folder: Path, *, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the right to write `folder`; wait, and say so, while another process has it.

    What killed runs left beside it goes. After an error nothing is left that was not there.
    """
    parent = folder.parent
    made = [path for path in (parent, *parent.parents) if not path.exists()]
    with writing(parent):
        try:
            with making(parent):
                parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder, say=say):
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
def _locked(folder: Path, *, say: Callable[[str], None]) -> Iterator[None]:
    path = folder.with_name(_LOCK + folder.name)
    # Where no file can be made, this says so; the lock would wait for it without end.
    with making(folder):
        path.touch()
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        say(f"waiting: another process prepares {folder}")
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
