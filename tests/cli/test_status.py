"""`prime-bench status`: a line for a pipe, JSON, and a table that fits its screen."""

import io
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from prime_bench.cli import status as module
from prime_bench.cli.main import exit_code
from prime_bench.cli.status import _watch, summary, table_of
from prime_bench.schedule.status import JobStatus, Status

QUICK = ["quick", "--set", "dataset.synthetic.rows=1000", "--set", "training.max_epochs=1"]


@pytest.mark.usefixtures("jobs")
def test_a_pipe_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["status"]) == 0
    assert capsys.readouterr().out == "2 jobs: 2 done\n"
    assert exit_code(["status", *QUICK]) == 0
    assert capsys.readouterr().out == "18 jobs: 2 done, 16 pending\n"


def test_json_has_every_job(jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["status", *QUICK, "--only", "arm=dense", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"done": 1, "pending": 5}
    record = json.loads((jobs["dense"] / "record.json").read_text())
    done = next(job for job in found["jobs"] if job["state"] == "done")
    assert done["job_id"] == record["job_id"]
    assert (done["kind"], done["dataset"], done["arm"]) == ("train", "synthetic", "dense")
    assert (done["backbone"], done["seed"]) == (record["job"]["backbone"], record["job"]["seed"])
    assert done["epoch"] == 1
    assert done["valid_auc"] == record["history"][0]["valid_auc"]


def test_narrowing_goes_with_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["status", "--only", "seed=1"]) == 2
    assert "name one" in capsys.readouterr().err


def running(number: int) -> JobStatus:
    return JobStatus(
        job_id=f"{number:08x}" * 2,
        name=f"criteo AutoInt residual_parameters seed {number}",
        state="running",
        why="another process has claimed it",
        epoch=12,
        share=0.5,
        rows_per_s=123456.7,
        valid_auc=0.81234,
        left_s=5000.0,
        at_most=True,
    )


def drawn(found: Status, *, n_lines: int, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table_of(found, n_lines=n_lines))
    return capture.get().rstrip().splitlines()


def test_on_80_columns_the_name_gives_way_and_no_number_does() -> None:
    lines = drawn(Status(jobs=[running(992817)]), n_lines=9, width=80)
    assert [len(line) <= 80 for line in lines] == [True, True]
    for part in ("000f2631", "criteo AutoInt", "…", "12 50%", "123,457", "0.8123", "< 83 min"):
        assert part in lines[1], part


def test_what_is_not_known_of_a_job_is_a_dash() -> None:
    new = JobStatus(job_id=None, name="it", state="running", why="")
    begun = replace(running(7), share=None, at_most=False, left_s=20.0, rows_per_s=None)

    header, first, second = drawn(Status(jobs=[new, begun]), n_lines=9, width=100)

    assert header.split() == ["job", "state", "epoch", "rows/s", "AUC", "left"]
    assert first.split() == ["-", "it", "running", "-", "-", "-", "-"]
    assert second.split()[0] == "00000007"
    assert second.split()[-6:] == ["running", "12", "-", "0.8123", "20", "s"]


def test_a_job_is_one_line_that_begins_with_its_id_on_a_narrow_screen_too() -> None:
    found = Status(jobs=[replace(running(n), where=f"a host {n}") for n in range(3)])

    _, *lines = drawn(found, n_lines=9, width=55)

    assert [line.split()[0] for line in lines] == ["00000000", "00000001", "00000002"]


def test_jobs_that_need_attention_come_in_their_order_and_others_not() -> None:
    states = ("done", "stale", "interrupted", "pending", "failed", "running", "broken")
    jobs = [JobStatus(job_id="a" * 16, name="it", state=state, why="") for state in states]

    lines = drawn(Status(jobs=jobs), n_lines=5, width=100)

    assert [line.split()[2] for line in lines[1:]] == [
        *("running", "broken", "failed", "interrupted", "stale")
    ]
    *_, last = drawn(Status(jobs=jobs), n_lines=4, width=100)
    assert last.split() == ["...", "and", "1", "more"]


def test_hundreds_of_jobs_fit_and_those_at_work_come_first() -> None:
    failed = JobStatus(job_id="f" * 16, name="it", state="failed", why="no luck")
    pending = JobStatus(job_id="e" * 16, name="it", state="pending", why="has no record")
    found = Status(jobs=[failed, pending, *map(running, range(300))])
    lines = drawn(found, n_lines=10, width=100)
    assert len(lines) == 1 + 10 + 1
    assert all(" running " in line for line in lines[1:11])
    assert "and 291 more" in lines[11]
    assert summary(found) == (
        "302 jobs: 1 failed, 1 pending, 300 running; those running end in 83 min or sooner"
    )


def test_the_longest_wait_and_where_jobs_are_where_they_differ() -> None:
    first, last = running(1), running(2)
    first = replace(first, left_s=600.0, at_most=False, where="host-1")
    found = Status(jobs=[replace(last, where="host-1"), first])
    header, *lines = drawn(found, n_lines=9, width=120)
    assert summary(found).endswith("; those running end in 83 min or sooner")
    assert "where" not in header
    # Numbers stand on the right.
    assert [len(line) for line in (header, *lines)] == [120] * 3
    assert lines[0].endswith(" < 83 min")
    assert lines[1].endswith("  10 min")
    assert "<" not in lines[1]
    several = Status(jobs=[first, replace(last, where="host-2")])
    header, *lines = drawn(several, n_lines=9, width=120)
    assert " where " in header
    assert [("host-1" in line, "host-2" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]


def test_nothing_is_a_line_too() -> None:
    assert summary(Status(jobs=[])) == "0 jobs: none"


def test_a_table_that_is_watched_is_drawn_anew_until_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pending = JobStatus(job_id="e" * 16, name="it", state="pending", why="has no record")
    looks = [Status(jobs=[running(1), *[pending] * n]) for n in (5, 4, 3, 2)]
    left, waits = iter(looks), iter((None, None, KeyboardInterrupt()))

    def wait(_seconds: float) -> None:
        if error := next(waits):
            raise error

    monkeypatch.setattr(time, "sleep", wait)
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)

    _watch(lambda: next(left), screen=screen)

    assert isinstance(screen.file, io.StringIO)
    drawn = [screen.file.getvalue().count(f"{n} pending") for n in (5, 4, 3, 2)]
    assert all(drawn[:3])
    assert drawn[3] == 0
    assert capsys.readouterr().out == f"{summary(looks[3])}\n"


@pytest.mark.parametrize(
    ("flags", "state", "n_lines", "watched"),
    [
        ([], "running", 3, False),
        ([], "stale", 3, False),
        # Nothing runs or needs attention.
        ([], "pending", 1, False),
        (["--watch"], "pending", 0, True),
        (["--watch", "--json"], "running", None, False),
    ],
)
def test_a_terminal_has_the_table_where_it_says_something(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    state: str,
    n_lines: int | None,
    watched: bool,
) -> None:
    found = Status(jobs=[replace(running(7), state=state)])  # type: ignore[arg-type]
    seen = []
    monkeypatch.setattr("prime_bench.api.status", lambda *_, **__: found)
    monkeypatch.setattr(module, "_watch", lambda look, *, screen: seen.append((look(), screen)))
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "100")

    assert exit_code(["status", *flags]) == 0

    out = capsys.readouterr().out
    assert [each for each, _ in seen] == [found] * watched
    if n_lines is None:
        assert json.loads(out)["jobs"] == [job.plain() for job in found.jobs]
        return
    lines = out.splitlines()
    assert len(lines) == n_lines
    assert lines[-1:] == ([summary(found)] if n_lines else [])
