"""Files in a folder of runs that no record needs, which `prime-bench clean` deletes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prime_bench.base import files
from prime_bench.base.errors import DataError
from prime_bench.base.files import PART_FILES
from prime_bench.store.runs import STATE, Runs


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A file or a folder that can be deleted."""

    path: Path
    n_bytes: int
    why: str
    job_id: str | None = None
    """The job to claim before the file is deleted; None if no process can be working on it."""


def leftovers(runs: Runs, *, unfinished: bool = False) -> Iterator[Leftover]:
    """Find what can be deleted: records that were replaced, and what killed processes have left.

    Files of a job that a living process has claimed are not among them.

    Args:
        runs: The folder of runs.
        unfinished: Whether to add the folders of jobs without a record. Their saved state is lost
            when they are deleted.
    """
    for folder in runs.replaced():
        yield _leftover(folder, "a record that was replaced by a newer one")
    for job_id in runs.job_ids():
        if not _is_free(job_id, runs):
            continue
        folder = runs.path(job_id)
        if runs.done(job_id):
            if (folder / STATE).is_file():
                yield _leftover(folder / STATE, "saved state of a job that is done", job_id)
        elif unfinished and runs.misfit(job_id) is None:
            failed = runs.failure(job_id) is not None
            yield _leftover(folder, "failed" if failed else "interrupted", job_id)
            continue
        for part in sorted(folder.glob(PART_FILES)):
            yield _leftover(part, "an incomplete file of a process that was killed", job_id)


def remove(found: Leftover, runs: Runs) -> bool:
    """Delete a leftover, unless a process has claimed its job in the meantime.

    Returns:
        Whether it was deleted.

    Raises:
        EnvironmentFault: If it cannot be deleted.
    """
    if found.job_id is None:
        files.remove(found.path)
        return True
    with runs.claim(found.job_id) as mine:
        if mine:
            files.remove(found.path)
    return mine


def _is_free(job_id: str, runs: Runs) -> bool:
    """Whether no process has the job; False where that cannot be told."""
    try:
        return not runs.claimed(job_id)
    except DataError:
        return False


def _leftover(path: Path, why: str, job_id: str | None = None) -> Leftover:
    inside = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    n_bytes = sum(file.stat().st_size for file in inside)
    return Leftover(path=path, n_bytes=n_bytes, why=why, job_id=job_id)
