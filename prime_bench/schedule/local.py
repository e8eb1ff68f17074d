"""The local engine: slots that do one job after another, each in a child process of its own, which
is replaced when it dies.

The parent never imports torch: a CUDA fault or the out-of-memory killer ends one job, not the run.
"""

import contextlib
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.backend import Event, Outcome
from prime_bench.store.runs import Runs

WORKER = "prime_bench.worker"
_PATIENCE_S = 10
_LOOK_AGAIN_S = 0.1
_LAST_WORDS_BYTES = 2000
_QUOTED_CHARACTERS = 200


class LocalBackend:
    """`slots` child processes that do many jobs each: imports and tables are paid for once."""

    def __init__(
        self, *, slots: int = 1, command: tuple[str, ...] = (sys.executable, "-m", WORKER)
    ) -> None:
        self._n_slots = slots
        self._command = command

    def run(
        self, requests: Iterable[JobRequest], *, on_event: Callable[[Event], None]
    ) -> Iterator[Outcome]:
        """Yield each job's outcome as it ends; events come in the caller's thread.

        The worker itself claims its job, so a claim lives exactly as long as whoever may write.
        """
        jobs, news = _Jobs(requests), _News()
        with contextlib.ExitStack() as stack:
            for _ in range(self._n_slots):
                stack.enter_context(_Slot(self._command, jobs=jobs, news=news))
            at_work = self._n_slots
            while at_work:
                item = news.get()
                if item is None:
                    at_work -= 1
                elif isinstance(item, Exception):
                    raise item
                elif isinstance(item, Outcome):
                    yield item
                else:
                    on_event(item)


_News = queue.SimpleQueue["Event | Outcome | Exception | None"]
"""What the slots tell: events and outcomes of jobs, a fault of ours, None when a slot has ended."""


class _Jobs:
    """The requests, handed out one at a time to whichever slot asks."""

    def __init__(self, requests: Iterable[JobRequest]) -> None:
        self._requests = iter(requests)
        self._lock = threading.Lock()
        self._stopped = False

    def take(self) -> JobRequest | None:
        """The next request; None when there is none or the run was stopped."""
        with self._lock:
            return None if self._stopped else next(self._requests, None)

    def stop(self) -> None:
        """Hand out no more."""
        self._stopped = True


class _Slot(threading.Thread):
    """Does jobs in a child process until there is none; a context manager that ends with both."""

    def __init__(self, command: tuple[str, ...], *, jobs: _Jobs, news: _News) -> None:
        super().__init__(daemon=True)
        self._command = command
        self._jobs = jobs
        self._news = news
        self._child: _Child | None = None

    def run(self) -> None:
        """The thread's work."""
        try:
            with contextlib.ExitStack() as stack:
                while (request := self._jobs.take()) is not None:
                    self._news.put(self._outcome(request, stack))
        except Exception as error:  # noqa: BLE001  # a bug of ours: the caller's thread raises it
            self._news.put(error)
        self._news.put(None)

    def _outcome(self, request: JobRequest, stack: contextlib.ExitStack) -> Outcome:
        if self._child is None or not self._child.alive:
            stack.close()  # the dead child's pipes, which would add up over many deaths
            self._child = stack.enter_context(_Child(self._command))
        outcome = self._child.do(request, on_event=self._news.put)
        done = Runs(Path(request.runs)).done(request.job.id)
        if not (done or outcome.error or outcome.skipped):
            outcome = Outcome(request=request, error="the worker left no record")
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


class _Child:
    """A worker process; a context manager that ends it."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                text=True,
                encoding="utf-8",
                errors="replace",
                # A Ctrl-C in the terminal reaches the parent alone, which then ends the child.
                start_new_session=True,
            )
        except OSError:
            self._stderr.close()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()

    def do(self, request: JobRequest, *, on_event: Callable[[Event], None]) -> Outcome:
        """Hand over one job and wait for its end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the worker's pipes are missing")
        try:
            stdin.write(json.dumps(request.plain()) + "\n")
            stdin.flush()
            for line in stdout:
                event = _event(line)
                if event is None:
                    # Nobody knows what such a worker says next, so it does no other job.
                    self._process.kill()
                    self._process.wait()
                    said = line.strip()[:_QUOTED_CHARACTERS]
                    return Outcome(request=request, error=f"the worker said no event, but: {said}")
                on_event(event)
                if event["event"] in ("done", "skipped"):
                    return Outcome(request=request, skipped=event["event"] == "skipped")
                if event["event"] == "failed":
                    return Outcome(
                        request=request, error=str(event.get("error", "no reason given"))
                    )
        except BrokenPipeError:
            pass
        return Outcome(request=request, error=self._obituary())

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


def _event(line: str) -> Event | None:
    """The event in a line of a worker's output; None where the line is something else."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
