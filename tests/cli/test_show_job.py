"""`prime-bench show job`: finished, failed, under way, and what is not there."""

import json
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code


def shown(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> str:
    assert exit_code(["show", "job", folder.name[:6], *more]) == 0
    return capsys.readouterr().out


def test_a_finished_job_in_full(jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((jobs["prime"] / "record.json").read_text())
    out = shown(capsys, jobs["prime"])
    assert out.startswith(f"{record['job_id']}: synthetic DNN prime seed 2021\ndone: has a record")
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert lines["data.rows"] == ["1000", "--set"]
    assert lines["data.min_count"] == ["1", "card"]
    assert lines["training.max_epochs"] == ["1", "--set"]
    assert lines["training.batch_size"] == ["1024", "recipe"]
    assert lines["arm.rank"] == ["16", "default"]
    assert f"test: AUC {record['result']['test']['auc']:.6f}" in out
    assert "validation AUC     ▁" in out
    versions = record["environment"]["versions"]
    shown_versions = ", ".join(f"{name} {version}" for name, version in versions.items())
    assert lines["versions"] == shown_versions.split()


def test_json_has_the_record_and_where_settings_are_from(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((jobs["dense"] / "record.json").read_text())
    found = json.loads(shown(capsys, jobs["dense"], "--json"))
    for key in ("job", "result", "history", "environment", "budget", "wall_s"):
        assert found[key] == record[key], key
    assert (found["schema"], found["state"], found["failure"]) == (1, "done", None)
    assert found["origins"]["training.max_epochs"] == "--set"


def test_a_failed_job_shows_its_traceback(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (jobs["dense"] / "record.json").unlink()
    failure = {"error": "RuntimeError: no luck", "traceback": "Traceback\nRuntimeError: no luck"}
    (jobs["dense"] / "failure.json").write_text(json.dumps(failure))
    out = shown(capsys, jobs["dense"])
    assert "failed: RuntimeError: no luck" in out
    assert "Traceback\nRuntimeError: no luck" in out
    assert "\n1 epoch:\n" in out  # of history.jsonl


def test_half_a_line_of_history_is_left_out(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (jobs["dense"] / "record.json").unlink()
    history = jobs["dense"] / "history.jsonl"
    history.write_text(history.read_text() + '{"epoch": 2, "st')
    found = json.loads(shown(capsys, jobs["dense"], "--json"))
    assert [line["epoch"] for line in found["history"]] == [1]
    assert found["state"] == "interrupted"


def test_without_its_data_the_rest_is_shown(
    jobs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(capsys, jobs["dense"], "--data-dir", str(tmp_path / "none"))
    assert "its prepared data are not here" in out
    assert "data.rows" not in out


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("digits", ["0", "abc"])
@pytest.mark.parametrize("command", [["show", "job"], ["predict"], ["verify"]])
def test_fewer_than_four_digits_are_too_few(
    command: list[str], digits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code([*command, digits]) == 2
    assert capsys.readouterr().err == (
        f"error: {digits}: at least four digits of a job's id are needed\n\n"
        "hint: `prime-bench plan RECIPE` and `prime-bench status --json` list the ids\n"
    )


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("name", "code"), [("fffe", 2), ("0" * 16, 3), ("quick", 2)])
def test_no_such_job(name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["show", "job", name]) == code
    assert "no job" in capsys.readouterr().err
