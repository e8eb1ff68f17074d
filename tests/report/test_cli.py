"""`prime-bench report` from a folder of records."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.data.variant import resolve
from prime_bench.recipe.load import load_recipe
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

MakeRecord = Callable[..., RunRecord]

RECIPE = """
schema = 1
title = "Two seeds"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.synthetic]
[backbone.DNN]
hidden_units = [8]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def runs(tmp_path: Path, recipe: Path, make_record: MakeRecord) -> Path:
    """Records of the recipe's first seed, of a one-epoch run of it, and of something else."""
    folder = Runs(tmp_path / "runs")
    variant = resolve("synthetic", {}).digest
    for changes in ([], ["training.max_epochs=1"]):
        for trial in load_recipe(recipe, changes=changes).trials(only=["seed=1"]):
            folder.put(
                make_record(
                    dataset="synthetic",
                    variant=variant,
                    arm=trial.arm.name,
                    seed=1,
                    backbone_settings=trial.backbone_settings,
                    plugin_settings=trial.arm.settings,
                    training=trial.training,
                )
            )
    folder.put(make_record(dataset="avazu", seed=9))
    return folder.folder


def call(*arguments: object) -> int:
    return exit_code(["report", *map(str, arguments)])


def test_without_recipe_everything_is_shown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--runs-dir", runs) == 0

    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("# Main results\n")
    for heading in ("## Avazu", "## synthetic (max_epochs = 1)", "## synthetic (max_epochs = 100)"):
        assert f"\n{heading}\n" in out


def test_a_recipe_shows_its_cells_alone(
    runs: Path, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(recipe, "--runs-dir", runs, "--format", "json") == 0

    content = json.loads(capsys.readouterr().out)
    assert content["title"] == "Two seeds"
    (pair,) = content["pairs"]
    assert (pair["dataset"], pair["backbone"], pair["seed"]) == ("synthetic", "DNN", 1)
    assert set(pair["arms"]) == {"dense", "prime"}
    assert set(pair["arms"]["prime"]) >= {"test_auc", "test_logloss"}
    (table,) = content["tables"]
    (row,) = [row for row in table["blocks"][0]["rows"] if row["key"] == "DNN"]
    assert row["cells"]["auc.dense"]["remark"] == "n=1"
    assert any("missing 2" in note for note in table["notes"])


@pytest.mark.parametrize("format", ["markdown", "latex", "html", "json"])
def test_main13_says_which_backbones_were_chosen_by_test_rows(
    tmp_path: Path, make_record: MakeRecord, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    recipe = load_recipe("main13")
    trial = recipe.trials(only=["dataset=avazu", "backbone=DNN", "arm=dense"])[0]
    Runs(tmp_path).put(
        make_record(
            variant=resolve("avazu", recipe.datasets["avazu"]).digest,
            seed=trial.seed,
            backbone_settings=trial.backbone_settings,
            training=trial.training,
        )
    )
    (note,) = recipe.report.notes
    chosen = ["AFM", "AutoInt", "DCN", "DeepFM", "FwFM", "MaskNet", "DCNv2"]
    words = set(re.findall(r"\w+", note))
    assert [name for name in recipe.backbones if name in words] == chosen
    assert "best test AUC" in note

    assert call("main13", "--runs-dir", tmp_path, "--format", format) == 0
    assert note in capsys.readouterr().out
    assert call("--runs-dir", tmp_path, "--format", format) == 0
    assert "best test AUC" not in capsys.readouterr().out


def test_set_selects_the_jobs_that_run_set_made(
    runs: Path, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = ("--set", "training.max_epochs=1")
    assert call(recipe, "--runs-dir", runs, *change, "--format", "json") == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert any("max_epochs = 1" in note for note in table["notes"])

    assert call(recipe, "--runs-dir", runs, "--set", "training.max_epochs=7") == 3
    err = capsys.readouterr().err
    assert "though 5 of other jobs" in err
    assert "--set training.max_epochs=7" in err


def test_only_narrows(runs: Path, recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(recipe, "--runs-dir", runs, "--only", "seed=1") == 0
    assert "seeds; missing" not in capsys.readouterr().out
    assert call("--runs-dir", runs, "--only", "dataset=avazu") == 0
    assert "synthetic" not in capsys.readouterr().out


def test_output_writes_files_and_prints_nothing_to_stdout(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert call("--runs-dir", runs, "--format", "latex", "--output", folder) == 0

    out, err = capsys.readouterr()
    assert out == ""
    assert {path.name for path in folder.iterdir()} == {"main.tex", "main.csv", "manifest.json"}
    assert str(folder / "main.tex") in err


def test_the_folder_comes_from_the_environment(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIME_BENCH_RUNS", str(runs))

    assert call() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 3, "no records here"),
        (["RECIPE"], 3, "prime-bench run "),
        (["no-such-recipe"], 2, "no such recipe"),
        (["--set", "training.max_epochs=1"], 2, "--set changes a recipe"),
        (["--format", "pdf"], 2, "pdf"),
    ],
)
def test_mistakes_are_one_message(
    tmp_path: Path,
    recipe: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    given = [recipe if argument == "RECIPE" else argument for argument in arguments]

    assert call(*given, "--runs-dir", tmp_path / "empty") == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("only", ["dataset=criteo", "epoch=1", "dataset"])
def test_only_that_fits_nothing_is_a_mistake(
    runs: Path, capsys: pytest.CaptureFixture[str], only: str
) -> None:
    assert call("--runs-dir", runs, "--only", only) == 2
    assert f"--only {only}: " in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_a_fault(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    assert call("--runs-dir", runs, "--output", tmp_path / "file" / "below") == 4
    assert "is a file, not a folder" in capsys.readouterr().err
