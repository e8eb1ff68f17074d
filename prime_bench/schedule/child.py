"""A worker process from the side of its engine: takes jobs, gives events and outcomes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import IO, Self

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.sources import search_path
from prime_bench.recipe.events import (
    DoneEvent,
    FailedEvent,
    FaultEvent,
    InterruptedEvent,
    SkippedEvent,
    WorkerEvent,
    read_event,
)
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.engine import Outcome
from prime_bench.settings.memory import says_out_of_memory

COMMAND = (sys.executable, "-P", "-m", "prime_bench.worker")
"""Without -P the current folder would come first on the worker's `sys.path`: a `numpy.py` in it
would be imported."""
_PATIENCE_S = 10
_STDERR_BYTES = 2000
_QUOTED_CHARACTERS = 200


class Child:
    """A worker process; a context manager that ends it.

    Jobs are given to it by one thread; `kill` and `terminate` may be called from any.
    """

    def __init__(
        self, command: tuple[str, ...] = COMMAND, *, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start the process. `variables` are added to its environment variables."""
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                # The worker finds modules where this process does.
                env={**os.environ, "PYTHONPATH": search_path(), **(variables or {})},
                text=True,
                encoding="utf-8",
                errors="replace",
                # Ctrl-C in the terminal then reaches the parent alone, which ends the child.
                start_new_session=True,
            )
        except OSError:
            self._stderr.close()
            raise
        self._asked_to_end = False
        self._overdue = False
        self._number = 0
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process. The job that it does counts as interrupted."""
        self._asked_to_end = True
        self._process.kill()

    def terminate(self) -> None:
        """Ask the process to end at its job's next checkpoint."""
        if not self._asked_to_end:
            self._asked_to_end = True
            self._process.terminate()

    def do(
        self,
        request: JobRequest,
        *,
        on_event: Callable[[WorkerEvent], None],
        timeout_s: float | None = None,
    ) -> Outcome:
        """Give the worker one job and wait for its end; kill the worker after `timeout_s`.

        Raises:
            EnvironmentFault: If the worker can do no job at all, because its device is missing.
        """
        with self._killing_after(timeout_s):
            outcome = self._do(request, on_event)
        if outcome is not None:
            return outcome
        why, out_of_memory = self._cause_of_end()
        if self._asked_to_end:
            return Outcome(request=request, state="interrupted", why="stopped")
        if self._overdue:
            why, out_of_memory = f"not done after {timeout_s:g} s, and killed", False
        return Outcome(request=request, state="failed", why=why, out_of_memory=out_of_memory)

    def _do(self, request: JobRequest, on_event: Callable[[WorkerEvent], None]) -> Outcome | None:
        """The outcome that the worker reports; None if the worker ends without reporting one."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the worker's pipes are missing")
        try:
            stdin.write(json.dumps(request.plain()) + "\n")
            stdin.flush()
            for line in stdout:
                event = read_event(line)
                if event is None:
                    # What such a worker will write next is unknown, so it gets no other job.
                    self._process.kill()
                    self._process.wait()
                    quoted = line.strip()[:_QUOTED_CHARACTERS]
                    why = f"the worker wrote a line that is not an event: {quoted}"
                    return Outcome(request=request, state="failed", why=why)
                if isinstance(event, FaultEvent):
                    raise EnvironmentFault(event.error, hint=event.hint)
                on_event(event)
                if (outcome := _end(request, event)) is not None:
                    return outcome
        except BrokenPipeError:
            pass
        return None

    @contextlib.contextmanager
    def _killing_after(self, timeout_s: float | None) -> Iterator[None]:
        """Kill the process if the block takes longer than `timeout_s`, but never after it."""
        self._number += 1
        number = self._number

        def kill() -> None:
            with self._lock:
                if self._number == number:
                    self._overdue = True
                    self._process.kill()

        if timeout_s is None:
            yield
            return
        timer = threading.Timer(min(timeout_s, threading.TIMEOUT_MAX), kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                self._number += 1

    def _cause_of_end(self) -> tuple[str, bool]:
        """Why the process has ended, in one line with the last line of its stderr, and whether that
        may have been a lack of memory.
        """
        try:
            code = self._process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return "the worker closed its output without ending, and was killed", False
        self._stderr.seek(0)
        text = self._stderr.read()[-_STDERR_BYTES:].decode("utf-8", "replace").strip()
        last = text.splitlines()[-1] if text else ""
        said = f": {last}" if last else ""
        if code < 0:
            name = signal.Signals(-code).name
            killed = name == "SIGKILL"  # as the operating system does where memory is short
            killer = " (out of memory?)" if killed else ""
            why = f"the worker was killed by {name}{killer}{said}"
            return why, killed or says_out_of_memory(last)
        return f"the worker ended with exit code {code}{said}", says_out_of_memory(last)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close stdin, which asks the worker to end, and kill it if it does not."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()


def _end(request: JobRequest, event: WorkerEvent) -> Outcome | None:
    """The outcome that an event reports; None if the job goes on after it."""
    match event:
        case DoneEvent():
            return Outcome(request=request)
        case SkippedEvent():
            return Outcome(request=request, state="skipped", why="another process has it or did it")
        case InterruptedEvent():
            return Outcome(request=request, state="interrupted", why="stopped at a checkpoint")
        case FailedEvent():
            return Outcome(
                request=request,
                state="failed",
                why=event.error,
                out_of_memory=event.out_of_memory,
            )
    return None
