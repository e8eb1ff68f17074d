"""Jobs as a command names them."""

import re
from pathlib import Path

from prime_bench.base.errors import DataError, UsageError
from prime_bench.cli.plan import load_plan
from prime_bench.recipe.job import JOB_ID_DIGITS
from prime_bench.store.runs import Runs

_ID_BEGINS = re.compile(rf"[0-9a-f]{{4,{JOB_ID_DIGITS}}}")
_TOO_SHORT = re.compile(r"[0-9a-f]{1,3}")
LISTED = "`prime-bench plan RECIPE` and `prime-bench status --json` list the ids"


def find_job(name: str, runs: Runs) -> str | None:
    """The id of the one job with a folder that `name`, four digits of it or more, begins; None
    where `name` is something else: no such text, or no job's.

    Raises UsageError where several jobs begin so or fewer digits are given, DataError for a whole
    id that none has.
    """
    if _TOO_SHORT.fullmatch(name) and not Path(name).is_file():
        raise UsageError(f"{name}: of a job's id four digits at least are needed", hint=LISTED)
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


def ids_meant(
    what: str, runs: Runs, *, only: tuple[str, ...], changes: tuple[str, ...], data_dir: Path
) -> list[str]:
    """The id of the one job that `what` begins, else those of the recipe's jobs, in its order.

    Jobs whose data are not prepared have none. Raises UsageError and DataError.
    """
    job_id = find_job(what, runs)
    if job_id is None:
        made = load_plan(what, only=only, changes=changes, data_dir=data_dir, runs_dir=runs.folder)
        return [planned.job_id for planned in made.jobs if planned.job_id is not None]
    if only or changes:
        raise UsageError("--only and --set go with a recipe, not with a job")
    return [job_id]
