"""What a log shows of a run: a line a minute, and one for each machine that takes no jobs."""

from types import SimpleNamespace

import pytest

from prime_bench.cli import progress
from prime_bench.cli.progress import RunProgress
from prime_bench.recipe.events import EpochProgress, MachineEvent, ProgressEvent, StartedEvent


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.s)
    return now


@pytest.fixture
def shown():
    return RunProgress(SimpleNamespace(jobs=[], to_run=["job"] * 3))


def _advance(shown, epoch):
    at = EpochProgress(epoch=epoch, rows=10, rows_total=20, rows_per_s=5.0)
    shown.event(ProgressEvent(job_id="abcd", progress=at))


def test_without_a_terminal_there_is_a_line_a_minute_with_jobs_and_places(clock, shown, capsys):
    with shown:
        shown.event(StartedEvent(job_id="abcd", where="host-1 (node 1234abcd)"))
        for seconds in range(1, 181):
            clock.s = 1000.0 + seconds
            _advance(shown, epoch=1 + seconds // 100)
    out, err = capsys.readouterr()

    assert out == ""
    assert err.splitlines() == [
        f"0 of 3 jobs have ended; running: epoch {epoch}: abcd on host-1 (node 1234abcd)"
        for epoch in (1, 2, 2)
    ]


def test_a_machine_that_takes_no_jobs_is_named_with_what_to_do(shown, capsys):
    with shown:
        shown.event(
            MachineEvent(where="host-2", state="set aside", why="no\ntable", hint="copy it there")
        )
        shown.event(MachineEvent(where="host-2", state="back"))
        shown.event(MachineEvent(where="host-2", state="lost", why="it has left"))

    assert capsys.readouterr().err.splitlines() == [
        r"host-2: takes no jobs for now: no\ntable",
        "  hint: copy it there",
        "host-2: takes jobs again",
        "host-2: is lost, and its jobs go on elsewhere: it has left",
    ]
