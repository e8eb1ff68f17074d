"""What `study` says: its plan, what it prepares, and what its report has."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from prime_bench import api
from prime_bench.api.studies import StudyEstimate
from prime_bench.base.errors import DataError, UsageError
from prime_bench.cli import study as command
from prime_bench.cli.main import exit_code
from prime_bench.schedule.estimate import MEMORY_NOTE, RANGE_NOTE, PlanEstimate, Total
from prime_bench.schedule.slots import Slots

RECIPE = """\
schema = 1
title = "One"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.synthetic]
rows = 400
[backbone.DNN]
"""
COSTS = """\
schema = 1
title = "Costs"
kind = "cost"
seeds = [1]
arms = ["dense"]
[dataset.synthetic]
rows = 400
[dataset.criteo]
[backbone.DNN]
"""
STUDY = """\
schema = 1
title = "All of it"
label = "A rehearsal"
[[recipes]]
recipe = "one.toml"
[[recipes]]
recipe = "two.toml"
[[recipes]]
recipe = "costs.toml"
"""


def _total(number):
    """Amounts of which no two are alike, nor any those of another number."""
    scale = 10**number
    return Total(
        jobs=number + 3,
        known_jobs=number + 1,
        slots=Slots(on_each=number, total=number, threads=2),
        wall_s=5000.0 * number,
        elapsed_s=100.0 * number,
        elapsed_low_s=10.0 * number,
        elapsed_high_s=1000.0 * number,
        sources=("records", f"source {number}"),
        memory_bytes=2_000_000 * scale,
        disk_bytes=3_000_000 * scale,
        disk_at_work_bytes=4_000_000 * scale,
        disk_free_bytes=50_000_000 * scale,
    )


ESTIMATE = StudyEstimate(
    queue=PlanEstimate(jobs={}, total=_total(4), added={}),
    costs=(PlanEstimate(jobs={}, total=_total(3), added={}),),
    by_recipe=(_total(1), _total(2), replace(_total(3), jobs=0)),
)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of two recipes that share jobs, and one of costs, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text(RECIPE, encoding="utf-8")
    two = RECIPE.replace("One", "Two").replace('"prime"', '"prime", "residual_macs"')
    Path("two.toml").write_text(two, encoding="utf-8")
    Path("costs.toml").write_text(COSTS, encoding="utf-8")
    Path("all.toml").write_text(STUDY, encoding="utf-8")
    return "all.toml"


@pytest.fixture
def estimated(monkeypatch):
    """What jobs will take is as `ESTIMATE` says."""
    monkeypatch.setattr(api, "estimate_study", lambda *_, **__: ESTIMATE)


@pytest.mark.usefixtures("estimated")
def test_a_plan_has_a_line_a_recipe_and_then_all_together(study, tables, capsys):
    assert exit_code(["study", study, "--plan", "--data-dir", str(tables)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "recipe  kind   jobs  shared  left               time  memory    disk",
        "one     train     4       0     4  2 min + 2 unknown   20 MB   30 MB",
        "two     train     6       4     2  3 min + 2 unknown  200 MB  300 MB",
        "costs   cost      2       0     2                  -  2.0 GB  3.0 GB",
        "",
        "All of it",
        "A rehearsal.",
        "8 jobs; shared with a recipe above and done once: 4",
        "time, memory, disk: of the jobs that are left, as many at once as `slots` says",
        "-: not known before the tables are there, which the study prepares first",
        "6 jobs: 6 pending",
        "slots: 4 jobs at once, 2 CPU threads each (as asked for)",
        "time: about 7 min (40 s to 67 min) for 5 jobs, 5.6 h one after another "
        "(records; source 4)",
        RANGE_NOTE,
        "time: unknown for 2 jobs, since nothing like them has run; `plan --measure` trains ten "
        "seconds for each backbone and arm",
        f"{MEMORY_NOTE}: at most 20.0 GB a job",
        "disk: 30.0 GB of checkpoints, up to 40.0 GB more while all slots are at work; 500.0 GB "
        "are free",
        "costs, measured last and one after another: 2 jobs: 1 pending, 1 needs data",
        "to prepare: prime-bench prepare criteo",
        "slots: 3 jobs at once, 2 CPU threads each (as asked for)",
        "time: about 5 min (30 s to 50 min) for 4 jobs, 4.2 h one after another "
        "(records; source 3)",
        RANGE_NOTE,
        "time: unknown for 2 jobs, since nothing like them has run; `plan --measure` trains ten "
        "seconds for each backbone and arm",
        f"{MEMORY_NOTE}: at most 2.0 GB a job",
        "disk: 3.0 GB of checkpoints, up to 4.0 GB more while all slots are at work; 50.0 GB are "
        "free",
    ]


@pytest.mark.usefixtures("estimated")
def test_the_plan_as_json_has_the_same(study, tables, capsys):
    assert exit_code(["study", study, "--plan", "--json", "--data-dir", str(tables)]) == 0

    one, two, costs = ESTIMATE.by_recipe
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "schema": 1,
        "study": "all",
        "title": "All of it",
        "label": "A rehearsal",
        "jobs": 8,
        "shared": 4,
        "prepare": ["prime-bench prepare criteo"],
        "total": ESTIMATE.queue.total.plain(),
        "recipes": [
            {
                "recipe": name,
                "kind": kind,
                "jobs": jobs,
                "shared": shared,
                "counts": counts,
                "total": total.plain(),
            }
            for name, kind, jobs, shared, counts, total in (
                ("one", "train", 4, 0, {"pending": 4}, one),
                ("two", "train", 6, 4, {"pending": 2}, two),
                ("costs", "cost", 2, 0, {"pending": 1, "needs data": 1}, costs),
            )
        ],
    }


def test_what_a_plan_needs_is_told_once_and_amounts_are_unknown(study, capsys):
    assert exit_code(["study", study, "--plan", "--device", "cpu"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-3:] for line in lines[1:4]] == [["-"] * 3] * 3
    assert lines[-5:] == [
        "-: not known before the tables are there, which the study prepares first",
        "6 jobs: 6 needs data",
        "to prepare: prime-bench prepare synthetic --rows 400",
        "costs, measured last and one after another: 2 jobs: 2 needs data",
        "to prepare: prime-bench prepare criteo",
    ]
    assert exit_code(["study", study, "--plan", "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["prepare"] == [
        "prime-bench prepare synthetic --rows 400",
        "prime-bench prepare criteo",
    ]


def test_a_study_of_costs_alone_has_no_queue(study, tables, capsys):
    text = STUDY.partition("[[recipes]]")[0] + '[[recipes]]\nrecipe = "costs.toml"\n'
    Path(study).write_text(text, encoding="utf-8")
    flags = ["study", study, "--plan", "--data-dir", str(tables), "--device", "cpu"]

    assert exit_code(flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[7].startswith("-: not known before the tables are there")
    assert lines[8].startswith("costs, measured last and one after another: 2 jobs: ")
    assert exit_code([*flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["total"], found["jobs"], found["shared"]) == (None, 2, 0)
    assert found["prepare"] == ["prime-bench prepare criteo"]


@pytest.mark.parametrize("n_errors", [0, 1, 2])
def test_tables_are_told_where_they_are_made_and_the_first_error_ends_it(
    n_errors, monkeypatch, tmp_path, capsys
):
    """After all others were tried."""
    errors = [DataError("one: no rows"), UsageError("two: no such key")][:n_errors]
    tables = [SimpleNamespace(made=True, name="new"), SimpleNamespace(made=False, name="old")]

    def prepare_study(_study, *, on_table, on_error, log, **_rest):
        log("a message")
        for error in errors:
            on_error("name", error)
        for table in tables:
            on_table(table)

    monkeypatch.setattr(api, "prepare_study", prepare_study)
    monkeypatch.setattr("prime_bench.cli.prepare_output.summary", lambda table: table.name)
    caught = None
    try:
        command._prepare("study", (), allow_unverified=False, data_dir=tmp_path)
    except DataError as error:
        caught = error

    assert caught is (errors[0] if errors else None)
    last = "error: two: no such key\n\n" if n_errors == 2 else ""
    assert capsys.readouterr() == ("", f"a message\nnew\n{last}")


@pytest.fixture
def reported(study, monkeypatch):
    """The report of the study is one of two tables, a figure, two claims and two gaps; in which
    folders it was written.
    """
    written = []
    tables = [SimpleNamespace(name="main"), SimpleNamespace(name="cells")]
    report = SimpleNamespace(
        study=api.load_study(study),
        write=written.append,
        view=SimpleNamespace(report=SimpleNamespace(tables=tables)),
        figures=[SimpleNamespace(name="pairs-avazu")],
        verdicts=[("PRIME wins", "holds", "3 of 4"), ("It is cheap", "fails", "1.2 ms")],
        missing=["gradients", "cost"],
    )
    monkeypatch.setattr(api, "report_study", lambda *_, **__: report)
    return written


def test_a_report_is_told_with_its_verdicts_and_gaps(study, reported, capsys):
    assert exit_code(["study", study, "--only-report"]) == 0

    assert reported == [Path("report/all")]
    assert capsys.readouterr() == (
        "A rehearsal.\n"
        "holds: PRIME wins\n"
        "fails: It is cheap\n"
        "no record yet: gradients\n"
        "no record yet: cost\n"
        "report/all/index.md: 2 tables, 1 figure\n",
        "writing the report\n",
    )


def test_json_has_the_jobs_of_all_runs_and_the_claims(study, reported, monkeypatch, capsys):
    def summary(done, failed, interrupted, not_started):
        return SimpleNamespace(
            **{"done": done, "failed": ("it",) * failed, "interrupted": interrupted},
            **{"not_started": not_started, "stopped": False, "ok": failed == 0},
            **{"had_record": 0, "skipped": 0},
        )

    monkeypatch.setattr(api, "prepare_study", lambda *_, **__: [])
    summaries = [summary(100, 2, 30, 4), summary(1, 0, 0, 0)]
    monkeypatch.setattr(command, "_run", lambda *_, **__: summaries)

    assert exit_code(["study", study, "--output", "O", "--json", "--device", "cpu"]) == 1

    assert reported == [Path("O")]
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "study": "all",
        "title": "All of it",
        "label": "A rehearsal",
        "output": "O",
        "jobs_done": 101,
        "jobs_failed": 2,
        "jobs_left": 34,
        "tables": ["main", "cells"],
        "figures": ["pairs-avazu"],
        "missing": ["gradients", "cost"],
        "claims": [
            {"claim": "PRIME wins", "verdict": "holds", "numbers": "3 of 4"},
            {"claim": "It is cheap", "verdict": "fails", "numbers": "1.2 ms"},
        ],
    }
