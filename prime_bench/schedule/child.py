"""A worker process from the side of its engine: takes jobs, gives events and outcomes."""

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.sources import search_path
from prime_bench.recipe.events import (
    KEY_VARIABLE,
    CheckedEvent,
    DoneEvent,
    FailedEvent,
    FaultEvent,
    InterruptedEvent,
    SkippedEvent,
    WorkerEvent,
    read_event,
)
from prime_bench.recipe.job import JobRequest, MachineCheck
from prime_bench.schedule.engine import Outcome
from prime_bench.settings.memory import says_out_of_memory

COMMAND = (sys.executable, "-P", "-m", "prime_bench.worker")
"""Without -P the current folder would come first on the worker's `sys.path`: a `numpy.py` in it
would be imported."""
_GUARD = ("/bin/sh", "-c", "trap '' HUP INT TERM; read line; kill -9 0")
"""Leads the worker's process group. `read` returns when this process has ended in whatever way, and
`kill -9 0` then ends the group, also where the worker is dead or does not come to look for itself.
"""
_PATIENCE_S = 10
_LOOK_EVERY_S = 0.2
_LEFT_BEHIND_S = 0.5
"""How long a process that a job has started may live on after the job."""
_STOP_COMES_S = 1.0
_STDERR_BYTES = 2000
_QUOTED_CHARACTERS = 200
_LINE_BYTES = 1 << 16  # an event has fewer: `recipe.events.MESSAGE_CHARACTERS`
_ENDED = "ZX"  # a process for which nobody has waited
_PIPE_BYTES = 1 << 20  # what a pipe can hold: /proc/sys/fs/pipe-max-size


class Child:
    """A worker process; a context manager that ends it with all processes that it has started.

    They are one process group. A process that has left the group (`setsid`) is not ended.

    Jobs are given to it by one thread; `kill` and `terminate` may be called from any.
    """

    def __init__(
        self, command: tuple[str, ...] = COMMAND, *, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start the process. `variables` are added to its environment variables."""
        self._key = secrets.token_hex(8)
        self._unread = b""
        self._asked_to_end = threading.Event()
        self._lock = threading.Lock()
        self._ended = False
        with contextlib.ExitStack() as stack:
            self._stderr: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            self._guard = stack.enter_context(
                subprocess.Popen(
                    _GUARD,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # Ctrl-C in the terminal then reaches the parent alone, which ends the child.
                    process_group=0,
                )
            )
            self._process = stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    # The worker finds modules where this process does.
                    env={
                        **os.environ,
                        "PYTHONPATH": search_path(),
                        KEY_VARIABLE: self._key,
                        **(variables or {}),
                    },
                    process_group=self._guard.pid,
                )
            )
            stack.callback(self._kill_group, for_good=True)
            self._closing = stack.pop_all()

    @property
    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process. The job that it does counts as interrupted."""
        self._asked_to_end.set()
        self._kill_group()

    def terminate(self) -> None:
        """Ask the process to end after the next validation of its job."""
        if not self._asked_to_end.is_set():
            self._asked_to_end.set()
            self._process.terminate()

    def do(
        self,
        request: JobRequest,
        *,
        on_event: Callable[[WorkerEvent], None],
        timeout_s: float | None = None,
    ) -> Outcome:
        """Give the worker one job and wait for its end; kill the worker after `timeout_s`.

        The worker is ended as well after a job that was stopped, after one that has left processes
        behind, and after one that may have changed its process for the next job: one with code that
        is not ours (torch's default dtype, a patched function), and one that lacked something of
        the machine, such as open files.

        Raises:
            EnvironmentFault: If the worker can do no job at all, because its device is missing.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        outcome = self._answer(request, on_event, deadline=deadline)
        if outcome is not None and outcome.state != "interrupted":
            if outcome.machine or not request.job.is_ours or self._left_behind():
                self._retire()
            return outcome
        if deadline is not None and time.monotonic() >= deadline and self.alive:
            why, out_of_memory = f"not done after {timeout_s:g} s, and killed", False
        elif outcome is not None:
            why, out_of_memory = (
                "the worker was stopped by a SIGTERM that this run did not send",
                False,
            )
        else:
            why, out_of_memory = self._cause_of_end()
        self._retire()
        # A SIGTERM may be for all processes, as from a batch system, and reach the worker first.
        by_sigterm = outcome is not None or self._process.returncode in (0, -signal.SIGTERM)
        if self._asked_to_end.wait(_STOP_COMES_S if by_sigterm else 0):
            return outcome or Outcome(request=request, state="interrupted", why="stopped")
        return Outcome(request=request, state="failed", why=why, out_of_memory=out_of_memory)

    def check(self, check: MachineCheck) -> CheckedEvent:
        """Ask the worker whether this machine has all that the jobs of a `MachineCheck` need.

        Raises:
            EnvironmentFault: If the worker ends, or writes anything else.
        """
        if self._send(check):
            for line in self._lines(deadline=None):
                event = read_event(line, key=self._key)
                if isinstance(event, CheckedEvent):
                    return event
                self._retire()
                said = line.strip()[:_QUOTED_CHARACTERS]
                raise EnvironmentFault(f"the worker did not answer a check: {said}")
        raise EnvironmentFault(self._cause_of_end()[0])

    def _send(self, asked: JobRequest | MachineCheck) -> bool:
        """Write a line to the worker; returns False if it has ended."""
        if self._process.stdin is None:
            raise RuntimeError("the worker's pipes are missing")
        try:
            self._process.stdin.write((json.dumps(asked.plain()) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _answer(
        self,
        request: JobRequest,
        on_event: Callable[[WorkerEvent], None],
        *,
        deadline: float | None,
    ) -> Outcome | None:
        """The outcome that the worker reports; None if it ends, or time does, without one."""
        if not self._send(request):
            return None
        for line in self._lines(deadline=deadline):
            event = read_event(line, key=self._key)
            if event is None:
                # What such a worker will write next is unknown, so it gets no other job.
                self._retire()
                quoted = line.strip()[:_QUOTED_CHARACTERS]
                why = f"the worker wrote a line that is not an event: {quoted}"
                return Outcome(request=request, state="failed", why=why)
            if isinstance(event, FaultEvent):
                raise EnvironmentFault(event.error, hint=event.hint)
            on_event(event)
            if (outcome := _outcome(request, event)) is not None:
                return outcome
        return None

    def _lines(self, *, deadline: float | None) -> Iterator[str]:
        """Lines of the worker's output until it ends, closes its output, or time is over.

        A process that a plug-in has forked may hold the pipe open for longer than the worker lives,
        so this looks at the process and not only at the pipe.
        """
        if self._process.stdout is None:
            raise RuntimeError("the worker's pipes are missing")
        descriptor, left = self._process.stdout.fileno(), _PIPE_BYTES
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while left > 0:
                *lines, self._unread = self._unread.split(b"\n")
                if len(self._unread) > _LINE_BYTES:
                    lines, self._unread = [*lines, self._unread], b""
                for line in lines:
                    yield line.decode("utf-8", "replace")
                wait_s = _LOOK_EVERY_S
                if deadline is not None:
                    wait_s = min(wait_s, deadline - time.monotonic())
                if wait_s <= 0:
                    return
                if ended := not self.alive:
                    # Nobody writes any more, and what the worker wrote is in the pipe.
                    self._kill_group()
                if selector.select(0 if ended else wait_s):
                    piece = os.read(descriptor, _LINE_BYTES)
                    if not piece:
                        return
                    self._unread += piece
                    left -= len(piece) if ended else 0
                elif ended:
                    return

    def _cause_of_end(self) -> tuple[str, bool]:
        """Why the process has ended, in one line with the last line of its stderr, and whether that
        may have been a lack of memory.
        """
        try:
            code = self._process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return "the worker closed its output without ending, and was killed", False
        last = self._last_words()
        said = f": {last}" if last else ""
        if code < 0:
            name = _signal_name(-code)
            killed = name == "SIGKILL"  # as the operating system does where memory is short
            killer = " (out of memory?)" if killed else ""
            why = f"the worker was killed by {name}{killer}{said}"
            return why, killed or says_out_of_memory(last)
        return f"the worker ended with exit code {code}{said}", says_out_of_memory(last)

    def _last_words(self) -> str:
        """The last line of the worker's stderr, or the end of it."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_BYTES))
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _left_behind(self) -> bool:
        """Whether a process that the worker has started lives on."""
        end = time.monotonic() + _LEFT_BEHIND_S
        while _members(self._guard.pid) - {self._guard.pid, self._process.pid}:
            if time.monotonic() > end:
                return True
            time.sleep(_LEFT_BEHIND_S / 10)
        return False

    def _retire(self) -> None:
        """End the worker and all that it has started."""
        self._kill_group()
        self._process.wait()

    def _kill_group(self, *, for_good: bool = False) -> None:
        """Kill all processes of the group; nothing after the first call `for_good`.

        The guard is waited for only after that, so that no other group can have its number.
        """
        with self._lock:
            if not self._ended:
                # PermissionError: on macOS, for a group in which nobody lives.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._guard.pid, signal.SIGKILL)
            self._ended |= for_good

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close stdin, which asks the worker to end, and kill what has not ended then."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_PATIENCE_S)
        self._closing.close()


def _signal_name(number: int) -> str:
    """The name of a signal; most real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _members(group: int) -> set[int]:
    """The living processes of a process group."""
    if Path("/proc/self/stat").exists():
        found = (_member(path, group) for path in Path("/proc").iterdir() if path.name.isdigit())
        return {pid for pid in found if pid is not None}
    listed = subprocess.run(  # macOS has no /proc
        ("ps", "-A", "-o", "pgid=,pid=,stat="), capture_output=True, text=True, check=False
    )
    rows = (line.split() for line in listed.stdout.splitlines())
    return {int(pid) for pgid, pid, state in rows if int(pgid) == group and state[0] not in _ENDED}


def _member(process: Path, group: int) -> int | None:
    """The number of a process, given its folder in /proc, if it is a living one of the group."""
    pid = int(process.name)
    try:
        if os.getpgid(pid) != group:
            return None
        # After the command's name, which may hold anything: the state.
        stat = (process / "stat").read_text(errors="replace")
    except OSError:
        return None
    return None if stat.rpartition(")")[2].split()[0] in _ENDED else pid


def _outcome(request: JobRequest, event: WorkerEvent) -> Outcome | None:
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
                machine=event.machine,
            )
    return None
