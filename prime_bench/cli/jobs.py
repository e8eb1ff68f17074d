"""Finished jobs as a command names them."""

import re

from prime_bench.store.runs import Runs

_ID_BEGINS = re.compile(r"[0-9a-f]{4,16}")


def find_job(name: str, runs: Runs) -> str | None:
    """The id of the one job with a folder that `name`, four digits of it or more, begins; None
    where `name` is no such text, or no job has it.

    Raises UsageError where several have it.
    """
    from prime_bench.base.errors import UsageError

    if not _ID_BEGINS.fullmatch(name):
        return None
    found = sorted(path.name for path in runs.folder.glob(f"{name}*") if path.is_dir())
    if len(found) > 1:
        raise UsageError(
            f"`{name}` begins {len(found)} jobs in {runs.folder}", hint=f"jobs: {', '.join(found)}"
        )
    return found[0] if found else None
