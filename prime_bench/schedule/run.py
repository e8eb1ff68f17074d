"""Do what a plan says: a queue of its jobs, an engine to run them, and a tally."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prime_bench.base.files import making
from prime_bench.recipe.events import WorkerEvent
from prime_bench.recipe.file import origins
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.engine import Backend, Limits, Outcome, Queue, Work
from prime_bench.schedule.plan import Plan, check_runnable
from prime_bench.store.runs import Runs


@dataclass
class JobCounts:
    """What a run did."""

    done: int = 0
    skipped: int = 0
    interrupted: int = 0
    failed: list[Outcome] = field(default_factory=list)
    not_run: list[Outcome] = field(default_factory=list)
    """Jobs whose needs failed."""
    left: int = 0
    """Jobs that were not started."""

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        match outcome.state:
            case "done":
                self.done += 1
            case "skipped":
                self.skipped += 1
            case "interrupted":
                self.interrupted += 1
            case "failed":
                self.failed.append(outcome)
            case "not run":
                self.not_run.append(outcome)


def run_plan(
    plan: Plan,
    backend: Backend,
    *,
    runs: Runs,
    threads: int,
    limits: Limits | None = None,
    keep_predictions: bool = False,
    on_event: Callable[[WorkerEvent], None],
    on_outcome: Callable[[Outcome], None],
) -> JobCounts:
    """Run every job of the plan that has no record; a failed job does not stop the others.

    `threads` is the number for one operation on the CPU, in every job.
    Raises DataError where no job has its data, EnvironmentFault where `runs` cannot be written.
    """
    check_runnable(plan)
    with making(runs.folder):
        runs.folder.mkdir(parents=True, exist_ok=True)
        # One message now, and not one for each job later.
        tempfile.TemporaryFile(dir=runs.folder).close()
    tally = JobCounts()
    works = _works(plan, runs=runs, threads=threads, keep_predictions=keep_predictions)
    queue = Queue(works, runs=runs, limits=limits)

    def take(outcome: Outcome) -> None:
        tally.add(outcome)
        on_outcome(outcome)

    for outcome in backend.run(queue, on_event=on_event):
        take(outcome)
    if queue.stopped:
        tally.left = len(queue.left)
    else:
        for work in queue.left:
            why = f"needs the job {work.needs[0]}, which has no record"
            take(Outcome(request=work.request, state="not run", why=why))
    sound = (planned for planned in plan.jobs if planned.state != "broken")
    runs.sweep(planned.job_id for planned in sound if planned.job_id)
    return tally


def _works(plan: Plan, *, runs: Runs, threads: int, keep_predictions: bool) -> Iterator[Work]:
    for planned in plan.to_run:
        if planned.job is not None:
            request = JobRequest(
                job=planned.job,
                dataset=planned.trial.dataset,
                arm=planned.trial.arm.name,
                table=str(planned.variant.folder(plan.data_dir)),
                runs=str(runs.folder),
                threads=threads,
                keep_predictions=keep_predictions,
                recipe=plan.recipe.name,
                origins=dict(origins(plan.recipe, planned.trial)),
            )
            yield Work(request=request, needs=planned.needs, replaces=planned.record is not None)
