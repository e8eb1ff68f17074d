"""What a log shows of a run: a line for each job that ends, one a minute in which none does, and
one for each machine that takes no jobs. What the bars of a terminal count.
"""

from types import SimpleNamespace

import pytest

from prime_bench.cli import progress
from prime_bench.cli.progress import RunProgress
from prime_bench.findings import Score, Validation
from prime_bench.recipe.events import (
    DoneEvent,
    EpochEvent,
    EpochProgress,
    MachineEvent,
    ProgressEvent,
    StartedEvent,
)
from prime_bench.schedule.engine import Outcome

VALIDATION = Validation(
    **{"epoch": 4, "step": 9, "learning_rate": 0.1, "train_loss": 0.5, "wall_s": 1.0},
    **{"valid_auc": 0.71236, "valid_logloss": 0.25, "improved": True},
)


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


def _end(shown, job_id, *, state="done", why="", wall_s=None, **facts):
    if wall_s is not None:
        shown.event(DoneEvent(job_id=job_id, wall_s=wall_s, **facts))
    request = SimpleNamespace(job=SimpleNamespace(id=job_id))
    shown.outcome(Outcome(request=request, state=state, why=why))


def test_without_a_terminal_a_job_that_ends_leaves_its_score_time_and_what_is_left(capsys):
    shown = RunProgress(SimpleNamespace(jobs=[], to_run=["job"] * 7))
    score = Score(auc=0.71236, logloss=0.5)
    with shown:
        for job_id in ("a", "b"):
            at = EpochProgress(epoch=1, rows=10, rows_total=20, rows_per_s=5.0)
            shown.event(ProgressEvent(job_id=job_id, progress=at))
        _end(shown, "a", wall_s=100, valid=score, test=score)
        _end(shown, "b", wall_s=20, test=Score(auc=None, logloss=None), degenerate="test: NaN")
        _end(shown, "c", state="skipped", why="another process did it")
        _end(shown, "d", state="failed", why="out\nof luck")
        _end(shown, "e", state="interrupted", why="stopped")
        _end(shown, "e", wall_s=0)

    assert capsys.readouterr().err.splitlines() == [
        # Two at once: 6 jobs of 100 s, then 5 of 60 s.
        "done: a: test AUC 0.7124, LogLoss 0.5000, in 2 min; 1 of 7 jobs, about 5 min left",
        "done: b: test AUC not a number, LogLoss not a number, in 20 s, degenerate: test: NaN; "
        "2 of 7 jobs, about 2 min left",
        "skipped: c: another process did it; 3 of 7 jobs, about 2 min left",
        r"failed: d: out\nof luck; 4 of 7 jobs, 1 failed, about 2 min left",
        "interrupted: e: stopped; 4 of 7 jobs, 1 failed, about 2 min left",
        "done: e: in 0 s; 5 of 7 jobs, 1 failed, about 40 s left",
    ]


def test_the_bars_of_a_terminal_do_not_count_what_was_stopped(monkeypatch, capsys):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "80")
    shown = RunProgress(SimpleNamespace(jobs=[], to_run=["job"] * 4))
    with shown:
        _end(shown, "a", wall_s=1)
        _end(shown, "b", state="failed", why="out of luck")
        _end(shown, "c", state="interrupted", why="stopped")

    last = capsys.readouterr().err.rpartition("jobs ")[2]
    assert "2/4, 1 failed" in last
    assert "50%" not in last


def test_without_a_terminal_there_is_a_line_a_minute_with_jobs_and_places(clock, shown, capsys):
    with shown:
        shown.event(StartedEvent(job_id="abcd", where="host-1 (node 1234abcd)"))
        for seconds in range(1, 181):
            clock.s = 1000.0 + seconds
            _advance(shown, epoch=1 + seconds // 100)
    out, err = capsys.readouterr()

    assert out == ""
    assert err.splitlines() == [
        f"ended: 0 of 3 jobs; running: epoch {epoch}: abcd on host-1 (node 1234abcd)"
        for epoch in (1, 2, 2)
    ]


def test_where_no_job_runs_the_line_names_none(clock, shown, capsys):
    with shown:
        clock.s += 61
        shown.event(MachineEvent(where="host-2", state="waited for"))

    _, last = capsys.readouterr().err.splitlines()
    assert last == "ended: 0 of 3 jobs"


def test_of_many_jobs_the_first_are_named(clock, shown, capsys):
    with shown:
        for number in range(6):
            at = EpochProgress(epoch=1, rows=10, rows_total=20, rows_per_s=5.0)
            clock.s += 10 * (number == 5) + 55 * (number == 4)
            shown.event(ProgressEvent(job_id=f"job{number}", progress=at))

    named = "; ".join(f"epoch 1: job{number}" for number in range(4))
    assert capsys.readouterr().err.splitlines() == [
        f"ended: 0 of 3 jobs; running: {named} and 2 more"
    ]


def test_the_last_job_has_no_other_beside_it(capsys):
    shown = RunProgress(SimpleNamespace(jobs=[], to_run=["job"] * 3))
    with shown:
        for job_id in ("a", "b"):
            at = EpochProgress(epoch=1, rows=10, rows_total=20, rows_per_s=5.0)
            shown.event(ProgressEvent(job_id=job_id, progress=at))
        for job_id in ("a", "b", "c"):
            _end(shown, job_id, wall_s=60)

    left = [line.rpartition("jobs")[2] for line in capsys.readouterr().err.splitlines()]
    assert left == [", about 60 s left", ", about 60 s left", ""]


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


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("waited for", "the run waits for free room"),
        ("set aside", "takes no jobs for now"),
        ("back", "takes jobs again"),
        ("lost", "is lost, and its jobs go on elsewhere"),
        ("sent a table", "is sent a table that it lacks"),
        ("without a node", "no node can take a job, the run waits for one"),
    ],
)
def test_each_state_of_a_machine_has_its_words(shown, capsys, state, words):
    with shown:
        shown.event(MachineEvent(where="host-2", state=state))

    assert capsys.readouterr().err == f"host-2: {words}\n"


def test_a_job_that_runs_again_elsewhere_is_not_where_it_was(shown, capsys):
    with shown:
        shown.event(StartedEvent(job_id="a", where="host-1"))
        shown.event(StartedEvent(job_id="b", where="host-2"))
        _end(shown, "a", state="interrupted")
        _end(shown, "a", state="skipped")
        _end(shown, "b", state="skipped")

    assert [line.partition(";")[0] for line in capsys.readouterr().err.splitlines()] == [
        "interrupted: a on host-1",
        "skipped: a",
        "skipped: b on host-2",
    ]


def test_in_a_terminal_each_job_at_work_has_a_bar(clock, monkeypatch, capsys):
    """Of rows within the epoch; it goes when the job ends, and no line a minute is needed."""
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    planned = SimpleNamespace(job=SimpleNamespace(id="abcd"), job_spec="avazu DNN prime seed 7")
    shown = RunProgress(SimpleNamespace(jobs=[planned], to_run=["job"] * 3))

    def bars():
        shown._bars.refresh()
        text = capsys.readouterr().err.rpartition("jobs ")[2]
        return [" ".join(line.split()) for line in text.splitlines()]

    with shown:
        shown.event(StartedEvent(job_id="abcd", where="host-1"))
        _advance(shown, epoch=4)
        clock.s += 200
        _advance(shown, epoch=4)
        of_all, job = bars()
        assert "0/3" in of_all
        assert job.startswith("epoch 4: avazu DNN prime seed 7 on host-1 ━")
        assert " 5 rows/s" in job
        assert shown._bars.tasks[1].percentage == 50
        shown.event(EpochEvent(job_id="abcd", validation=VALIDATION))
        assert " AUC 0.7124" in bars()[1]
        _end(shown, "abcd", wall_s=60)
        (of_all,) = bars()
        assert "1/3" in of_all


def test_what_is_no_rate_or_score_is_not_shown_as_one(shown):
    at = EpochProgress(epoch=1, rows=1, rows_total=20, rows_per_s=None)
    shown.event(ProgressEvent(job_id="abcd", progress=at))
    assert shown._bars.tasks[1].fields["note"] == ""
    nothing = VALIDATION.model_copy(update={"valid_auc": None})
    shown.event(EpochEvent(job_id="abcd", validation=nothing))
    assert shown._bars.tasks[1].fields["note"] == "AUC not a number"
