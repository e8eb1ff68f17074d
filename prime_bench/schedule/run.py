"""Run a plan: open an engine, give it a queue of the plan's jobs, and count the outcomes."""

import contextlib
import signal
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from prime_bench.base import machine
from prime_bench.base.errors import UsageError
from prime_bench.base.files import making
from prime_bench.base.words import counted
from prime_bench.recipe.events import WorkerEvent
from prime_bench.recipe.file import origins
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule import devices, local
from prime_bench.schedule.engine import End, Engine, Limits, Outcome, Queue, Work
from prime_bench.schedule.estimate import needs_of
from prime_bench.schedule.plan import Plan, check_runnable
from prime_bench.store.runs import Runs


def open_engine(
    name: Literal["local", "ray"] = "local",
    *,
    device: str = "auto",
    slots: int | Literal["auto"] = "auto",
    threads: int | None = None,
    job_timeout_s: float | None = None,
    address: str = "auto",
    nodes: str | None = None,
    node_timeout_s: float = 0,
    mixed_devices: bool = False,
    sync_data: bool = False,
) -> Engine:
    """Find the devices, or connect to the cluster, on which jobs are to run.

    Args:
        name: `local` for child processes on this machine, `ray` for tasks of a Ray cluster.
        device: `cpu`, `cuda` (all there are), or a list such as `cuda:0,cuda:1`; `auto` is cuda
            where there is one.
        slots: Jobs at once on each device. `auto`: on CPUs one a core, on GPUs as many as their
            memory holds and one a core at most.
        threads: CPU threads of a job. None: `OMP_NUM_THREADS`, else the slots share the cores, one
            thread each for `auto` on CPUs; with Ray 1.
        job_timeout_s: Seconds after which a job is killed; it counts as failed.
        address: The Ray cluster: HOST:PORT, or `auto` for the one on this machine.
        nodes: Which nodes of the cluster take jobs: a label of Ray's, `KEY=VALUE`, or the name of a
            resource; None for all.
        node_timeout_s: Seconds for which a run waits for a node of the cluster that can take a job
            where none is there.
        mixed_devices: Whether arms that are compared may run on different models of a device, or
            with different versions of torch, on a cluster that has several.
        sync_data: Whether nodes of the cluster are sent the tables that they lack.

    Raises:
        UsageError: `device` is not a device's name.
        EnvironmentFault: The device or the cluster is not there.
    """
    if name not in ("local", "ray"):
        raise UsageError(f"no engine `{name}`", hint="engines: local, ray")
    n_slots = None if slots == "auto" else slots
    for key, number in (("slots", n_slots), ("threads", threads)):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise UsageError(f"{key}: at least 1 is wanted, got {number!r}")
    if job_timeout_s is not None and not job_timeout_s > 0:
        raise UsageError(f"job_timeout_s: more than 0 is wanted, got {job_timeout_s!r}")
    if name == "ray":
        from prime_bench.schedule.cluster import RayEngine

        return RayEngine(
            address=address,
            device=device,
            slots=n_slots,
            threads=threads or 1,
            job_timeout_s=job_timeout_s,
            nodes=nodes,
            node_timeout_s=node_timeout_s,
            mixed_devices=mixed_devices,
            sync_data=sync_data,
        )
    return local.LocalEngine(
        devices=devices.find_devices(device),
        slots=n_slots,
        threads=threads,
        job_timeout_s=job_timeout_s,
    )


def measuring_engine(device: str) -> Engine:
    """Return an engine that runs one job at a time on the first device, with every core."""
    here = devices.find_devices(device)[0]
    return local.LocalEngine(devices=[here], threads=machine.cores())


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What `run` has done."""

    plan: Plan
    """The plan as it was before the run."""
    done: int
    """Jobs that have a record now and had none before."""
    failed: tuple[Outcome, ...]
    """Jobs that failed, each with its reason; `log.txt` in the job's folder has the traceback."""
    not_run: tuple[Outcome, ...]
    """Jobs that need one that failed."""
    skipped: int
    """Jobs that another process has done or is doing."""
    interrupted: int
    """Jobs that were stopped; `run` continues them from their last finished epoch."""
    not_started: int
    """Jobs that were left when the run was stopped, by the user, a failure or a time limit."""
    stopped: bool
    """Whether the user stopped the run, with Ctrl-C or a SIGTERM."""
    log_fault: str | None = None
    """Why not everything was written for TensorBoard, in a line; None where all was."""

    @property
    def had_record(self) -> int:
        """Jobs that were done before."""
        return self.plan.counts.get("done", 0)

    @property
    def ok(self) -> bool:
        """Whether each job has a record that can be read, or was left to another process; jobs
        whose data are not prepared do not count, and those whose data do not suffice do.
        """
        left = self.interrupted or self.not_started
        return not (self.failed or self.not_run or self.plan.broken or self.plan.unfit or left)

    def __str__(self) -> str:
        broken, unfit = len(self.plan.broken), self.plan.counts.get("unfit", 0)
        counts = [
            f"{counted(self.done, 'job')} done",
            f"{self.had_record} had a record",
            f"{len(self.failed)} failed",
            *([f"{broken} broken"] if broken else []),
            *([f"{unfit} unfit"] if unfit else []),
            *([f"{len(self.not_run)} not run"] if self.not_run else []),
            *([f"{self.skipped} left to another process"] if self.skipped else []),
            *([f"{self.interrupted} interrupted"] if self.interrupted else []),
            *([f"{self.not_started} not started"] if self.not_started else []),
        ]
        return ", ".join(counts)

    def __repr__(self) -> str:
        return f"RunSummary({self.plan.recipe.name}: {self})"


def run_plan(
    plan: Plan,
    engine: Engine,
    *,
    runs: Runs,
    limits: Limits | None = None,
    keep_predictions: bool = False,
    on_event: Callable[[WorkerEvent], None],
    on_outcome: Callable[[Outcome], None],
) -> RunSummary:
    """Run every job of the plan that has no record. A failed job does not stop the others.

    Args:
        plan: The plan.
        engine: The engine.
        runs: Where the records are.
        limits: Retries and time limit.
        keep_predictions: Whether each job writes its predictions to its folder.
        on_event: Called with each event of a worker.
        on_outcome: Called with the final outcome of each job.

    Returns:
        What was done. `stopped` is False: the caller knows who stopped the engine.

    Raises:
        DataError: If no data set of the plan is prepared.
        EnvironmentFault: If `runs` cannot be written, or the device is missing.
    """
    check_runnable(plan)
    with making(runs.folder):
        runs.folder.mkdir(parents=True, exist_ok=True)
        # Fails now, with one message, and not later in each job.
        tempfile.TemporaryFile(dir=runs.folder).close()
        runs.check_claims()
    ended: dict[End, list[Outcome]] = defaultdict(list)
    slots = engine.slots_for(list(needs_of(plan).values()), n_jobs=len(plan.to_run))
    works = list(_works(plan, runs=runs, threads=slots.threads, keep_predictions=keep_predictions))
    queue = Queue(works, runs=runs, limits=limits)

    def take(outcome: Outcome) -> None:
        ended[outcome.state].append(outcome)
        on_outcome(outcome)

    for outcome in engine.run(queue, slots=slots, on_event=on_event):
        take(outcome)
    stopped, left = queue.stopped, queue.left
    if not stopped:
        left = [work for work in left if work.needs]
        for work in left:
            why = f"needs the job {', '.join(work.needs)}, which has no record"
            take(Outcome(request=work.request, state="not run", why=why))
    # The sum must be that of the plan, whatever an engine has lost.
    accounted = {o.request.job.id for outcomes in ended.values() for o in outcomes}
    accounted |= {work.job_id for work in left}
    for work in works:
        if work.job_id not in accounted:
            why = "the engine ended without an answer for it"
            take(Outcome(request=work.request, state="failed", why=why))
    sound = (planned for planned in plan.jobs if planned.state != "broken")
    runs.sweep(planned.job_id for planned in sound if planned.job_id)
    return RunSummary(
        plan=plan,
        done=len(ended["done"]),
        failed=tuple(ended["failed"]),
        not_run=tuple(ended["not run"]),
        skipped=len(ended["skipped"]),
        interrupted=len(ended["interrupted"]),
        not_started=len(left) if stopped else 0,
        stopped=False,
    )


def _works(plan: Plan, *, runs: Runs, threads: int, keep_predictions: bool) -> Iterator[Work]:
    for part in plan.by_recipe:
        for planned in part.to_run:
            if planned.job is None:
                continue
            request = JobRequest(
                job=planned.job,
                dataset=planned.job_spec.dataset,
                arm=planned.job_spec.arm.name,
                table=str(planned.table_spec.folder(plan.data_dir)),
                runs=str(runs.folder),
                threads=threads,
                keep_predictions=keep_predictions,
                recipe=part.recipe.name,
                origins=dict(origins(part.recipe, planned.job_spec)),
            )
            yield Work(request=request, needs=planned.needs, replaces=planned.record)


@contextlib.contextmanager
def stopping_gently(
    engine: Engine | None, on_stop: Callable[[], object] | None
) -> Iterator[list[int]]:
    """Turn the first SIGINT or SIGTERM into a request to stop, a second one into an interrupt.

    Without an `engine` the first one is an interrupt, as always in Python.
    Yields the numbers of the signals that came: a list that is empty until then.
    """
    received: list[int] = []
    # Python handles signals in the main thread alone.
    if engine is None or threading.current_thread() is not threading.main_thread():
        yield received
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        if on_stop is not None:
            on_stop()
        engine.stop()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
