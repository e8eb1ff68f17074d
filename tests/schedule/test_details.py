"""What is known of a job from its folder, whatever is in it."""

import json

import pytest

from prime_bench.schedule.details import job_details
from prime_bench.schedule.plan import make_plan
from prime_bench.store.runs import CONFIG, ENVIRONMENT, FAILURE, HISTORY, LOG


@pytest.fixture
def job(request_of, prepare):
    """A job whose data are prepared."""
    prepare("synthetic", {"rows": 1000})
    return request_of(7).job


@pytest.fixture
def write(runs, job):
    """Write files of the job: texts, or JSON."""

    def write(**files):
        folder = runs.path(job.id)
        folder.mkdir(parents=True, exist_ok=True)
        names = {"config": CONFIG, "environment": ENVIRONMENT, "failure": FAILURE}
        names |= {"history": HISTORY, "log": LOG}
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / names[name]).write_text(text)

    return write


@pytest.fixture
def details(runs, job, data_dir):
    return lambda: job_details(job.id, runs, data_dir=data_dir)


@pytest.fixture
def config(job):
    labels = {"dataset": "my log", "arm": "mine", "recipe": "own.toml"}
    return {"job_id": job.id, "job": job.plain(), **labels, "origins": {"seed": "--set"}}


LINE = {
    **{"epoch": 1, "step": 4, "learning_rate": 0.1, "train_loss": 0.5, "valid_auc": 0.6},
    **{"valid_logloss": 0.4, "improved": True, "wall_s": 2.0, "routing": None},
}


def test_a_job_that_was_started_has_what_its_files_say(details, write, config, job, runs):
    log = "".join(f"line {number}\n" for number in range(1, 13))
    write(config=config, environment={"threads": 3}, history=json.dumps(LINE), log=log)
    found = details()

    assert found.job == job
    plain = found.plain()
    assert plain.pop("job") == job.model_dump(mode="json", by_alias=True)
    assert "rows" in plain.pop("data")
    assert plain == {
        **dict.fromkeys(("data_verified", "budget", "result", "findings", "wall_s", "failure")),
        "job_id": job.id,
        "path": str(runs.path(job.id)),
        "state": "interrupted",
        "why": "was started and has no record; it starts from the beginning",
        "dataset": "my log",
        "arm": "mine",
        "recipe": "own.toml",
        "origins": {"seed": "--set"},
        "history": [LINE],
        "environment": {"threads": 3},
        "log": [f"line {number}" for number in range(3, 13)],
    }


def test_a_failed_job_has_its_error(details, write, config):
    failure = {"error": "out of luck", "traceback": "Traceback"}
    write(config=config, failure=failure)
    found = details()

    assert (found.state, found.why, found.failure) == ("failed", "out of luck", failure)
    assert (found.environment, found.history, found.log) == (None, [], [])


def test_a_done_job_has_what_its_record_says(details, write, config, job, finish, runs):
    finish(job, host="h")
    record = runs.find(job.id)
    write(environment={"threads": 99}, history="", log="")
    for known in (False, True):
        if known:
            write(config=config)
        found = details()
        assert (found.state, found.why, found.record) == ("done", "has a record", record)
        assert (found.dataset, found.arm) == ("synthetic", "dense")
        assert found.recipe == ("own.toml" if known else None)
        assert found.origins == ({"seed": "--set"} if known else {})
        assert (found.history, found.environment) == (record.history, record.environment.plain())
    plain = found.plain()
    assert plain["data_verified"] is True
    assert (plain["wall_s"], plain["findings"]) == (25.0, None)
    assert plain["result"] == record.result.plain()
    assert plain["budget"] == record.budget.plain()


def test_a_folder_that_does_not_say_its_job_says_why(details, write, runs, job):
    write(log="one\n")
    found = details()

    assert found.state == "interrupted"
    assert found.why.endswith("; it has no config.json")
    assert (found.job, found.dataset, found.arm, found.data) == (None, None, None, None)
    assert found.plain()["job"] is None
    assert found.folder == runs.path(job.id)


def test_without_its_table_a_job_has_no_data_settings(runs, job, write, config, tmp_path, recipe):
    write(config=config)
    assert job_details(job.id, runs, data_dir=tmp_path / "none").data is None
    (planned, *_) = make_plan(recipe, data_dir=tmp_path / "data", runs=runs).jobs
    found = job_details(job.id, runs, data_dir=tmp_path / "data").data
    assert found == planned.table_spec.settings.plain()
