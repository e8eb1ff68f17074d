"""How far the jobs are: what their folders say, and what is left by the pace of their epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prime_bench.base.errors import UsageError
from prime_bench.recipe.job import Job
from prime_bench.schedule.estimate import Likeness, likeness_of, usual_epochs
from prime_bench.schedule.plan import Plan, State, job_state
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import (
    CONFIG,
    HISTORY,
    PROGRESS,
    Runs,
    read_history,
    read_object,
    read_progress,
)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """Where one job is."""

    job_id: str | None
    """None where the data are not prepared."""
    name: str
    """Data set, backbone, arm, seed."""
    state: State
    why: str
    epoch: int | None = None
    """The running epoch, else the last one that was run; None before the first."""
    share: float | None = None
    """Of the running epoch that is done, a few seconds ago."""
    rows_per_s: float | None = None
    valid_auc: float | None = None
    """The best so far."""
    left_s: float | None = None
    """To the end of the training, for a job that runs; None where nothing tells."""
    at_most: bool = False
    """Whether `left_s` counts to `max_epochs`, because no like job has ended yet."""

    def plain(self) -> dict[str, object]:
        """As JSON, for `--json`."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where all jobs are."""

    jobs: list[JobStatus]

    @property
    def counts(self) -> dict[str, int]:
        """Jobs a state, in order of their first."""
        states = [job.state for job in self.jobs]
        return {state: states.count(state) for state in dict.fromkeys(states)}


def status_of_plan(plan: Plan, runs: Runs) -> Status:
    """Every job of a recipe, in the order in which they run."""
    usual = usual_epochs(p.record for p in plan.jobs if isinstance(p.record, RunRecord))
    return Status(
        jobs=[
            _status(
                planned.job, str(planned.trial), planned.state, planned.why, runs=runs, usual=usual
            )
            for planned in plan.jobs
        ]
    )


def status_of_folder(runs: Runs) -> Status:
    """Every job that has a folder below `runs`, in order of the ids."""
    records, _ = runs.readable()
    usual = usual_epochs(record for record in records if isinstance(record, RunRecord))
    jobs = []
    for job_id in runs.job_ids():
        config = read_object(runs.path(job_id) / CONFIG)
        try:
            job = Job.parse(config.get("job", {}), where="")
        except UsageError:
            # Killed before it had written whose folder this is.
            started = JobStatus(
                job_id=job_id, name="?", state="interrupted", why="it has no config.json"
            )
            jobs.append(started)
            continue
        kind = "" if job.kind == "train" else f" {job.kind}"
        name = f"{config.get('dataset')} {job.backbone} {config.get('arm')} seed {job.seed}{kind}"
        state, why, _ = job_state(job, runs)
        jobs.append(_status(job, name, state, why, runs=runs, usual=usual))
    return Status(jobs=jobs)


def _status(
    job: Job | None,
    name: str,
    state: State,
    why: str,
    *,
    runs: Runs,
    usual: Mapping[Likeness, float],
) -> JobStatus:
    if job is None:
        return JobStatus(job_id=None, name=name, state=state, why=why)
    folder = runs.path(job.id)
    history = read_history(folder / HISTORY)
    aucs = [line["valid_auc"] for line in history if line.get("valid_auc") is not None]
    progress = read_progress(folder / PROGRESS) if state == "running" else {}
    done = len(history)
    # Left from the epoch before, or from a run that was killed in a later one.
    current = progress if progress.get("epoch") == done + 1 else {}
    left_s, at_most = _left(job, done, history, current, usual=usual, running=state == "running")
    return JobStatus(
        job_id=job.id,
        name=name,
        state=state,
        why=why,
        epoch=done + 1 if current else done or None,
        share=current["rows"] / current["rows_total"] if current else None,
        rows_per_s=current.get("rows_per_s"),
        valid_auc=max(aucs, default=None),
        left_s=left_s,
        at_most=at_most,
    )


def _left(
    job: Job,
    done: int,
    history: Sequence[Mapping[str, Any]],
    current: Mapping[str, Any],
    *,
    usual: Mapping[Likeness, float],
    running: bool,
) -> tuple[float | None, bool]:
    """Seconds that are left of a running job, and whether they are an upper bound."""
    epoch_s = history[-1]["wall_s"] / done if done else None
    if current and epoch_s is None:
        epoch_s = current["rows_total"] / current["rows_per_s"]
    if not running or epoch_s is None:
        return None, False
    likely = usual.get(likeness_of(job))
    at_most = likely is None or likely <= done
    epochs = float(job.training.max_epochs if at_most or likely is None else likely)
    share = current["rows"] / current["rows_total"] if current else 0.0
    return max(0.0, epochs - done - share) * epoch_s, at_most
