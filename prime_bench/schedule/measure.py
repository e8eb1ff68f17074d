"""Measure the pace of arms: workers train for some seconds and are killed."""

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from prime_bench.base.temporary import temporary_folder
from prime_bench.recipe.events import ProgressEvent, WorkerEvent
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.child import COMMAND, Child
from prime_bench.schedule.devices import Device
from prime_bench.schedule.estimate import (
    Experience,
    Pace,
    SimilarityKey,
    Spread,
    budget_key,
    budgets_of,
    similarity_key,
)
from prime_bench.schedule.plan import Plan, Planned
from prime_bench.schedule.slots import Slots, worker_variables

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
    experience: Experience,
    *,
    devices: Sequence[Device],
    slots: Slots,
    seconds: float = SECONDS,
    command: tuple[str, ...] = COMMAND,
    on_start: Callable[[Planned], None],
) -> list[str]:
    """Train each arm of each data set and backbone of a plan for `seconds`, unless records tell its
    pace, or that of another arm and the ratio of the two. `experience` learns what is measured.

    As many workers train at once as in a run, each the same job, since they slow each other down.
    They run in temporary folders, which are deleted.

    Returns:
        A message for each arm that could not be measured.
    """
    faults: list[str] = []
    seen: set[SimilarityKey] = set()
    places = [(planned, budgets_of(part)) for part in plan.by_recipe for planned in part.to_run]
    for planned, budgets in places:
        job = planned.job
        if job is None or job.kind != "train" or similarity_key(job) in seen:
            continue
        seen.add(similarity_key(job))
        if experience.knows(job):
            continue
        on_start(planned)
        times, why = _epoch_times_s(
            planned, plan, devices=devices, slots=slots, seconds=seconds, command=command
        )
        if not times:
            faults.append(f"{planned.job_spec}: not measured: {why}")
            continue
        budget = budgets[budget_key(planned)]
        pace = Pace(
            epoch_s=Spread.of(times),
            macs=budget.backbone_macs + budget.plugin_macs,
            source=f"measured for {seconds:g} s on {devices[0].kind}",
        )
        experience.learn(similarity_key(job), pace)
    return faults


def _epoch_times_s(
    planned: Planned,
    plan: Plan,
    *,
    devices: Sequence[Device],
    slots: Slots,
    seconds: float,
    command: tuple[str, ...],
) -> tuple[list[float], str]:
    """Seconds of an epoch, one for each of the workers that got so far, and why others did not."""
    one = functools.partial(_epoch_s, planned, plan, slots=slots, seconds=seconds, command=command)
    places = [device for _ in range(slots.on_each) for device in devices]
    with ThreadPoolExecutor(max_workers=len(places)) as pool:
        found = list(pool.map(one, places))
    return [epoch_s for epoch_s, _ in found if epoch_s is not None], found[0][1]


def _epoch_s(
    planned: Planned,
    plan: Plan,
    device: Device,
    *,
    slots: Slots,
    seconds: float,
    command: tuple[str, ...],
) -> tuple[float | None, str]:
    if planned.job is None:
        raise RuntimeError("a job without data cannot be measured")
    variables = {**device.variables, **worker_variables(device.kind, on_each=slots.on_each)}
    with (
        temporary_folder() as folder,
        Child(command, variables=variables) as child,
    ):
        watch = _Stopwatch(end=child.kill, seconds=seconds)
        outcome = child.do(
            JobRequest(
                job=planned.job,
                dataset=planned.job_spec.dataset,
                arm=planned.job_spec.arm.name,
                table=str(planned.table_spec.folder(plan.data_dir)),
                runs=str(folder),
                device=device.name,
                threads=slots.threads,
            ),
            on_event=watch,
        )
    return watch.epoch_s, outcome.why or "the job ended before it could be measured"
