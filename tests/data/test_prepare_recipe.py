"""`prime-bench prepare --recipe`: every table that a recipe needs, in one command."""

import json

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.data.manifest import resolve

RECIPE = """
schema = 1
title = "Three data sets"
seeds = [1]
arms = ["dense"]

[dataset.synthetic]
rows = 1000
[dataset.avazu]
vocabulary = "train"
[dataset.avazu-raw]
split_seed = 3

[backbone.DNN]
hidden_units = [4]
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "three.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def run(tmp_path, recipe, monkeypatch, capsys):
    """Run the command on the recipe: exit code, output and messages."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def command(*arguments):
        words = ["prepare", "--recipe", str(recipe), "--data-dir", str(tmp_path / "data")]
        code = exit_code([*words, *map(str, arguments)])
        return code, *capsys.readouterr()

    return command


@pytest.fixture
def sources(avazu_folder, raw_log, csv, tmp_path):
    """`--from` for the data sets of the recipe."""
    log = csv(tmp_path / "log.csv", raw_log)
    return [f"--from=avazu={avazu_folder}", "--from", f"avazu-raw={log}", "--allow-unverified"]


def test_all_are_made_and_then_there(tmp_path, run, sources, names_in):
    code, out, err = run(*sources)
    assert (code, err) == (0, "")
    specs = [
        resolve("synthetic", {"rows": 1000}),
        resolve("avazu", {"vocabulary": "train"}),
        resolve("avazu-raw", {"split_seed": 3}),
    ]
    folders = [spec.folder(tmp_path / "data") for spec in specs]
    assert names_in(tmp_path / "data") == sorted(folder.name for folder in folders)
    for folder in folders:
        assert str(folder) in out
    assert out.endswith("three: 3 made, 0 already there\n")
    code, out, err = run(*sources, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert [(table["dataset"], table["state"]) for table in content["tables"]] == [
        *(("synthetic", "was there"), ("avazu", "was there"), ("avazu-raw", "was there"))
    ]
    assert content["failed"] == {}
    # Tables that are there need no files.
    code, out, _ = run()
    assert (code, out.splitlines()[-1]) == (0, "three: 0 made, 3 already there")


def test_a_failure_does_not_stop_the_others(tmp_path, run, sources, names_in):
    code, out, err = run(*sources[1:])
    assert code == 4
    assert "error: avazu: could not be downloaded" in err
    assert out.endswith("three: 2 made, 0 already there, 1 failed (avazu)\n")
    assert len(names_in(tmp_path / "data")) == 2
    code, out, _ = run(*sources[1:], "--json")
    content = json.loads(out)
    assert (code, len(content["tables"]), list(content["failed"])) == (4, 2, ["avazu"])


REFUSED = [
    (["avazu"], "--recipe names the data sets, so `avazu` is one too many"),
    (["--vocabulary", "all"], "--vocabulary: with --recipe the settings are the recipe's"),
    (["--raw", "x"], "--raw: with --recipe the settings are the recipe's"),
    (
        ["--raw-format", "x", "--bins", "3", "--raw", "y"],
        "--bins, --raw, --raw-format: with --recipe the settings are the recipe's",
    ),
    (["--from", "x"], "--from x: expected NAME=PATH"),
    (["--from", "avazu="], "--from avazu=: expected NAME=PATH"),
    (["--from", "avasu=x"], "the recipe has no data set `avasu`; did you mean `avazu`?"),
    (["--from", "criteo=x"], "the recipe has no data set `criteo`"),
    (["--from", "synthetic=x"], "synthetic is generated and reads no files"),
    (["--from", "avazu=x", "--from", "avazu=y"], "avazu is given twice"),
]


@pytest.mark.parametrize(("arguments", "expected"), REFUSED)
def test_wrong_arguments(tmp_path, run, arguments, expected):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("split_seed", "split_sead"), "dataset.avazu-raw.split_sead: unknown key"),
        (("avazu-raw", "avazu-rew"), "no data set `avazu-rew`"),
    ],
)
def test_faulty_recipe(tmp_path, recipe, run, change, expected):
    recipe.write_text(RECIPE.replace(*change))
    code, _, err = run()
    assert code == 2
    assert expected in err
    assert not (tmp_path / "data").exists()


def test_several_sources_of_published_splits_are_the_three(tmp_path, capsys):
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).touch()
    flags = ["--from", str(tmp_path / "t*.csv"), "--data-dir", str(tmp_path / "data")]
    assert exit_code(["prepare", "avazu", *flags]) == 3
    assert "expected one valid inside, found 0" in capsys.readouterr().err
