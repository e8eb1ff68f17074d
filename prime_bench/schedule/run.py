"""Do what a plan says: requests for its jobs, an engine to run them, and a tally."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prime_bench.base.files import making
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.backend import Backend, Event, Outcome
from prime_bench.schedule.plan import Plan, check_runnable
from prime_bench.store.runs import Runs


@dataclass
class Tally:
    """What a run did."""

    done: int = 0
    skipped: int = 0
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        if outcome.error is not None:
            self.failed.append(outcome)
        elif outcome.skipped:
            self.skipped += 1
        else:
            self.done += 1


def run_plan(
    plan: Plan,
    backend: Backend,
    *,
    data_dir: Path,
    runs: Runs,
    device: str,
    threads: int | None = None,
    on_event: Callable[[Event], None],
    on_outcome: Callable[[Outcome], None],
) -> Tally:
    """Run every job of the plan that has no record; a failed job does not stop the others.

    `threads` is the number for one operation on the CPU; None leaves it to torch.
    Raises DataError where no job has its data, EnvironmentFault where `runs` cannot be written.
    """
    check_runnable(plan)
    with making(runs.folder):
        runs.folder.mkdir(parents=True, exist_ok=True)
        # One message now, and not one for each job later.
        tempfile.TemporaryFile(dir=runs.folder).close()
    tally = Tally()
    requests = _requests(plan, data_dir=data_dir, runs=runs, device=device, threads=threads)
    for outcome in backend.run(requests, on_event=on_event):
        tally.add(outcome)
        on_outcome(outcome)
    return tally


def _requests(
    plan: Plan, *, data_dir: Path, runs: Runs, device: str, threads: int | None
) -> Iterator[JobRequest]:
    for planned in plan.to_run:
        if planned.job is not None:
            yield JobRequest(
                job=planned.job,
                dataset=planned.trial.dataset,
                arm=planned.trial.arm.name,
                table=str(planned.variant.folder(data_dir)),
                runs=str(runs.folder),
                device=device,
                threads=threads,
            )
