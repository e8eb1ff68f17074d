"""`prime-bench predict`: which jobs are meant, what is written, and what is refused."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from prime_bench import api
from prime_bench.cli.main import exit_code
from prime_bench.cli.predict import _Table
from prime_bench.training.metrics import auc

SETTINGS = ["--set", "dataset.synthetic.rows=1000", "--set", "training.max_epochs=1"]


def test_rows_are_numbered_through_all_blocks():
    file = io.BytesIO()
    table = _Table(file)
    for block in ([0.5, 0.25], [0.125], [0.75, 1.0, 0.0625]):
        table.add(np.array(block, dtype=np.float32))
    assert file.getvalue().decode().splitlines() == [
        "row,probability",
        *("1,0.5", "2,0.25", "3,0.125", "4,0.75", "5,1.0", "6,0.0625"),
    ]


@pytest.mark.parametrize("output", [None, "O.csv"])
def test_values_without_an_id_and_other_conditions_are_told_behind_the_rows(
    output, tmp_path, monkeypatch, capfdbinary
):
    """The fields with most of them first."""
    monkeypatch.chdir(tmp_path)
    made = SimpleNamespace(
        rows=4000, unknown={"a": 0, "b": 10, "c": 1500, "d": 40}, conditions=["torch 1, not 2"]
    )

    def predict_rows(*_, on_block, log, **__):
        log("a message")
        on_block(np.array([0.5], dtype=np.float32))
        return made

    monkeypatch.setattr(api, "predict_rows", predict_rows)

    flags = [] if output is None else ["--output", output]
    assert exit_code(["predict", "abcd", "--from", "x", *flags]) == 0

    out, err = (text.decode() for text in capfdbinary.readouterr())
    rows = "row,probability\n1,0.5\n"
    assert out == (rows if output is None else "O.csv: 4,000 rows\n")
    if output is not None:
        assert Path(output).read_text() == rows
    assert err.splitlines() == [
        "a message",
        "`c`: 1,500 of 4,000 values are not in the vocabulary (37.5%)",
        "`d`: 40 of 4,000 values are not in the vocabulary (1.0%)",
        "`b`: 10 of 4,000 values are not in the vocabulary (0.2%)",
        "not as in the run: torch 1, not 2",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_each_job_has_a_bar_in_a_terminal(terminal, monkeypatch, capsys):
    monkeypatch.setattr("rich.console.Console.is_terminal", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def record(seed):
        job = SimpleNamespace(backbone="DNN", seed=seed)
        return SimpleNamespace(dataset="[red]", arm="prime", job=job)

    def predict(*_, on_progress, **__):
        for number, rows in ((1, 0), (1, 20), (2, 0), (2, 30)):
            on_progress(
                SimpleNamespace(
                    record=record(6 + number), number=number, n_jobs=2, rows=rows, n_rows=40
                )
            )
        return []

    monkeypatch.setattr(api, "predict", predict)
    assert exit_code(["predict", "quick"]) == 0

    out, err = capsys.readouterr()
    assert "prime" not in out
    if not terminal:
        assert err == ""
        return
    first, second = [line for line in err.splitlines() if "prime" in line][-2:]
    assert "1 of 2: [red] DNN prime seed 7 ━" in first
    assert "2 of 2: [red] DNN prime seed 8 ━" in second
    assert (" 50% " in first, " 75% " in second) == (True, True)


def test_run_keeps_predictions_on_request(jobs):
    assert not (jobs["dense"] / "predictions.npz").exists()
    assert (jobs["prime"] / "predictions.npz").exists()


@pytest.mark.parametrize("digits", [4, 9, 16])
def test_a_job_by_the_beginning_of_its_id(jobs, digits, capsys):
    folder = jobs["dense"]
    assert exit_code(["predict", folder.name[:digits]]) == 0
    record = json.loads((folder / "record.json").read_text())
    with np.load(folder / "predictions.npz") as file:
        assert sorted(file) == ["test", "test_labels", "valid", "valid_labels"]
        found = auc(file["test_labels"], file["test"])
    assert found == record["result"]["test"]["auc"]
    out = capsys.readouterr().out
    assert out == f"{folder / 'predictions.npz'}: test AUC {found}, as recorded\n"


def test_a_recipe_stands_for_its_jobs_with_a_record(jobs, capsys):
    kept = dict(np.load(jobs["prime"] / "predictions.npz"))
    (jobs["prime"] / "predictions.npz").unlink()
    assert exit_code(["predict", "quick", *SETTINGS]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    with np.load(jobs["prime"] / "predictions.npz") as file:
        for name, values in kept.items():
            assert np.array_equal(file[name], values)
    assert exit_code(["predict", "quick", *SETTINGS, "--only", "arm=prime"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_weights_that_do_not_give_the_record_are_refused(jobs, capsys):
    folder = jobs["dense"]
    record = json.loads((folder / "record.json").read_text())
    record["result"]["test"]["auc"] = 0.75
    (folder / "record.json").write_text(json.dumps(record))
    assert exit_code(["predict", folder.name]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "not written, the predictions are not the record's\n  test auc: 0.75 in the rec" in err
    assert not (folder / "predictions.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["quick", "--set", "training.max_epochs=2"], 3, "quick: no training run has a record"),
        (["qiuck"], 2, "did you mean `quick`?"),
        (["quick", "--device", "gpu"], 2, "no device `gpu`"),
        (["DENSE", "--data-dir", "nowhere"], 3, "no table in nowhere has the fingerprint"),
        (["DENSE", "--only", "seed=2021"], 2, "go with a recipe"),
        (["DENSE", "--runs-dir", "nowhere"], 3, "in nowhere\n\nhint: name its folder"),
        (["abcd"], 2, "abcd: no such recipe\nabcd: no job in runs has an id that begins so"),
        (["quik.toml"], 2, "quik.toml: no such recipe; did you mean `quick`?\n\nhint"),
    ],
)
def test_impossible_requests_are_reported(jobs, capsys, arguments, code, message):
    given = [jobs["dense"].name if word == "DENSE" else word for word in arguments]
    assert exit_code(["predict", *given]) == code
    assert message in capsys.readouterr().err


def test_a_job_without_a_record(jobs, capsys):
    (jobs["dense"] / "record.json").unlink()
    assert exit_code(["predict", jobs["dense"].name]) == 3
    assert "no training run has a record" in capsys.readouterr().err


def test_several_jobs_with_one_beginning(jobs, capsys):
    for last in "12":
        Path(f"runs/abcd{last}").mkdir()
    assert exit_code(["predict", "abcd"]) == 2
    assert "`abcd` begins 2 jobs in runs\n\nhint: jobs: abcd1, abcd2" in capsys.readouterr().err
    del jobs
