"""What `prepare` prints of a table, of raw files and of a recipe, and how far it is."""

import contextlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from prime_bench.api import Preparation
from prime_bench.base.errors import DataError, UsageError
from prime_bench.cli.main import exit_code
from prime_bench.cli.prepare_output import best_line, progress_bars
from prime_bench.data.manifest import BestPossible, Manifest, SplitCounts
from prime_bench.data.stages import StageProgress

BEST = {
    "train": BestPossible(auc=0.91, logloss=0.11),
    "valid": BestPossible(auc=0.92, logloss=0.12),
    "test": BestPossible(auc=0.93456, logloss=0.13456),
}
COUNTS = {
    "rows": {"train": 1_000_000, "valid": 2000, "test": 400},
    "positives": {"train": 250_000, "valid": 250, "test": 300},
}


def table(*, made: bool = True, **facts: object) -> Preparation:
    """A prepared table, with other facts in its manifest."""
    counts = {name: SplitCounts(**splits) for name, splits in COUNTS.items()}
    fixed = {
        "dataset": "card",
        "settings": {"min_count": 7},
        "variant": "d" * 64,
        "fingerprint": "0123456789abcdef" * 4,
        "verified": True,
        "notes": ["first\nnote", "second note"],
        "warnings": ["a warning"],
        "n_fields": 22,
        "vocabulary_total": 1234567,
        "inputs": [],
        "outputs": {},
        "versions": {},
    }
    manifest = Manifest(**{**fixed, **counts, **facts})  # type: ignore[arg-type]
    return Preparation(dataset="mine", folder=Path("D/it"), manifest=manifest, made=made)


TEXT = r"""card: D/it
  train          1,000,000 rows, 0.2500 positive
  valid              2,000 rows, 0.1250 positive
  test                 400 rows, 0.7500 positive
  fields                22
  vocabulary     1,234,567 ids
  fingerprint 0123456789ab
  verified             yes
  note: first\nnote
  note: second note
"""
PLAIN = {
    "schema": 1,
    "dataset": "card",
    "fingerprint": "0123456789abcdef" * 4,
    "path": "D/it",
    "verified": True,
    **COUNTS,
    "fields": 22,
    "vocabulary_total": 1234567,
    "settings": {"min_count": 7},
    "notes": ["first\nnote", "second note"],
    "warnings": ["a warning"],
    "best": None,
}


@pytest.fixture
def printed(monkeypatch, capsys):
    """What `prepare` prints where the library answers with `answers`, by name."""

    def printed(*arguments, code=0, **answers):
        for name, answer in answers.items():
            monkeypatch.setattr(f"prime_bench.api.{name}", answer)
        assert exit_code(["prepare", *arguments]) == code
        return capsys.readouterr()

    return printed


@pytest.mark.parametrize(
    ("facts", "old", "new"),
    [
        ({}, "", ""),
        ({"verified": False}, "     yes\n", "      no\n"),
        ({"verified": "own"}, "     yes\n", "own data\n"),
        (
            {"best": BEST},
            "     yes\n",
            "     yes\n  best possible on test: AUC 0.9346, LogLoss 0.1346\n",
        ),
    ],
)
def test_a_table_is_told_line_by_line(printed, facts, old, new):
    out, err = printed("avazu", prepare=lambda *_, **__: table(**facts))

    assert out == TEXT.replace(old, new)
    assert err == ""


@pytest.mark.parametrize(
    ("facts", "other"),
    [
        ({}, {}),
        ({"verified": "own"}, {"verified": "own"}),
        ({"best": BEST}, {"best": {split: best.plain() for split, best in BEST.items()}}),
    ],
)
def test_json_has_every_fact_of_a_table(printed, facts, other):
    out, _ = printed("avazu", "--json", prepare=lambda *_, **__: table(**facts))

    assert json.loads(out) == {**PLAIN, **other}


@pytest.mark.parametrize("as_json", [False, True])
def test_raw_files_are_told_with_their_rows_and_format(printed, as_json):
    written = SimpleNamespace(rows=5000, raw_format="avazu-raw", best=BEST)
    flags = ["synthetic", "--raw", "R", *(["--json"] if as_json else [])]

    out, _ = printed(*flags, write_raw=lambda *_, **__: written)

    if as_json:
        assert json.loads(out) == {
            "schema": 1,
            "dataset": "synthetic",
            "raw": "R",
            "raw_format": "avazu-raw",
            "rows": 5000,
            "best": {split: best.plain() for split, best in BEST.items()},
        }
    else:
        assert out == (
            "R: 5,000 rows as files of avazu-raw\n"
            "best possible on test: AUC 0.9346, LogLoss 0.1346\n"
        )


@pytest.mark.parametrize("as_json", [False, True])
def test_the_tables_of_a_recipe_are_told_as_they_come_and_then_counted(printed, as_json):
    """The code is that of the first error."""
    tables = [table(), table(made=False), table(made=False)]
    faults = {"one": DataError("one: no rows"), "two": UsageError("two: no such key")}

    def prepare_recipe(*_, on_table, on_error, log, **__):
        log("a message")
        for each in tables:
            on_table(each)
        for name, fault in faults.items():
            on_error(name, fault)
        return tables

    flags = ["--recipe", "quick", *(["--json"] if as_json else [])]
    out, err = printed(*flags, code=DataError.exit_code, prepare_recipe=prepare_recipe)

    assert err == "a message\nerror: one: no rows\nerror: two: no such key\n"
    if as_json:
        assert json.loads(out) == {
            "schema": 1,
            "recipe": "quick",
            "tables": [{"state": state, **PLAIN} for state in ("made", "was there", "was there")],
            "failed": {"one": "one: no rows", "two": "two: no such key"},
        }
    else:
        shown = [f"{TEXT}  {state}\n\n" for state in ("made", "was there", "was there")]
        last = "quick: 1 made, 2 already there, 2 failed (one, two)\n"
        assert out == "".join(shown) + last


@pytest.mark.parametrize(
    ("best", "line"),
    [
        ({}, "none, its rows are too few"),
        ({"valid": BEST["valid"]}, "none, its rows are too few"),
        (BEST, "AUC 0.9346, LogLoss 0.1346"),
    ],
)
def test_the_best_is_that_of_the_test_rows(best, line):
    assert best_line(best) == f"best possible on test: {line}"


def test_without_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch, capsys):
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    with progress_bars() as move:
        for rows in range(0, 1000, 10):
            now_s += 3.0
            move("mylog", StageProgress(stage="reading", done=rows * 7, total=7000, rows=rows))
    out, err = capsys.readouterr()

    assert out == ""
    assert err.splitlines() == [
        "mylog: reading, 19%, 3 rows/s",
        "mylog: reading, 39%, 3 rows/s",
        "mylog: reading, 59%, 3 rows/s",
        "mylog: reading, 79%, 3 rows/s",
        "mylog: reading, 99%, 3 rows/s",
    ]


def test_in_a_terminal_each_stage_of_each_data_set_has_a_bar(monkeypatch, capsys):
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bars() as move:
        for dataset, stage, done in (
            *(("a", "reading", 0), ("a", "reading", 50), ("a", "counting", 0)),
            *(("b", "reading", 0), ("b", "reading", 10)),
        ):
            move(dataset, StageProgress(stage=stage, done=done, total=200, rows=100 * done))
            now_s += 2.0 if done == 0 else 70.0
    out, err = capsys.readouterr()

    assert out == ""
    bars = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err).replace("\r", "\n").splitlines()
    last = {" ".join(words[:2]): words[3:] for words in map(str.split, bars) if len(words) > 3}
    assert last.keys() == {"a: reading", "a: counting", "b: reading"}
    assert last["a: reading"][:3] == ["25%", "2,500", "rows/s"]
    assert last["a: counting"][0] == "0%"
    assert last["b: reading"][:3] == ["5%", "500", "rows/s"]


@pytest.mark.parametrize(
    ("line", "function", "answer", "name"),
    [
        ("prepare avazu", "prepare", table(), "avazu"),
        (
            "prepare synthetic --raw R",
            "write_raw",
            SimpleNamespace(rows=1, raw_format="avazu", best={}),
            "synthetic",
        ),
        (
            "card a/mylog.csv --json",
            "draft_card",
            (SimpleNamespace(name="m", rows={}, columns=[], has_label=True), Path("m.toml")),
            "mylog.csv",
        ),
        (
            "predict abcd --from a --output R/it.csv",
            "predict_rows",
            SimpleNamespace(rows=0, unknown={}, conditions=[]),
            "predicting",
        ),
    ],
)
def test_what_is_done_has_its_name_at_its_bar(
    monkeypatch, tmp_path, capsys, line, function, answer, name
):
    moved = []
    bars = contextlib.nullcontext(lambda *given: moved.append(given))
    for module in ("prepare", "prepare_output"):
        monkeypatch.setattr(f"prime_bench.cli.{module}.progress_bars", lambda: bars)
    monkeypatch.setattr(
        f"prime_bench.api.{function}", lambda *_, on_progress, **__: (on_progress(7), answer)[1]
    )
    monkeypatch.chdir(tmp_path)

    assert exit_code(line.split()) == 0
    assert moved == [(name, 7)]
    assert capsys.readouterr().err == ""
