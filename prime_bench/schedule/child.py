"""A worker process as its engine sees it: jobs in, events and outcomes out, and its obituary."""

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

COMMAND = (sys.executable, "-m", "prime_bench.worker")
_PATIENCE_S = 10
_LAST_WORDS_BYTES = 2000
_QUOTED_CHARACTERS = 200


class Child:
    """A worker process; a context manager that ends it. One thread hands it jobs; `kill` and
    `terminate` may come from any.
    """

    def __init__(
        self, command: tuple[str, ...] = COMMAND, *, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` are added to its environment."""
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **(variables or {})},
                text=True,
                encoding="utf-8",
                errors="replace",
                # A Ctrl-C in the terminal reaches the parent alone, which then ends the child.
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
        """End it at once, whatever it does."""
        self._process.kill()

    def terminate(self) -> None:
        """Ask it to end at its job's next checkpoint."""
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
        """Hand over one job and wait for its end, no longer than `timeout_s`.

        Raises EnvironmentFault where the worker can do no job at all, for want of its device.
        """
        with self._killing_after(timeout_s):
            outcome = self._do(request, on_event)
        if outcome is not None:
            return outcome
        why = self._obituary()
        if self._asked_to_end:
            return Outcome(request=request, state="interrupted", why="stopped")
        if self._overdue:
            why = f"not done after {timeout_s:g} s, and ended"
        return Outcome(request=request, state="failed", why=why)

    def _do(self, request: JobRequest, on_event: Callable[[WorkerEvent], None]) -> Outcome | None:
        """The job's end as the worker tells it; None where it ends without a word."""
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
        """Kill the process if the block takes longer, and never for a job that is over."""
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

    def _obituary(self) -> str:
        try:
            code = self._process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return "the worker closed its output, went on, and was ended"
        self._stderr.seek(0)
        words = self._stderr.read()[-_LAST_WORDS_BYTES:].decode("utf-8", "replace").strip()
        last = f": {words.splitlines()[-1]}" if words else ""
        if code < 0:
            name = signal.Signals(-code).name
            killer = " (out of memory?)" if name == "SIGKILL" else ""
            return f"the worker was killed by {name}{killer}{last}"
        return f"the worker ended with exit code {code}{last}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closing stdin asks the worker to end."""
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
            return Outcome(request=request, state="failed", why=event.error)
    return None
