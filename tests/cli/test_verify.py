"""`prime-bench verify`: a sound folder is quiet, and each kind of change is found."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_bench.base.files import bundled_folder
from prime_bench.cli.main import exit_code


def findings(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[dict[str, str]]]:
    code = exit_code(["verify", *arguments, "--json"])
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["findings"]
    return code, found


def test_a_sound_folder_has_no_findings(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["verify", "--recompute", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == "2 records, 0 findings\n"
    assert findings(capsys, jobs["prime"].name) == (0, [])


def test_other_weights_are_found(jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    weights = jobs["dense"] / "checkpoint.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    code, found = findings(capsys)
    assert (code, found) == (
        1,
        [
            {
                "topic": "files",
                "where": str(weights),
                "what": "not the weights from which the record's metrics were computed",
            }
        ],
    )
    weights.unlink()
    assert findings(capsys)[1][0]["what"] == "missing"
    assert exit_code(["verify", jobs["dense"].name]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 record, 1 finding"


def test_an_edited_metric_is_found_three_times(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the record's digest and by test.json, where both are gone by keys that only records with
    digests have, and in an old record by computing it again."""
    path = jobs["prime"] / "record.json"
    record = json.loads(path.read_text())
    record["result"]["test"]["auc"] += 1e-9
    path.write_text(json.dumps(record))
    code, found = findings(capsys)
    assert code == 1
    assert [item["topic"] for item in found] == ["record", "files"]
    assert "its digest is not that of its values" in found[0]["what"]
    assert found[1]["where"] == str(jobs["prime"] / "test.json")
    del record["digests"]
    path.write_text(json.dumps(record))
    (jobs["prime"] / "test.json").unlink()
    code, found = findings(capsys)
    assert code == 1
    assert [item["what"].rpartition(": ")[2] for item in found] == [
        "its digests (`digests`) were removed"
    ]
    del record["environment"]["host"]
    (jobs["prime"] / "environment.json").write_text(json.dumps(record["environment"]))
    for name in ("valid", "test"):
        score = record["result"][name]
        record["result"][name] = {key: score[key] for key in ("auc", "logloss")}
    path.write_text(json.dumps(record))
    assert exit_code(["verify"]) == 0
    out, err = capsys.readouterr()
    assert out == "2 records, 0 findings\n"
    assert "1 of 2 records of a version that wrote no digests into them" in err
    code, found = findings(capsys, jobs["prime"].name, "--recompute", "--device", "cpu")
    assert code == 1
    assert [item["topic"] for item in found] == ["metrics"]
    assert found[0]["what"].startswith("test auc: ")


def test_a_changed_history_and_a_broken_record_are_found(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    history = jobs["dense"] / "history.jsonl"
    history.write_text(history.read_text() + "{}\n")
    (jobs["prime"] / "record.json").write_text("{")
    code, found = findings(capsys)
    assert code == 1
    # Dense has lost its partner with the broken record.
    assert [item["topic"] for item in found] == ["record", "files", "pairing"]
    assert found[1]["where"] == str(history)


@pytest.mark.usefixtures("jobs")
def test_a_changed_table_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    labels = next(Path("data").glob("*/train.labels.npy"))
    content = bytearray(labels.read_bytes())
    content[-1] ^= 1
    labels.write_bytes(content)
    code, found = findings(capsys)
    assert code == 1
    assert [item["topic"] for item in found] == ["data"]
    assert "was changed since it was prepared" in found[0]["what"]


@pytest.mark.usefixtures("jobs")
def test_missing_data_are_reported_as_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["verify", "--data-dir", str(tmp_path / "none")]) == 0
    assert "not checked: no table" in capsys.readouterr().err


@pytest.mark.usefixtures("jobs")
def test_a_report_that_does_not_follow_from_its_records_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(["report", "--output", "report"]) == 0
    capsys.readouterr()
    assert findings(capsys, "--report", "report") == (0, [])
    table = next(Path("report").glob("*.md"))
    table.write_text(table.read_text().replace("0", "1"))
    code, found = findings(capsys, "--report", "report")
    assert code == 1
    assert [item["topic"] for item in found] == ["report"]


@pytest.mark.usefixtures("jobs")
def test_a_recipe_stands_for_its_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "dataset.synthetic.rows=1000", "--set", "training.max_epochs=1"]
    assert findings(capsys, "quick", *settings) == (0, [])
    code, found = findings(capsys, "quick", *settings, "--only", "arm=dense")
    assert code == 1
    assert found == [
        {
            "topic": "pairing",
            "where": "synthetic DNN dense seed 2021",
            "what": "no other arm has run",
        }
    ]


def test_nothing_to_check_is_a_data_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["verify", "--runs-dir", str(tmp_path)]) == 3
    err = capsys.readouterr().err
    assert "no record here" in err
    assert "RECIPE" not in err


@pytest.mark.usefixtures("jobs")
def test_a_recipe_without_records_may_have_them_under_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "training.max_epochs=7"]
    assert exit_code(["verify", "quick", *settings]) == 3
    err = capsys.readouterr().err
    assert "no record of quick here, though 2 of other jobs" in err
    assert "give the same --set as for `run`" in err
    assert "prime-bench run quick --set training.max_epochs=7" in err

    assert exit_code(["verify", "quick", "--runs-dir", str(tmp_path / "none")]) == 3
    err = capsys.readouterr().err
    assert "make some: prime-bench run quick\n" in err
    assert "--set" not in err


def test_an_unfinished_job_is_reported(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (jobs["prime"] / "record.json").unlink()
    assert exit_code(["verify", jobs["prime"].name]) == 3
    message = f"it has not finished: prime-bench show job {jobs['prime'].name}"
    assert message in capsys.readouterr().err


def test_a_bundle_is_checked_with_its_digests(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text = (bundled_folder("recipes") / "quick.toml").read_text()
    for whole, part in (
        ("[2021, 190034, 27011]", "[2021]"),
        (', "residual_parameters"]', "]"),
        ("max_epochs = 100", "max_epochs = 1"),
        ("[dataset.synthetic]", "[dataset.synthetic]\nrows = 1000"),
    ):
        assert whole in text
        text = text.replace(whole, part)
    Path("quick.toml").write_text(text.split("[backbone.DCNv2]")[0])
    assert exit_code(["pack", "quick.toml", "-o", "quick.zip"]) == 0
    capsys.readouterr()
    assert findings(capsys, "quick.zip") == (0, [])
    assert findings(capsys, "quick.zip", "--data-dir", "nowhere") == (0, [])

    def packed_again(name: str, change: Callable[[str], str]) -> str:
        """A bundle whose digests of records are right, so that only the record can tell."""
        with zipfile.ZipFile("quick.zip") as archive:
            members = {entry: archive.read(entry) for entry in archive.namelist()}
        place = f"runs/{jobs['prime'].name}/{name}"
        members[place] = change(members[place].decode()).encode()
        contents = json.loads(members["bundle.json"])
        record = members[f"runs/{jobs['prime'].name}/record.json"]
        contents["records"][jobs["prime"].name] = hashlib.sha256(record).hexdigest()
        members["bundle.json"] = json.dumps(contents).encode()
        with zipfile.ZipFile("changed.zip", "w") as archive:
            for entry, content in members.items():
                archive.writestr(entry, content)
        return "changed.zip"

    edited = packed_again("record.json", lambda text: text.replace('"wall_s": ', '"wall_s": 9', 1))
    what = findings(capsys, edited)[1][0]["what"]
    assert what == "was changed after it was written: its digest is not that of its values"
    spaced = packed_again("environment.json", lambda text: text + "\n")
    code, found = findings(capsys, spaced)
    assert code == 1
    assert [item["what"] for item in found] == ["not the file with which the record was written"]
    assert exit_code(["verify", "quick.zip", "--recompute"]) == 2
    assert "a bundle has no --recompute" in capsys.readouterr().err
