"""`prime-bench show job`: finished, failed, under way, and what is not there."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.cli.show_job import text
from prime_bench.findings import Validation
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.details import JobDetails
from prime_bench.store.record import RunRecord


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


def validation(epoch: int, **scores: float | None) -> Validation:
    return Validation(
        **{"epoch": epoch, "step": epoch, "learning_rate": 0.1, "improved": True, "wall_s": 1.0},
        **{"train_loss": 0.6, "valid_auc": 0.7, "valid_logloss": 0.5, **scores},
    )


@pytest.fixture
def details(make_request: Callable[..., JobRequest]) -> Callable[..., JobDetails]:
    """The details of a job that has a config and nothing else, with other facts."""
    job = make_request("prime", seed=7, max_epochs=9).job
    plain = JobDetails(
        **{"job_id": "abcd", "folder": Path("runs/abcd"), "state": "failed", "why": "no\nluck"},
        **{"job": job, "dataset": "avazu", "arm": "mine", "recipe": "quick"},
        **{"data_verified": None, "data": None, "record": None, "environment": None},
        **{"origins": {}, "history": [], "log": [], "failure": None},
    )
    return lambda **facts: replace(plain, **facts)


def test_a_job_without_origins_is_shown_with_what_there_is(
    details: Callable[..., JobDetails],
) -> None:
    found = details()

    head, settings = text(found).split("\n\n")

    assert head.splitlines() == [
        "abcd: avazu DNN mine seed 7",
        r"failed: no\nluck",
        "runs/abcd",
    ]
    header, first, *rows, last, note = settings.splitlines()
    assert header.split() == ["setting", "value", "from"]
    assert first.split() == ["seed", "7", "-"]
    assert found.job is not None
    assert last == f"numerics {found.job.numerics}, data {found.job.fingerprint[:12]}"
    assert note == "its prepared data are not here (--data-dir): their settings are left out"
    cells = {row.split()[0]: row.split()[1:] for row in rows}
    assert cells["training.max_epochs"] == ["9", "-"]
    assert cells["arm.rank"] == ["2", "-"]
    assert cells["backbone.embedding_dim"] == ["4", "-"]
    assert {name.partition(".")[0] for name in cells} == {"training", "backbone", "arm"}


def test_each_setting_has_its_origin_and_a_probe_its_own(
    details: Callable[..., JobDetails],
) -> None:
    job = details().job
    assert job is not None
    probe = job.model_copy(update={"kind": "routing", "probe": {"split": "valid"}})
    origins = {"seed": "--only", "arm.rank": "recipe", "data.rows": "--set"}

    head, settings = text(details(job=probe, origins=origins, data={"rows": 40, "seed": 3})).split(
        "\n\n"
    )

    assert head.splitlines()[0] == "abcd: avazu DNN mine seed 7, routing"
    cells = {row.split()[0]: row.split()[1:] for row in settings.splitlines()[1:-1]}
    assert cells["seed"] == ["7", "--only"]
    assert cells["data.rows"] == ["40", "--set"]
    assert cells["data.seed"] == ["3", "card"]
    assert cells["arm.rank"] == ["2", "recipe"]
    assert cells["arm.bags"] == ["2", "default"]
    assert cells["probe.split"] == ['"valid"', "default"]
    assert "prepared data" not in settings


def test_a_job_that_has_neither_record_nor_config_is_shown(
    details: Callable[..., JobDetails],
) -> None:
    shown = text(details(job=None, dataset=None, arm=None))

    assert shown.startswith("abcd: None None None seed None\n")
    assert "\nseed     null   -\nnumerics None, data None\n" in shown


@pytest.mark.parametrize(
    ("failure", "last"),
    [
        ({"error": "E", "traceback": "Traceback\n  it"}, "Traceback\n  it"),
        ({"error": "out of luck"}, "failed: out of luck"),
        ({"error": "out of luck", "traceback": ""}, "failed: out of luck"),
    ],
)
def test_history_environment_failure_and_log_follow_in_this_order(
    details: Callable[..., JobDetails], failure: dict[str, str], last: str
) -> None:
    shown = text(
        details(
            history=[validation(1), validation(2, valid_auc=None)],
            environment={"python": "3.11", "versions": {"torch": "2", "numpy": "1"}},
            failure=failure,
            log=["first", "second"],
        )
    )

    assert shown.split("\n\n")[2:] == [
        "2 epochs:\n"
        "  validation AUC     ▁·  0.7000 to -\n"
        "  validation LogLoss ▁▁  0.5000 to 0.5000\n"
        "  training loss      ▁▁  0.6000 to 0.6000",
        "environment:\n  python           3.11\n  versions         torch 2, numpy 1",
        last,
        "end of log.txt:\n  first\n  second",
    ]


def test_a_result_has_its_end_and_its_notes(
    details: Callable[..., JobDetails], plain_record: Callable[..., RunRecord]
) -> None:
    job = details().job
    result = {
        "best_epoch": 3,
        "epochs": 5,
        "stopped": "max_epochs",
        "valid": {"auc": 0.75, "logloss": 0.5},
        "test": {"auc": None, "logloss": None},
        "degenerate": "test: not\na number",
        "notes": ["a note"],
    }
    record = plain_record(job, result=result, wall_s=12.345)

    shown = text(details(state="done", record=record)).split("\n\n")

    assert shown[0].endswith("\ntook 12.3 s")
    assert shown[2].splitlines() == [
        "result:",
        "  valid: AUC 0.750000, LogLoss 0.500000",
        "  test: AUC -, LogLoss -",
        "  best epoch 3, ended by max_epochs",
        r"  degenerate: test: not\na number",
        "  note: a note",
    ]
