"""A slot of a device: does one job after another in a child process, which is replaced when it
dies.
"""

import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from prime_bench.base.errors import EnvironmentFault
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.backend import Event, Outcome
from prime_bench.schedule.child import Child
from prime_bench.schedule.devices import Device
from prime_bench.schedule.queue import Queue
from prime_bench.store.runs import Runs

_LOOK_AGAIN_S = 0.1

News = SimpleQueue[Event | Outcome | Exception | None]
"""What the slots tell: events and outcomes of jobs, a fault of ours, None when a slot has ended."""


class Slot(threading.Thread):
    """Works until the queue has nothing more; a context manager that waits for the end."""

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        device: Device,
        jobs: Queue,
        news: News,
        job_timeout_s: float | None,
    ) -> None:
        super().__init__(daemon=True)
        self._command = command
        self._device = device
        self._jobs = jobs
        self._news = news
        self._job_timeout_s = job_timeout_s
        self._child: Child | None = None
        self._stopped = False

    def run(self) -> None:
        """The thread's work."""
        try:
            with contextlib.ExitStack() as stack:
                while (request := self._jobs.take()) is not None:
                    outcome = self._outcome(request, stack)
                    final = self._jobs.settle(outcome)
                    for item in final:
                        self._news.put(item)
                    if not final:
                        again = {"event": "again", "job_id": request.job.id, "error": outcome.why}
                        self._news.put(again)
        except Exception as error:  # noqa: BLE001  # a bug of ours: the caller's thread raises it
            self._news.put(error)
        self._news.put(None)

    def stop(self) -> None:
        """Let the running job end at its next checkpoint, and start no other."""
        self._stopped = True
        if self._child is not None:
            self._child.terminate()

    def _outcome(self, request: JobRequest, stack: contextlib.ExitStack) -> Outcome:
        runs, job_id = Runs(Path(request.runs)), request.job.id
        if runs.done(job_id):
            return Outcome(request=request, state="skipped", why="another process did it")
        if self._child is None or not self._child.alive:
            stack.close()  # the dead child's pipes, which would add up over many deaths
            self._child = Child(self._command, variables=self._device.variables)
            stack.enter_context(self._child)
        if self._stopped:  # while the child was being started, so that nobody has told it
            return Outcome(request=request, state="interrupted", why="not started")
        outcome = self._child.do(
            request.model_copy(update={"device": self._device.name}),
            on_event=self._news.put,
            timeout_s=self._job_timeout_s,
        )
        outcome = replace(outcome, request=request)
        if outcome.state == "done" and not runs.done(job_id):
            outcome = replace(outcome, state="failed", why="the worker left no record")
        if outcome.state == "failed":
            # A full disk may be the very reason, and the caller hears of it anyway.
            with contextlib.suppress(EnvironmentFault):
                runs.fail(job_id, outcome.why)
        return outcome

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the end; after an error or Ctrl-C, kill the child to come to it."""
        if kind is not None:
            self._jobs.stop()
            while self.is_alive():
                # The thread may just have started another child: until it sees the stop.
                if self._child is not None:
                    self._child.kill()
                self.join(timeout=_LOOK_AGAIN_S)
        self.join()
