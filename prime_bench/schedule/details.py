"""Everything that a job's folder says of the job, whether it has finished, failed or runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prime_bench.base.errors import DataError
from prime_bench.data.manifest import Manifest, table_with
from prime_bench.findings import Validation
from prime_bench.recipe.job import Job
from prime_bench.schedule.plan import State, job_state
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import (
    ENVIRONMENT,
    FAILURE,
    HISTORY,
    LOG,
    Runs,
    read_end,
    read_history,
    read_object,
)

_LOG_LINES = 10


@dataclass(frozen=True, kw_only=True)
class JobDetails:
    """A job with its record, as far as there is one, and the files beside it."""

    job_id: str
    folder: Path
    state: State
    why: str
    job: Job | None
    """None where the folder has neither a record nor a config.json."""
    dataset: str | None
    arm: str | None
    recipe: str | None
    data_verified: bool | Literal["own"] | None
    """None before the job has finished."""
    origins: Mapping[str, str]
    """Where each setting that is not a default comes from; empty where nobody has written it."""
    data: Mapping[str, object] | None
    """Data settings of the job's table; None where the table is not here."""
    record: RunRecord | ProbeRecord | None
    history: Sequence[Validation]
    environment: Mapping[str, object] | None
    """Versions, device, threads and commit; None before the job has started."""
    log: Sequence[str]
    """The last lines of log.txt."""
    failure: Mapping[str, object] | None
    """`error` and `traceback` of the last try, where it failed."""

    def plain(self) -> dict[str, object]:
        """The details as JSON values."""
        found = {} if self.record is None else self.record.plain()
        return {
            "job_id": self.job_id,
            "path": str(self.folder),
            "state": self.state,
            "why": self.why,
            "dataset": self.dataset,
            "arm": self.arm,
            "recipe": self.recipe,
            "data_verified": self.data_verified,
            # Not `Job.plain`, which leaves out empty keys for the sake of the id.
            "job": None if self.job is None else self.job.model_dump(mode="json", by_alias=True),
            "origins": self.origins,
            "data": self.data,
            "budget": found.get("budget"),
            "result": found.get("result"),
            "findings": found.get("findings"),
            "history": [validation.plain() for validation in self.history],
            "environment": self.environment,
            "wall_s": found.get("wall_s"),
            "log": self.log,
            "failure": self.failure,
        }


def job_details(job_id: str, runs: Runs, *, data_dir: Path) -> JobDetails:
    """Read what is in the job's folder. Raises DataError for a broken record."""
    folder = runs.path(job_id)
    record = runs.find(job_id)
    state, why, _ = job_state(job_id, runs)
    found = runs.config(job_id)
    config = None if isinstance(found, str) else found
    known = record or config
    if isinstance(found, str) and known is None:
        why = f"{why}; {found}"
    job = None if known is None else known.job
    history = record.history if isinstance(record, RunRecord) else []
    return JobDetails(
        job_id=job_id,
        folder=folder,
        state=state,
        why=why,
        job=job,
        dataset=None if known is None else known.dataset,
        arm=None if known is None else known.arm,
        recipe=None if config is None else config.recipe,
        data_verified=None if record is None else record.data_verified,
        origins={} if config is None else config.origins,
        data=None if job is None else _data_settings(job, data_dir=data_dir),
        record=record,
        history=history or read_history(folder / HISTORY),
        environment=read_object(folder / ENVIRONMENT) or None
        if record is None
        else record.environment.plain(),
        log=read_end(folder / LOG).splitlines()[-_LOG_LINES:],
        failure=read_object(folder / FAILURE) or None,
    )


def _data_settings(job: Job, *, data_dir: Path) -> Mapping[str, object] | None:
    try:
        folder = table_with(job.fingerprint, data_dir=data_dir)
    except DataError:
        return None
    settings: Mapping[str, object] = Manifest.read(folder).settings
    return settings
