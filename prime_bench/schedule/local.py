"""The local engine: jobs one after another in a child process, which is replaced when it dies.

The parent never imports torch: a CUDA fault or the out-of-memory killer ends one job, not the run.
"""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.backend import Event, Outcome
from prime_bench.store.runs import Runs

WORKER = "prime_bench.worker"
_PATIENCE_S = 10
_LAST_WORDS_BYTES = 2000
_QUOTED_CHARACTERS = 200


class LocalBackend:
    """One child process that does many jobs, so that imports and tables are paid for once."""

    def __init__(self, *, command: tuple[str, ...] = (sys.executable, "-m", WORKER)) -> None:
        self._command = command

    def run(
        self, requests: Iterable[JobRequest], *, on_event: Callable[[Event], None]
    ) -> Iterator[Outcome]:
        """Yield each job's outcome as it ends.

        The worker itself claims its job, so a claim lives exactly as long as whoever may write.
        """
        with contextlib.ExitStack() as stack:
            child: _Child | None = None
            for request in requests:
                if child is None or not child.alive:
                    stack.close()  # the dead child's pipes, which would add up over many deaths
                    child = stack.enter_context(_Child(self._command))
                outcome = child.do(request, on_event=on_event)
                done = Runs(Path(request.runs)).done(request.job.id)
                if not (done or outcome.error or outcome.skipped):
                    outcome = Outcome(request=request, error="the worker left no record")
                yield outcome


class _Child:
    """A worker process; a context manager that ends it."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
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

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

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
        """Closing stdin asks the worker to end; one that is in the middle of a job is killed."""
        if kind is not None:
            self._process.kill()
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
