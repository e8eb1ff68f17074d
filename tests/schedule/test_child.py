"""What an engine makes of a worker's last event, and of its end without one."""

import os
import subprocess
from types import SimpleNamespace

import pytest

from prime_bench.recipe.events import (
    DoneEvent,
    FailedEvent,
    InterruptedEvent,
    SkippedEvent,
    write_event,
)
from prime_bench.schedule import child as module
from prime_bench.schedule.child import Child

ANSWER = 'read line; echo "$PRIME_BENCH_EVENT_KEY $ANSWER"; read line'


def _ignore(_event):
    """Take no note of an event."""


def _do(request, script, **variables):
    """The outcome of a job with a worker that is a script of the shell, and whether it lives on."""
    with Child(("/bin/sh", "-c", script), variables=variables) as child:
        outcome = child.do(request, on_event=_ignore)
        return outcome, child.alive


@pytest.mark.parametrize(
    ("event", "state", "why", "lives"),
    [
        (DoneEvent(job_id="j", wall_s=1.0), "done", "", True),
        (SkippedEvent(job_id="j"), "skipped", "another process has it or did it", True),
        (FailedEvent(job_id="j", error="no luck"), "failed", "no luck", True),
        (FailedEvent(job_id="j", error="no luck", out_of_memory=True), "failed", "no luck", True),
        # Open files, say, of which the next job would find no more.
        (FailedEvent(job_id="j", error="no luck", machine=True), "failed", "no luck", False),
    ],
)
def test_the_last_event_is_the_outcome(request_of, event, state, why, lives):
    outcome, alive = _do(request_of(1), ANSWER, ANSWER=write_event(event).strip())

    assert (outcome.request, outcome.state, outcome.why) == (request_of(1), state, why)
    assert outcome.out_of_memory == getattr(event, "out_of_memory", False)
    assert outcome.machine == getattr(event, "machine", False)
    assert alive == lives


@pytest.mark.parametrize("asked", [False, True])
def test_a_job_that_stopped_was_asked_to_or_has_failed(request_of, monkeypatch, asked):
    monkeypatch.setattr(module, "_STOP_COMES_S", 0)
    event = write_event(InterruptedEvent(job_id="j")).strip()
    with Child(("/bin/sh", "-c", ANSWER), variables={"ANSWER": event}) as child:
        outcome = child.do(
            request_of(1), on_event=lambda _event: child.terminate() if asked else None
        )
        assert not child.alive
    assert (outcome.state, outcome.why) == (
        ("interrupted", "stopped at a checkpoint")
        if asked
        else ("failed", "the worker was stopped by a SIGTERM that this run did not send")
    )


@pytest.mark.parametrize(
    ("script", "why", "out_of_memory"),
    [
        ("exit 3", "the worker ended with exit code 3", False),
        ("exit 0", "the worker ended with exit code 0", False),
        ("echo one >&2; echo two >&2; exit 1", "the worker ended with exit code 1: two", False),
        (
            "echo 'CUDA error: out of memory' >&2; exit 1",
            "the worker ended with exit code 1: CUDA error: out of memory",
            True,
        ),
        ("kill -KILL $$", "the worker was killed by SIGKILL (out of memory?)", True),
        ("kill -SEGV $$", "the worker was killed by SIGSEGV", False),
        (
            "echo 'CUDA error: out of memory' >&2; kill -ABRT $$",
            "the worker was killed by SIGABRT: CUDA error: out of memory",
            True,
        ),
    ],
)
def test_a_worker_that_ends_without_an_event_says_why(
    request_of, monkeypatch, script, why, out_of_memory
):
    monkeypatch.setattr(module, "_STOP_COMES_S", 0)
    outcome, alive = _do(request_of(1), f"read line; {script}")

    assert (outcome.state, outcome.why) == ("failed", why)
    assert outcome.out_of_memory == out_of_memory
    assert not alive


def test_of_long_last_words_the_end_is_told(request_of, monkeypatch):
    monkeypatch.setattr(module, "_STDERR_BYTES", 8)
    outcome, _ = _do(request_of(1), "read line; printf 'a long last line\n' >&2; exit 1")
    assert outcome.why.endswith("exit code 1: st line")


def test_a_job_that_was_killed_by_the_run_was_stopped(request_of):
    with Child(("/bin/sh", "-c", "read line; read line")) as child:
        child.kill()
        outcome = child.do(request_of(1), on_event=_ignore)
    assert (outcome.state, outcome.why) == ("interrupted", "stopped")


def test_living_processes_of_a_group_are_found_with_and_without_proc(monkeypatch):
    assert os.getpid() in module._members(os.getpgrp())
    assert module._members(1 << 30) == set()
    rows = "  5  10 S\n  5  11 Z\n  6  12 R+\n  5  13 X\n  5  14 R+\n"
    done = subprocess.CompletedProcess((), 0, stdout=rows)
    monkeypatch.setattr(module, "Path", lambda _: SimpleNamespace(exists=lambda: False))
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: done)
    assert module._members(5) == {10, 14}
