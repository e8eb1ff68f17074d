"""Finished jobs as a command names them."""

import re

from prime_bench.recipe.job import JOB_ID_DIGITS
from prime_bench.store.runs import Runs

_ID_BEGINS = re.compile(rf"[0-9a-f]{{4,{JOB_ID_DIGITS}}}")


def find_job(name: str, runs: Runs) -> str | None:
    """The id of the one job with a folder that `name`, four digits of it or more, begins; None
    where `name` is something else: no such text, or no job's.

    Raises UsageError where several jobs begin so, DataError for a whole id that none has.
    """
    from prime_bench.base.errors import DataError, UsageError

    if not _ID_BEGINS.fullmatch(name):
        return None
    found = sorted(path.name for path in runs.folder.glob(f"{name}*") if path.is_dir())
    if len(found) > 1:
        raise UsageError(
            f"`{name}` begins {len(found)} jobs in {runs.folder}", hint=f"jobs: {', '.join(found)}"
        )
    if not found and len(name) == JOB_ID_DIGITS:
        raise DataError(f"no job {name} in {runs.folder}", hint="name its folder with --runs-dir")
    return found[0] if found else None
