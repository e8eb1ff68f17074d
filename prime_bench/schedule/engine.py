"""The interface of an engine, and the queue from which it takes jobs."""

import contextlib
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from prime_bench.base.errors import DataError
from prime_bench.recipe.events import RetryEvent, WorkerEvent
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.devices import Device
from prime_bench.schedule.slots import Slots
from prime_bench.settings.memory import MemoryNeed
from prime_bench.store.record import DeviceKind, Record
from prime_bench.store.runs import Runs

End = Literal["done", "skipped", "failed", "interrupted", "not run"]
"""How a job ended. `skipped`: another process has it or did it. `not run`: a job that it needs has
no record.
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended, and why."""

    request: JobRequest
    state: End = "done"
    why: str = ""
    """One line; empty for a job that is done."""
    out_of_memory: bool = False
    """Whether it failed, as far as can be told, since memory did not suffice."""
    machine: bool = False
    """Whether it failed for a fault of its machine, so that it may succeed on another."""


class Engine(Protocol):
    """Gives jobs to workers. Code that uses an engine does not depend on which one it is."""

    @property
    def device_kind(self) -> DeviceKind:
        """Kind of the devices on which its jobs run."""

    @property
    def device(self) -> Device:
        """The device on which its jobs run; of several the first."""

    def slots_for(self, needs: Sequence[MemoryNeed], *, n_jobs: int | None = None) -> Slots:
        """How many jobs will run at once, and with how many threads.

        Args:
            needs: What the jobs need, as far as it is known.
            n_jobs: Number of jobs; None if it is not known.
        """

    def run(
        self,
        queue: "Queue",
        *,
        slots: Slots | None = None,
        on_event: Callable[[WorkerEvent], None],
    ) -> Iterator[Outcome]:
        """Run the jobs of the queue, and yield the final outcome of each when it ends.

        A job that fails raises nothing. If the caller's code raises, or closes the iterator, the
        running jobs are killed.

        Args:
            queue: The jobs.
            slots: The result of `slots_for`; None where nothing is known of the jobs.
            on_event: Called with each event of a worker.
        """

    def stop(self) -> None:
        """Start no more jobs, and end the running ones after their next validation; `run` then
        ends.

        May be called from a signal handler or another thread.
        """


@dataclass(frozen=True, kw_only=True)
class Work:
    """A job in the queue."""

    request: JobRequest
    needs: tuple[str, ...] = ()
    """Ids of the jobs that must be done before it can start."""
    replaces: Record | None = None
    """The job's record when the run was planned, which is moved away when the job starts."""

    @functools.cached_property
    def job_id(self) -> str:
        """Id of the job."""
        return self.request.job.id


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How often jobs are tried again, and when no more are started."""

    retries: int = 0
    """How often a failed job is tried again, each time after the jobs that were not tried yet."""
    fail_fast: bool = False
    """Whether no job is started after one has failed and will not be tried again."""
    max_s: float | None = None
    """Seconds after which no job is started; None for no limit."""


@dataclass
class _AtWork:
    """A job that was handed out."""

    work: Work
    device: str | None
    together: int = 0
    """The most jobs that were at work on its device at any one time since it was handed out."""


def by_record(outcome: Outcome, request: JobRequest, runs: Runs) -> Outcome:
    """The outcome of `request` that agrees with whether the job has a record.

    `outcome` is the worker's, of the request as it was changed for the worker.
    """
    outcome = replace(outcome, request=request)
    done = runs.done(request.job.id)
    if outcome.state in ("failed", "interrupted") and done:
        # The worker has ended between the record and its last event.
        return Outcome(request=request)
    if outcome.state == "done" and not done:
        return replace(outcome, state="failed", why="the worker left no record")
    return outcome


class Queue:
    """Hands out jobs in order, each when the jobs that it needs are done. Thread-safe.

    Where a device has run out of memory, it hands out fewer jobs at once for that device.
    """

    def __init__(self, works: Iterable[Work], *, runs: Runs, limits: Limits | None = None) -> None:
        self._waiting = list(works)
        self._at_work: dict[str, _AtWork] = {}
        self._at_once: dict[str, int] = {}
        self._unsettled = {work.job_id for work in self._waiting}
        self._runs = runs
        self._limits = limits or Limits()
        self._tries: Counter[str] = Counter()
        self._start = time.monotonic()
        self._stopped = False
        self._changed = threading.Condition(threading.RLock())

    def take(
        self,
        *,
        wait: bool = True,
        device: str | None = None,
        fits: Callable[[JobRequest], bool] = lambda _request: True,
    ) -> JobRequest | None:
        """Return the next job that can start, or None if there will be no more for the caller.

        With `wait`, waits for a running job to end if the next one needs it. Without, returns None
        in that case too; `open` tells whether there may be more later.

        Args:
            wait: Whether to wait.
            device: The device on which the job will run; None if the caller counts its jobs itself.
            fits: Whether the caller can do a job; others are left to other callers.
        """
        with self._changed:
            while not self.stopped:
                if device is not None and self._is_full(device):
                    return None  # those that are at work there will take what is left
                if (work := self._next(fits)) is not None:
                    self._waiting.remove(work)
                    self._start_on(device, work)
                    if work.replaces is not None:
                        # A record that is broken by now is not the planned one either.
                        with contextlib.suppress(DataError):
                            self._runs.put_aside(work.job_id, record=work.replaces)
                    return work.request
                if not wait or not self.open:
                    return None
                self._changed.wait()
        return None

    def settle(self, outcome: Outcome) -> list[Outcome]:
        """Record how a job ended, and return the outcomes that are final.

        Returns an empty list if the job will be tried again: as often as the limits allow, and
        without counting where memory did not suffice for the jobs that its device had at once.
        Otherwise returns its outcome and those of the jobs that need it and cannot run any more.
        """
        job_id = outcome.request.job.id
        with self._changed:
            self._changed.notify_all()
            ended = self._at_work.pop(job_id)
            if outcome.state == "failed":
                if outcome.out_of_memory and self._can_share_less(ended):
                    self._waiting.insert(0, ended.work)
                    return []
                self._tries[job_id] += 1
                if self._tries[job_id] <= self._limits.retries and not self.stopped:
                    self._waiting.append(ended.work)
                    return []
                self._stopped |= self._limits.fail_fast
            self._unsettled.discard(job_id)
            return [outcome, *self._stranded(outcome, job_id=job_id)]

    def retry_event(self, outcome: Outcome, *, device: str) -> RetryEvent:
        """The event of a failed job that will be tried again on `device` or another. It names
        `device` where that ran out of memory and has fewer jobs at once from now on.
        """
        event = RetryEvent(job_id=outcome.request.job.id, error=outcome.why)
        at_once = self.at_once(device) if outcome.out_of_memory else None
        if at_once is None:  # also for a job that had the device to itself
            return event
        return event.model_copy(update={"device": device, "at_once": at_once})

    def at_once(self, device: str) -> int | None:
        """The most jobs at once on a device that has run out of memory; None if it has not."""
        with self._changed:
            return self._at_once.get(device)

    def put_back(self, request: JobRequest) -> None:
        """Take back a job whose node was lost. It is handed out next."""
        with self._changed:
            self._waiting.insert(0, self._at_work.pop(request.job.id).work)
            self._changed.notify_all()

    def stop(self) -> None:
        """Hand out no more jobs."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        """Whether no more jobs are handed out: after `stop`, a failure, or the time limit."""
        late = self._limits.max_s
        return self._stopped or (late is not None and time.monotonic() - self._start >= late)

    @property
    def open(self) -> bool:
        """Whether a job may still be handed out, now or after a running one has ended."""
        with self._changed:
            if self.stopped or not self._waiting:
                return False
            return bool(self._at_work) or self._next() is not None

    @property
    def left(self) -> list[Work]:
        """The jobs that were not handed out, in order."""
        with self._changed:
            return list(self._waiting)

    def _is_full(self, device: str) -> bool:
        n_jobs = sum(running.device == device for running in self._at_work.values())
        return n_jobs >= self._at_once.get(device, n_jobs + 1)

    def _start_on(self, device: str | None, work: Work) -> None:
        self._at_work[work.job_id] = _AtWork(work, device)
        beside = [running for running in self._at_work.values() if running.device == device]
        for running in beside:
            running.together = max(running.together, len(beside))

    def _can_share_less(self, ended: _AtWork) -> bool:
        """Allow fewer jobs at once on the device; False for a job that had it to itself."""
        if ended.device is None or ended.together < 2 or self.stopped:
            return False
        fewer = ended.together - 1
        self._at_once[ended.device] = min(self._at_once.get(ended.device, fewer), fewer)
        return True

    def _next(self, fits: Callable[[JobRequest], bool] = lambda _request: True) -> Work | None:
        """The first job that can start. A record that will be replaced does not count as done."""
        for work in self._waiting:
            can = all(need not in self._unsettled and self._runs.done(need) for need in work.needs)
            if can and fits(work.request):
                return work
        return None

    def _stranded(self, outcome: Outcome, *, job_id: str) -> list[Outcome]:
        """Take the jobs that need the one that has ended out of the queue, if it has no record."""
        if outcome.state not in ("failed", "skipped") or self._runs.done(job_id):
            return []
        reason = "failed" if outcome.state == "failed" else "is with another process"
        lost = [work for work in self._waiting if job_id in work.needs]
        for work in lost:
            self._waiting.remove(work)
            self._unsettled.discard(work.job_id)
        why = f"needs the job {job_id}, which {reason}"
        return [Outcome(request=work.request, state="not run", why=why) for work in lost]
