"""What every engine is, and the queue of jobs that it takes from."""

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from prime_bench.recipe.events import WorkerEvent
from prime_bench.recipe.job import JobRequest
from prime_bench.store.runs import Runs

End = Literal["done", "skipped", "failed", "interrupted", "not run"]
"""`skipped`: another process had or did the job meanwhile. `not run`: what it needs failed."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended."""

    request: JobRequest
    state: End = "done"
    why: str = ""
    """One line; empty for a job that is done."""


class Backend(Protocol):
    """An engine. Only `cli.run` chooses one; nobody else asks which it is."""

    def run(self, queue: "Queue", *, on_event: Callable[[WorkerEvent], None]) -> Iterator[Outcome]:
        """Yield each job's final outcome as it ends; never raise for a job that failed.

        Requests are taken from the queue and their outcomes settled with it; an engine adds the
        device. An error or interrupt in the caller's code ends the engine's jobs at once.
        """

    def stop(self) -> None:
        """Start nothing more and end the running jobs at their next checkpoint; `run` then ends.

        May be called from a signal handler or another thread.
        """


@dataclass(frozen=True, kw_only=True)
class Work:
    """A request on its way."""

    request: JobRequest
    needs: tuple[str, ...] = ()
    """Ids of the jobs that have to be done before it may start."""
    replaces: bool = False
    """Whether the job has a record, which is put aside when the job starts."""

    @functools.cached_property
    def job_id(self) -> str:
        """The request's."""
        return self.request.job.id


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a run tries again, and when it starts nothing more."""

    retries: int = 0
    """Further tries of a job that fails, after all others have had their first."""
    fail_fast: bool = False
    """Whether the first job that fails for good is the last one."""
    max_s: float | None = None
    """Seconds after which no job is started; None for no such limit."""


class Queue:
    """Hands out requests in their order, each when its needs are met. Safe among threads."""

    def __init__(self, works: Iterable[Work], *, runs: Runs, limits: Limits | None = None) -> None:
        self._waiting = list(works)
        self._at_work: dict[str, Work] = {}
        self._unsettled = {work.job_id for work in self._waiting}
        self._runs = runs
        self._limits = limits or Limits()
        self._tries: Counter[str] = Counter()
        self._start = time.monotonic()
        self._stopped = False
        self._changed = threading.Condition(threading.RLock())

    def take(self, *, wait: bool = True) -> JobRequest | None:
        """The next request that may start; None when there will be none.

        Without `wait` also None where one may come when a running job has ended (see `open`).
        """
        with self._changed:
            while not self.stopped:
                if (work := self._next()) is not None:
                    self._waiting.remove(work)
                    self._at_work[work.job_id] = work
                    if work.replaces:
                        self._runs.put_aside(work.job_id)
                    return work.request
                if not wait or not self.open:
                    return None
                self._changed.wait()
        return None

    def settle(self, outcome: Outcome) -> list[Outcome]:
        """Take note of how a job ended; give back what is final now.

        That is nothing for a job that will be tried again, and else the outcome itself, followed by
        those of the jobs that needed it and now cannot run.
        """
        job_id = outcome.request.job.id
        with self._changed:
            self._changed.notify_all()
            work = self._at_work.pop(job_id)
            if outcome.state == "failed":
                self._tries[job_id] += 1
                if self._tries[job_id] <= self._limits.retries and not self.stopped:
                    self._waiting.append(work)
                    return []
                self._stopped |= self._limits.fail_fast
            self._unsettled.discard(job_id)
            return [outcome, *self._stranded(outcome, job_id=job_id)]

    def put_back(self, request: JobRequest) -> None:
        """Take back a job that ended through no fault of its own; it is the next one."""
        with self._changed:
            self._waiting.insert(0, self._at_work.pop(request.job.id))
            self._changed.notify_all()

    def stop(self) -> None:
        """Hand out no more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        """Whether no more is handed out: by `stop`, after a failure, or when the time is over."""
        late = self._limits.max_s
        return self._stopped or (late is not None and time.monotonic() - self._start >= late)

    @property
    def open(self) -> bool:
        """Whether a request may still be handed out, now or after another job's end."""
        with self._changed:
            if self.stopped or not self._waiting:
                return False
            return bool(self._at_work) or self._next() is not None

    @property
    def left(self) -> list[Work]:
        """What was not handed out, in order."""
        with self._changed:
            return list(self._waiting)

    def _next(self) -> Work | None:
        """The first work all of whose needs are met, which a record that will be redone is not."""
        for work in self._waiting:
            if all(need not in self._unsettled and self._runs.done(need) for need in work.needs):
                return work
        return None

    def _stranded(self, outcome: Outcome, *, job_id: str) -> list[Outcome]:
        """The ends of the jobs that wait for one that has ended without a record here."""
        if outcome.state not in ("failed", "skipped") or self._runs.done(job_id):
            return []
        said = "failed" if outcome.state == "failed" else "is with another process"
        lost = [work for work in self._waiting if job_id in work.needs]
        for work in lost:
            self._waiting.remove(work)
            self._unsettled.discard(work.job_id)
        why = f"needs the job {job_id}, which {said}"
        return [Outcome(request=work.request, state="not run", why=why) for work in lost]
