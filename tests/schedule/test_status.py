import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.estimate import usual_epochs
from prime_bench.schedule.plan import make_plan
from prime_bench.schedule.status import JobStatus, status_of_folder, status_of_plan
from prime_bench.store.runs import ENVIRONMENT, HISTORY, PROGRESS, Runs

MakeRequest = Callable[..., JobRequest]


@pytest.fixture
def start(make_request: MakeRequest) -> Callable[..., JobRequest]:
    """A job's folder after some validations, in the middle of the next epoch."""

    def start(*aucs: float | None, rows: int | None = None, seed: int = 1) -> JobRequest:
        request = make_request("dense", seed=seed, max_epochs=10)
        folder = Path(request.runs) / request.job.id
        folder.mkdir(parents=True)
        config = {"job": request.job.plain(), "dataset": "tiny", "arm": "dense"}
        (folder / "config.json").write_text(json.dumps(config))
        lines = [history_line(epoch, auc) for epoch, auc in enumerate(aucs, start=1)]
        (folder / HISTORY).write_text("".join(lines))
        if rows is not None:
            progress = {"epoch": len(aucs) + 1, "rows": rows, "rows_total": 100, "rows_per_s": 50.0}
            (folder / PROGRESS).write_text(json.dumps(progress))
        return request

    return start


def history_line(epoch: int, auc: object) -> str:
    """A line of history.jsonl of an epoch of 2 s; `auc` may be JSON that is no number."""
    line = {
        "epoch": epoch,
        "step": epoch,
        "learning_rate": 0.1,
        "train_loss": 0.5,
        "valid_auc": auc,
        "valid_logloss": 0.5,
        "improved": True,
        "wall_s": 2.0 * epoch,
    }
    return json.dumps(line) + "\n"


def only_job(request: JobRequest) -> JobStatus:
    (job,) = status_of_folder(Runs(Path(request.runs))).jobs
    return job


def test_a_running_job_has_its_epoch_pace_best_auc_and_an_upper_bound(start: Any) -> None:
    request = start(0.6, 0.7, None, rows=25)
    with Runs(Path(request.runs)).claim(request.job.id):
        job = only_job(request)
    assert job.name == "tiny DNN dense seed 1"
    assert (job.kind, job.dataset, job.backbone, job.arm) == ("train", "tiny", "DNN", "dense")
    assert job.seed == 1
    assert (job.state, job.epoch, job.share, job.rows_per_s) == ("running", 4, 0.25, 50.0)
    assert job.valid_auc == 0.7
    # 10 epochs at most, 3.25 of them are over, 2 s each
    assert (job.left_s, job.at_most) == (13.5, True)


def test_in_the_first_epoch_the_pace_is_that_of_its_rows(start: Any) -> None:
    request = start(rows=50)
    with Runs(Path(request.runs)).claim(request.job.id):
        job = only_job(request)
    assert (job.epoch, job.left_s) == (1, 9.5 * 2.0)


def test_before_the_first_report_the_time_is_not_known(start: Any) -> None:
    request = start()
    with Runs(Path(request.runs)).claim(request.job.id):
        job = only_job(request)
    assert (job.state, job.epoch, job.share, job.left_s) == ("running", None, None, None)


def test_between_two_epochs_the_progress_of_the_last_one_does_not_count(start: Any) -> None:
    request = start(rows=99)
    folder = Path(request.runs) / request.job.id
    (folder / HISTORY).write_text(history_line(1, 0.6))
    with Runs(Path(request.runs)).claim(request.job.id):
        job = only_job(request)
    assert (job.epoch, job.share, job.left_s) == (1, None, 18.0)


def test_an_interrupted_job_has_no_time_left(start: Any) -> None:
    job = only_job(start(0.6, rows=25))
    assert (job.state, job.epoch, job.left_s) == ("interrupted", 1, None)


def test_half_a_line_and_half_a_file_do_no_harm(start: Any) -> None:
    request = start(0.6)
    folder = Path(request.runs) / request.job.id
    (folder / HISTORY).write_text((folder / HISTORY).read_text() + '{"epoch": 2, "va')
    (folder / PROGRESS).write_text('{"epo')
    assert only_job(request).epoch == 1


WRONG_AUCS = ('"x"', "[]", "true", "1e999")


@pytest.mark.parametrize(
    "line",
    [
        *("null", "[]", "{}", '"x"', "1e999", '{"wall_s": "x"}', "[" * 100_000),
        *(history_line(2, "VALUE").replace('"VALUE"', value) for value in WRONG_AUCS),
        history_line(2, 0.6).replace("4.0", "NaN"),
        history_line(2, 0.6).replace("2,", '"2",', 1),
    ],
)
def test_a_line_that_is_no_validation_ends_the_history(start: Any, line: str) -> None:
    request = start(0.6)
    file = Path(request.runs) / request.job.id / HISTORY
    file.write_text(f"{file.read_text()}{line.rstrip()}\n")
    with Runs(Path(request.runs)).claim(request.job.id):
        job = only_job(request)
    assert (job.epoch, job.valid_auc, job.left_s) == (1, 0.6, 18.0)


@pytest.mark.parametrize("key", ["epoch", "rows", "rows_total", "rows_per_s"])
@pytest.mark.parametrize("value", [None, 0, -1, "x", [], True, 10**400])
def test_progress_with_a_wrong_number_is_none(start: Any, key: str, value: object) -> None:
    request = start(0.6, rows=25)
    file = Path(request.runs) / request.job.id / PROGRESS
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with Runs(Path(request.runs)).claim(request.job.id):
        job = only_job(request)
    assert (job.epoch, job.share, job.left_s) == (1, None, 18.0)


def test_a_folder_without_a_config_is_listed(start: Any) -> None:
    request = start()
    (Path(request.runs) / request.job.id / "config.json").unlink()
    assert only_job(request).why.endswith("; it has no config.json")


def test_a_broken_record_is_named(start: Any) -> None:
    request = start(0.6)
    (Path(request.runs) / request.job.id / "record.json").write_text("{")
    job = only_job(request)
    assert (job.state, job.why.endswith("; move the job's folder away")) == ("broken", True)


def test_a_folder_that_is_not_there_has_no_jobs(tmp_path: Path) -> None:
    assert status_of_folder(Runs(tmp_path / "none")).jobs == []


def test_usual_epochs_are_those_of_runs_that_ended_by_themselves(
    make_request: MakeRequest, record_of: Any
) -> None:
    ends = [(3, "patience"), (4, "patience"), (8, "patience"), (100, "max_epochs")]
    records = [
        record_of(make_request("dense", seed=seed).job, epochs=epochs, stopped=stopped)
        for seed, (epochs, stopped) in enumerate(ends)
    ]
    assert list(usual_epochs(records).values()) == [4]


def test_with_like_jobs_the_time_left_is_no_bound(start: Any, record_of: Any) -> None:
    request = start(0.6, rows=50)
    runs = Runs(Path(request.runs))
    runs.put(record_of(request.job.model_copy(update={"seed": 9}), epochs=4))
    with runs.claim(request.job.id):
        (job,) = (job for job in status_of_folder(runs).jobs if job.state == "running")
    assert (job.left_s, job.at_most) == ((4 - 1.5) * 2.0, False)


def test_a_job_that_takes_longer_than_those_like_it_has_a_bound_again(
    start: Any, record_of: Any
) -> None:
    request = start(0.6, 0.6, rows=50)
    runs = Runs(Path(request.runs))
    runs.put(record_of(request.job.model_copy(update={"seed": 9}), epochs=2))
    with runs.claim(request.job.id):
        (job,) = (job for job in status_of_folder(runs).jobs if job.state == "running")
    assert (job.left_s, job.at_most) == ((10 - 2.5) * 2.0, True)


def test_where_a_job_runs_is_said(start: Any, record_of: Any) -> None:
    request = start(0.6)
    assert only_job(request).where is None
    environment = record_of(request.job, host="a", node="n" * 56).environment
    file = Path(request.runs) / request.job.id / ENVIRONMENT
    file.write_text(json.dumps(environment.plain()))
    assert only_job(request).where == "a (node nnnnnnnn), a CPU"


def test_jobs_of_a_plan_have_their_names_with_and_without_data(
    recipe: Any, data_dir: Path, runs: Runs, prepare: Any
) -> None:
    for prepared in (False, True):
        if prepared:
            prepare("synthetic", {"rows": 1000})
        plan = make_plan(recipe, data_dir=data_dir, runs=runs)
        found = status_of_plan(plan, runs)
        assert found.counts == {"pending" if prepared else "needs data": 4}
        last = found.jobs[-1]
        assert last.plain() == {
            **dict.fromkeys(("epoch", "share", "rows_per_s", "valid_auc", "left_s", "where")),
            "job_id": plan.jobs[-1].job_id,
            "name": "synthetic DNN prime seed 3",
            "state": "pending" if prepared else "needs data",
            "why": plan.jobs[-1].why,
            "kind": "train",
            "dataset": "synthetic",
            "backbone": "DNN",
            "arm": "prime",
            "seed": 3,
            "at_most": False,
        }
        assert (last.job_id is None) != prepared


def test_a_running_job_of_a_plan_takes_as_long_as_the_done_ones_like_it(
    recipe: Any, data_dir: Path, runs: Runs, prepare: Any, finish: Any
) -> None:
    prepare("synthetic", {"rows": 1000})
    first, _, third, _ = (
        planned.job for planned in make_plan(recipe, data_dir=data_dir, runs=runs).jobs
    )
    finish(first, epochs=4)
    runs.path(third.id).mkdir()
    (runs.path(third.id) / HISTORY).write_text(history_line(1, 0.6))
    with runs.claim(third.id):
        plan = make_plan(recipe, data_dir=data_dir, runs=runs)
        found = status_of_plan(plan, runs)
    assert found.counts == {"done": 1, "pending": 2, "running": 1}
    assert list(found.counts) == ["done", "pending", "running"]
    assert (found.jobs[2].left_s, found.jobs[2].at_most) == ((4 - 1) * 2.0, False)


def test_the_folder_of_a_probe_says_so_in_its_name(start: Any) -> None:
    request = start()
    job = request.job.model_copy(update={"kind": "routing", "probe": {"split": "valid"}})
    runs = Runs(Path(request.runs))
    runs.path(job.id).mkdir()
    config = {"job": job.plain(), "dataset": "tiny", "arm": "dense"}
    (runs.path(job.id) / "config.json").write_text(json.dumps(config))
    found = {one.job_id: (one.name, one.kind) for one in status_of_folder(runs).jobs}
    assert found == {
        request.job.id: ("tiny DNN dense seed 1", "train"),
        job.id: ("tiny DNN dense seed 1 routing", "routing"),
    }
