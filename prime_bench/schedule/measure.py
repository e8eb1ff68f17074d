"""Measure the pace of a backbone: a worker trains for some seconds and is killed."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prime_bench.recipe.events import ProgressEvent, WorkerEvent
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.child import COMMAND, Child
from prime_bench.schedule.devices import Device
from prime_bench.schedule.estimate import (
    Pace,
    SimilarityKey,
    budget_key,
    budgets_of,
    similarity_key,
)
from prime_bench.schedule.plan import Plan, Planned

SECONDS = 10.0


@dataclass
class _Stopwatch:
    """Rows and times of a worker's progress, from its first report on."""

    end: Callable[[], None]
    """Called after `seconds` of progress."""
    seconds: float
    seen: list[tuple[float, int]] = field(default_factory=list)
    """Time of each report, and rows since the start of the job."""
    rows_total: int = 0

    def __call__(self, event: WorkerEvent) -> None:
        if not isinstance(event, ProgressEvent):
            return
        progress = event.progress
        self.rows_total = progress.rows_total
        rows = (progress.epoch - 1) * self.rows_total + progress.rows
        self.seen.append((time.monotonic(), rows))
        if self.seen[-1][0] - self.seen[0][0] >= self.seconds:
            self.end()

    @property
    def epoch_s(self) -> float | None:
        """Seconds of an epoch; None if there was no progress between two reports."""
        if len(self.seen) < 2:
            return None
        (start, first), (stop, last) = self.seen[0], self.seen[-1]
        return None if last == first else self.rows_total * (stop - start) / (last - first)


def measure(
    plan: Plan,
    *,
    device: Device,
    threads: int,
    seconds: float = SECONDS,
    command: tuple[str, ...] = COMMAND,
    on_start: Callable[[Planned], None],
) -> tuple[dict[SimilarityKey, Pace], list[str]]:
    """Train the first arm of each data set and backbone of a plan for `seconds`.

    The jobs run in a temporary folder, of which nothing is kept.

    Returns:
        The paces, and a message for each backbone that could not be measured.
    """
    budgets, found, faults = budgets_of(plan), {}, []
    seen = set()
    for planned in plan.to_run:
        job, pair = planned.job, (planned.job_spec.dataset, planned.job_spec.backbone)
        if job is None or job.kind != "train" or pair in seen:
            continue
        seen.add(pair)
        on_start(planned)
        epoch_s, why = _epoch_s(
            planned, plan, device=device, threads=threads, seconds=seconds, command=command
        )
        if epoch_s is None:
            faults.append(f"{planned.job_spec}: not measured: {why}")
            continue
        budget = budgets[budget_key(planned)]
        found[similarity_key(job)] = Pace(
            epoch_s=epoch_s,
            macs=budget.backbone_macs + budget.plugin_macs,
            source=f"measured for {seconds:g} s on {device.kind}",
        )
    return found, faults


def _epoch_s(
    planned: Planned,
    plan: Plan,
    *,
    device: Device,
    threads: int,
    seconds: float,
    command: tuple[str, ...],
) -> tuple[float | None, str]:
    if planned.job is None:
        raise RuntimeError("a job without data cannot be measured")
    with (
        tempfile.TemporaryDirectory(prefix="prime-bench-") as folder,
        Child(command, variables=device.variables) as child,
    ):
        watch = _Stopwatch(end=child.kill, seconds=seconds)
        outcome = child.do(
            JobRequest(
                job=planned.job,
                dataset=planned.job_spec.dataset,
                arm=planned.job_spec.arm.name,
                table=str(planned.table_spec.folder(plan.data_dir)),
                runs=folder,
                device=device.name,
                threads=threads,
            ),
            on_event=watch,
        )
    return watch.epoch_s, outcome.why or "the job ended before it could be measured"
