"""How far jobs are, from the files in their folders, and how long those at work still take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from prime_bench.base.errors import UsageError
from prime_bench.base.words import job_name
from prime_bench.findings import Validation
from prime_bench.recipe.events import EpochProgress
from prime_bench.recipe.job import Job
from prime_bench.schedule.estimate import SimilarityKey, similarity_key, usual_epochs
from prime_bench.schedule.plan import Plan, State, job_state
from prime_bench.store.record import Environment, RunRecord
from prime_bench.store.runs import (
    ENVIRONMENT,
    HISTORY,
    PROGRESS,
    Runs,
    read_history,
    read_object,
    read_progress,
)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """How far one job is."""

    job_id: str | None
    """None if its data are not prepared."""
    name: str
    """Data set, backbone, arm, seed in one text, and the kind of a probe; `?` where the folder does
    not say.
    """
    state: State
    why: str
    kind: str | None = None
    """`train` or the kind of the probe; None, as the next four, where the folder does not say."""
    dataset: str | None = None
    backbone: str | None = None
    arm: str | None = None
    seed: int | None = None
    epoch: int | None = None
    """The running epoch, else the last one; None before the first."""
    share: float | None = None
    """Share of the running epoch that was done a few seconds ago, from 0 to 1."""
    rows_per_s: float | None = None
    """Mean over the running epoch so far; None where no epoch runs."""
    valid_auc: float | None = None
    """The best so far; None before the first validation."""
    left_s: float | None = None
    """Seconds to the end of training; None if the job is not running, or if it is not known."""
    where: str | None = None
    """Machine and device on which it runs, or ran last; None before it has started."""
    at_most: bool = False
    """Whether `left_s` is an upper bound, to `max_epochs`, because no similar job has ended yet."""

    def plain(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far all jobs are."""

    jobs: list[JobStatus]
    earlier: list[str] = field(default_factory=list)
    """Sentences on records of an earlier version of a class of the user's, as `Plan.earlier`."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of jobs in each state, in the order in which the states occur."""
        states = [job.state for job in self.jobs]
        return {state: states.count(state) for state in dict.fromkeys(states)}


def status_of_plan(plan: Plan, runs: Runs) -> Status:
    """Return the status of every job of a plan, in the order in which they run."""
    usual = usual_epochs(p.record for p in plan.jobs if isinstance(p.record, RunRecord))
    return Status(
        jobs=[
            _with_progress(
                JobStatus(
                    job_id=planned.job_id,
                    name=str(planned.job_spec),
                    state=planned.state,
                    why=planned.why,
                    kind=planned.job_spec.kind,
                    dataset=planned.job_spec.dataset,
                    backbone=planned.job_spec.backbone_name,
                    arm=planned.job_spec.arm.name,
                    seed=planned.job_spec.seed,
                ),
                planned.job,
                runs=runs,
                usual=usual,
            )
            for planned in plan.jobs
        ],
        earlier=plan.earlier,
    )


def status_of_folder(runs: Runs) -> Status:
    """Return the status of every job that has a folder, in order of the ids."""
    records, _ = runs.readable()
    usual = usual_epochs(record for record in records if isinstance(record, RunRecord))
    jobs = []
    for job_id in runs.job_ids():
        state, why, record = job_state(job_id, runs)
        config = record or runs.config(job_id)
        if isinstance(config, str):
            # The worker was killed before it wrote config.json, or somebody has changed it.
            jobs.append(JobStatus(job_id=job_id, name="?", state=state, why=f"{why}; {config}"))
            continue
        job = config.job
        jobs.append(
            _with_progress(
                JobStatus(
                    job_id=job_id,
                    name=job_name(
                        config.dataset, job.backbone, config.arm, job.seed, kind=job.kind
                    ),
                    state=state,
                    why=why,
                    kind=job.kind,
                    dataset=config.dataset,
                    backbone=job.backbone,
                    arm=config.arm,
                    seed=job.seed,
                ),
                job,
                runs=runs,
                usual=usual,
            )
        )
    return Status(jobs=jobs)


def _with_progress(
    status: JobStatus,
    job: Job | None,
    *,
    runs: Runs,
    usual: Mapping[SimilarityKey, float],
) -> JobStatus:
    """The status with what the files in the job's folder tell; as it is without a job.

    `usual` has the number of epochs after which similar jobs have ended.
    """
    if job is None:
        return status
    folder = runs.path(job.id)
    history = read_history(folder / HISTORY)
    aucs = [validation.valid_auc for validation in history if validation.valid_auc is not None]
    progress = read_progress(folder / PROGRESS) if status.state == "running" else None
    done = len(history)
    if progress is not None and progress.epoch != done + 1:
        # It is of the epoch before, or of a worker that was killed in a later epoch.
        progress = None
    share = 0.0 if progress is None else progress.rows / progress.rows_total
    left_s, at_most = None, False
    if status.state == "running" and (epoch_s := _epoch_s(history, progress)) is not None:
        likely = usual.get(similarity_key(job))
        at_most = likely is None or likely <= done
        epochs = job.training.max_epochs if likely is None or at_most else likely
        left_s = max(0.0, epochs - done - share) * epoch_s
    return replace(
        status,
        epoch=done or None if progress is None else progress.epoch,
        share=None if progress is None else share,
        rows_per_s=None if progress is None else progress.rows_per_s,
        valid_auc=max(aucs, default=None),
        left_s=left_s,
        where=_where(read_object(folder / ENVIRONMENT)),
        at_most=at_most,
    )


def _where(environment: Mapping[str, object]) -> str | None:
    """Where a job runs, from its environment.json; None if that is not there or not readable."""
    try:
        return Environment.parse(environment, where="").where
    except UsageError:
        return None


def _epoch_s(history: Sequence[Validation], progress: EpochProgress | None) -> float | None:
    """Seconds of an epoch: the mean of those that have ended, else from the rows of the first."""
    if history:
        return history[-1].wall_s / len(history)
    if progress is None or progress.rows_per_s is None:
        return None
    return progress.rows_total / progress.rows_per_s
