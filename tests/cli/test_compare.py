"""`prime-bench compare`: arms, recipes and folders, and what is no pair of these."""

import json
import shutil
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.recipe.file import find_recipe

pytestmark = pytest.mark.usefixtures("jobs")


@pytest.mark.long
def test_two_arms_of_the_runs_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["compare", "dense", "prime"]) == 0
    out = capsys.readouterr().out
    assert "AUC dense" in out
    assert '  arm.plugin: "dense" -> "prime"\n' in out


def test_a_folder_with_a_changed_record(
    jobs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("runs", tmp_path / "other")
    assert exit_code(["compare", "runs", str(tmp_path / "other"), "--changed"]) == 0
    assert capsys.readouterr().out == "nothing differs\n"
    path = tmp_path / "other" / jobs["prime"].name / "record.json"
    record = json.loads(path.read_text())
    record["result"]["test"]["auc"] += 0.01
    path.write_text(json.dumps(record))
    assert exit_code(["compare", "runs", str(tmp_path / "other"), "--changed", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["rows"]
    assert (row["name"], row["seeds"], row["auc_wins"]) == ("synthetic DNN prime", [2021], 1)
    assert row["auc_difference"]["mean"] == pytest.approx(0.01)
    assert (row["settings"], row["auc_losses"]) == ({}, 0)
    left, right = (side["mean"] for side in row["auc"])
    assert (left, right) == (
        record["result"]["test"]["auc"] - 0.01,
        record["result"]["test"]["auc"],
    )
    assert exit_code(["compare", "runs", str(tmp_path / "other")]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = {" ".join(line.split()[:3]): line.split()[3:] for line in lines[1:3]}
    shown = ["1", f"{left:.4f}", f"{right:.4f}", "+0.0100", "1/1", "0.0000"]
    assert cells["synthetic DNN prime"] == shown
    assert cells["synthetic DNN dense"][3:] == ["0.0000", "0/1", "0.0000"]


def test_two_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = find_recipe("quick").read_text(encoding="utf-8")
    text = text.replace("max_epochs = 100", "max_epochs = 1")
    text = text.replace("[dataset.synthetic]", "[dataset.synthetic]\nrows = 1000")
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "b.toml").write_text(text.replace("[2021, ", "[2021, 5, "))
    assert exit_code(["compare", str(tmp_path / "a.toml"), str(tmp_path / "b.toml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["rows"]] == ["synthetic DNN dense", "synthetic DNN prime"]
    assert found["alone"] == []


@pytest.mark.parametrize(
    ("sides", "code", "message"),
    [
        (["dense", "prme"], 2, "prme: no folder or bundle, no recipe, and no arm"),
        (["quick", "runs"], 2, "quick is a recipe and runs a folder or bundle"),
        (["quick", "no.toml"], 2, "no.toml: no such recipe"),
        (["quick", "controls"], 3, "no run of quick has one of controls to compare with"),
    ],
)
def test_what_cannot_be_compared(
    sides: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["compare", *sides]) == code
    assert message in capsys.readouterr().err


def test_a_record_that_cannot_be_read_is_named_and_left_out(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (jobs["prime"] / "record.json").write_text("{")
    assert exit_code(["compare", "runs", "runs", "--json"]) == 0
    printed = capsys.readouterr()
    assert [row["name"] for row in json.loads(printed.out)["rows"]] == ["synthetic DNN dense"]
    assert printed.err.startswith("left out: ")
    assert exit_code(["status"]) == 0
