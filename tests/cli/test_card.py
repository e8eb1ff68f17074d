"""What `card` prints of a draft; tests/data/test_draft.py has the draft itself."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from prime_bench.cli.main import exit_code

COLUMNS = [
    {"name": "click", "role": "label", "numeric": None, "why": "0 and 1 alone"},
    {"name": "price", "role": "numeric", "numeric": "log1p", "why": "long tail"},
]


@pytest.fixture
def printed(monkeypatch, capsys):
    def printed(*arguments, has_label=True):
        draft = SimpleNamespace(
            name="mylog",
            rows={"train": 1000, "valid": 20, "test": 3},
            columns=[SimpleNamespace(**column) for column in COLUMNS],
            has_label=has_label,
            could_be_label=["price: two values", "click: few"],
        )
        answer = (draft, Path("a b/mylog.toml"))
        monkeypatch.setattr("prime_bench.api.draft_card", lambda *_, **__: answer)
        assert exit_code(["card", *arguments]) == (0 if has_label else 1)
        return capsys.readouterr()

    return printed


def test_a_draft_is_told_column_by_column_with_the_next_command(printed):
    out, err = printed("my log.csv")

    assert [line.rstrip() for line in out.splitlines()] == [
        "column  role     rule   why",
        "click   label           0 and 1 alone",
        "price   numeric  log1p  long tail",
        "a b/mylog.toml: 1,023 rows; read and edit it, then: "
        "prime-bench prepare 'a b/mylog.toml' --from 'my log.csv'",
    ]
    assert err == ""


@pytest.mark.parametrize("has_label", [True, False])
def test_json_has_every_column_and_what_could_be_the_label(printed, has_label):
    out, err = printed("my log.csv", "--json", has_label=has_label)

    could_be = ["price: two values", "click: few"]
    assert json.loads(out) == {
        "schema": 1,
        "path": "a b/mylog.toml",
        "name": "mylog",
        "rows": {"train": 1000, "valid": 20, "test": 3},
        "columns": COLUMNS,
        "could_be_label": [] if has_label else could_be,
    }
    lines = [] if has_label else ["no label was found; it could be:", *could_be]
    assert err.splitlines() == lines
