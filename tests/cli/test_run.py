"""`prime-bench run`: its codes, its last words, and that nothing is left where it cannot run."""

import contextlib
import inspect
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from prime_bench import api
from prime_bench.base.errors import UsageError
from prime_bench.cli import options
from prime_bench.cli.main import exit_code
from prime_bench.findings import Validation
from prime_bench.recipe.events import EpochEvent, EpochProgress, ProgressEvent, RetryEvent
from prime_bench.schedule.devices import CPU, _SeenByTorch
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.run import RunSummary
from prime_bench.schedule.slots import chosen_slots

SMALL = [
    "quick",
    "--set",
    "dataset.synthetic.rows=1000",
    "--only",
    "backbone=DNN",
    "--only",
    "arm=dense",
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def prepared(capsys):
    """The data of SMALL."""
    assert exit_code(["prepare", "synthetic", "--rows", "1000"]) == 0
    capsys.readouterr()


def _validation(auc):
    return Validation(
        epoch=1,
        step=1,
        learning_rate=0.1,
        train_loss=0.5,
        valid_auc=auc,
        valid_logloss=0.5,
        improved=True,
        wall_s=1.0,
    )


@pytest.fixture
def engine(monkeypatch):
    """Ends the jobs of an engine with these errors; None for done, `skipped` for skipped, a signal
    for one that comes in the middle of the job. Returns what the engine was given.
    """

    def engine(*errors):
        given = {"requests": []}

        class Engine:
            def __init__(self, **options):
                given.update(options)
                self.device, self.device_kind = options["devices"][0], options["devices"][0].kind

            def stop(self):
                given["stopped"] = True

            def slots_for(self, needs, *, n_jobs):
                chosen = {name: given[name] for name in ("slots", "threads")}
                return chosen_slots(given["devices"], needs, n_jobs=n_jobs, **chosen)

            def run(self, queue, *, slots, on_event):
                given["chosen"] = slots
                for error in errors:
                    request = queue.take()
                    given["requests"].append(request)
                    job_id = request.job.id
                    progress = EpochProgress(epoch=1, rows=1, rows_total=2, rows_per_s=3.0)
                    on_event(ProgressEvent(job_id=job_id, progress=progress))
                    on_event(EpochEvent(job_id=job_id, validation=_validation(None)))
                    on_event(EpochEvent(job_id=job_id, validation=_validation(0.5)))
                    if error == "interrupt":
                        raise KeyboardInterrupt
                    if isinstance(error, signal.Signals):
                        os.kill(os.getpid(), error)
                        queue.stop()
                        state, error = "interrupted", "stopped at a checkpoint"
                    else:
                        state = {None: "done", "skipped": "skipped"}.get(error, "failed")
                    yield from queue.settle(Outcome(request=request, state=state, why=error or ""))
                assert queue.take(wait=False) is None

        monkeypatch.setattr("prime_bench.schedule.local.LocalEngine", Engine)
        return given

    return engine


@pytest.mark.usefixtures("prepared")
def test_all_done_is_0(engine, capsys):
    given = engine(None, None, None)

    assert exit_code(["run", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert out == "quick: 3 jobs done, 0 had a record, 0 failed\n"
    assert err.splitlines() == [
        f"done: synthetic DNN dense seed {seed}; {n} of 3 jobs"
        for n, seed in enumerate((request.job.seed for request in given["requests"]), start=1)
    ]


@pytest.mark.usefixtures("prepared")
def test_a_failed_job_is_1_and_named_with_its_folder(engine, capsys):
    engine(None, "RuntimeError: out of luck", "skipped")

    assert exit_code(["run", *SMALL]) == 1
    out, err = capsys.readouterr()
    assert out == "quick: 1 job done, 0 had a record, 1 failed, 1 left to another process\n"
    assert err.startswith(
        "done: synthetic DNN dense seed 2021; 1 of 3 jobs\n"
        "failed: synthetic DNN dense seed 190034: RuntimeError: out of luck; "
        "2 of 3 jobs, 1 failed\n"
    )
    assert "\nfailed: synthetic DNN dense seed 190034: RuntimeError: out of luck (runs/" in err


@pytest.mark.usefixtures("prepared")
def test_a_broken_record_is_named_and_left_as_it_is(tmp_path, engine, capsys):
    assert exit_code(["plan", *SMALL, "--json"]) == 0
    job_id = json.loads(capsys.readouterr().out)["jobs"][0]["job_id"]
    file = tmp_path / "runs" / job_id / "record.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    (file.parent / "resume.state").touch()
    engine(None, None)

    assert exit_code(["run", *SMALL]) == 1
    out, err = capsys.readouterr()
    assert out == "quick: 2 jobs done, 0 had a record, 0 failed, 1 broken\n"
    assert f"\nbroken: runs/{job_id}/record.json: cannot read the record: " in err
    assert err.endswith("; move the job's folder away\n")
    assert file.read_text() == "{"
    assert (file.parent / "resume.state").exists()
    assert exit_code(["status", *SMALL]) == 0
    assert capsys.readouterr().out.startswith("3 jobs: 1 broken, ")


def test_every_option_has_its_value_where_it_is_used(monkeypatch):
    """Each at a value other than the default, and no two alike."""
    given = {}

    def noting(name, answer):
        def note(*arguments, **keys):
            given[name] = arguments, keys
            if isinstance(answer, Exception):
                raise answer
            return answer

        return note

    plan = SimpleNamespace(earlier=[])
    quiet = contextlib.nullcontext(SimpleNamespace(event="event", outcome="outcome"))
    monkeypatch.setattr("prime_bench.cli.progress.RunProgress", lambda _plan: quiet)
    for name, answer in (("open_engine", "it"), ("plan", plan), ("run", UsageError("enough"))):
        monkeypatch.setattr(f"prime_bench.api.{name}", noting(name, answer))
    flags = (
        "--only arm=dense --set training.max_epochs=3 --device cuda:1 --slots 2 "
        "--threads-per-job 3 --retries 4 --fail-fast --max-hours 1.5 --job-timeout 90 "
        "--retrain stale --accept-source "
        "--keep-predictions --log tensorboard --engine ray --address h:1 --nodes a=b "
        "--node-timeout 7 --allow-mixed-devices --data-dir d --runs-dir r"
    )
    assert exit_code(["run", "quick", *flags.split()]) == 2

    (arguments, engine) = given["open_engine"]
    assert dict(zip(["name"], arguments, strict=False)) | engine == {
        **{"name": "ray", "device": "cuda:1", "slots": 2, "threads": 3, "job_timeout_s": 90.0},
        **{"address": "h:1", "nodes": "a=b", "node_timeout_s": 7.0, "mixed_devices": True},
        "sync_data": False,
    }
    folders = {"data_dir": Path("d"), "runs_dir": Path("r")}
    assert given["plan"] == (
        ("quick",),
        {
            **{"only": ("arm=dense",), "changes": ("training.max_epochs=3",), "engine": "it"},
            **{"retrain_stale": True, "accept_source": True, **folders},
        },
    )
    arguments, limits = given["run"]
    del limits["on_stop"]
    assert arguments == (plan,)
    assert limits == {
        **{"engine": "it", "retries": 4, "fail_fast": True, "max_hours": 1.5},
        **{"keep_predictions": True, "log_to": "tensorboard", "runs_dir": Path("r")},
        **{"on_event": "event", "on_outcome": "outcome"},
    }


@pytest.mark.usefixtures("prepared")
def test_options_reach_the_engine_and_the_jobs(engine):
    given = engine(None, None, None)
    options = ["--device", "cpu", "--slots", "3", "--job-timeout", "90", "--threads-per-job", "5"]

    assert exit_code(["run", *SMALL, *options, "--compile"]) == 0
    assert given["devices"] == [CPU]
    assert (given["slots"], given["job_timeout_s"]) == (3, 90)
    assert [request.threads for request in given["requests"]] == [5] * 3
    assert all(request.job.training.compile for request in given["requests"])


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("slots", "total", "threads"),
    [([], 3, 1), (["--slots", "auto"], 3, 1), (["--slots", "1"], 1, 8), (["--slots", "3"], 3, 2)],
)
def test_slots_are_chosen_for_the_jobs_or_as_they_are_asked_for(
    engine, monkeypatch, slots, total, threads
):
    monkeypatch.setattr("prime_bench.schedule.slots.cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    given = engine(None, None, None)

    assert exit_code(["run", *SMALL, *slots]) == 0
    assert given["chosen"].total == total
    assert [request.threads for request in given["requests"]] == [threads] * 3


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5", ""])
def test_other_numbers_of_slots_are_a_mistake(engine, capsys, number):
    engine()

    assert exit_code(["run", *SMALL, "--slots", number]) == 2
    assert "is neither `auto` nor a number from 1 on" in capsys.readouterr().err


@pytest.mark.usefixtures("prepared")
def test_fewer_jobs_on_a_device_are_said_once(engine, monkeypatch, capsys):
    engine(None, None, None)
    retry = {"device": "cuda:1", "error": "CUDA error: out of memory [1]"}

    def run(plan, _engine, *, on_event, **_options):
        for at_once in (3, 3, 2):
            on_event(RetryEvent(job_id=plan.jobs[0].job_id, at_once=at_once, **retry))
        on_event(RetryEvent(job_id=plan.jobs[0].job_id, error="another failure"))
        return RunSummary(
            plan=plan,
            **dict.fromkeys(("failed", "not_run"), ()),
            **dict.fromkeys(("done", "skipped", "interrupted", "not_started"), 0),
            stopped=False,
        )

    monkeypatch.setattr("prime_bench.api.execution.run_plan", run)
    assert exit_code(["run", *SMALL]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"out of memory on cuda:1: the run goes on with at most {number} jobs at once there "
        "(CUDA error: out of memory [1])"
        for number in (3, 2)
    ]


@pytest.mark.usefixtures("prepared")
def test_a_retry_that_does_well_is_no_failure(engine, capsys):
    engine("out of luck", None, None, None)

    assert exit_code(["run", *SMALL, "--retries", "1"]) == 0
    assert capsys.readouterr().out == "quick: 3 jobs done, 0 had a record, 0 failed\n"


@pytest.mark.usefixtures("prepared")
def test_fail_fast_starts_no_other_job(engine, capsys):
    engine(None, "out of luck")

    assert exit_code(["run", *SMALL, "--fail-fast"]) == 1
    out, err = capsys.readouterr()
    assert out == "quick: 1 job done, 0 had a record, 1 failed, 1 not started\n"
    assert err.endswith("the same command continues this run\n")


@pytest.mark.usefixtures("prepared")
def test_no_time_starts_no_job(engine, capsys):
    engine()

    assert exit_code(["run", *SMALL, "--max-hours", "0"]) == 1, "the recipe is not done"
    out, err = capsys.readouterr()
    assert out == "quick: 0 jobs done, 0 had a record, 0 failed, 3 not started\n"
    assert err == "the same command continues this run\n"


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_after_the_epoch(engine, number, monkeypatch, capsys):
    given, written = engine(None, number), []
    monkeypatch.setattr("prime_bench.cli.run.os.write", lambda _to, text: written.append(text))
    before = signal.getsignal(number)

    assert exit_code(["run", *SMALL]) == 130
    out, err = capsys.readouterr()
    assert given["stopped"]
    assert out == ("quick: 1 job done, 0 had a record, 0 failed, 1 interrupted, 1 not started\n")
    assert written == [b"\nstopping: running jobs finish their epoch; Ctrl-C again ends them now\n"]
    # What was stopped is not counted, here as in the summary.
    assert err.splitlines() == [
        "done: synthetic DNN dense seed 2021; 1 of 3 jobs",
        "interrupted: synthetic DNN dense seed 190034: stopped at a checkpoint; 1 of 3 jobs",
        "the same command continues this run",
    ]
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("prepared")
def test_the_second_signal_interrupts(engine, monkeypatch, capsys):
    given = engine(signal.SIGINT)
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda *to: (kill(*to), kill(*to)))

    assert exit_code(["run", *SMALL]) == 130
    assert given["stopped"]
    assert capsys.readouterr().err.startswith(
        "\ninterrupted; run the same command again to continue"
    )


@pytest.mark.usefixtures("prepared")
def test_a_device_that_is_not_there_is_one_message_and_no_job(
    tmp_path, engine, monkeypatch, capsys
):
    engine()
    seen = _SeenByTorch(torch="2.9", cuda=None, warning="", devices=[])
    monkeypatch.setattr("prime_bench.schedule.devices._seen_by_torch", lambda: seen)

    assert exit_code(["run", *SMALL, "--device", "cuda"]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: device cuda is not there: torch 2.9 sees 0 CUDA devices\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("prepared")
def test_an_interrupt_is_130(engine, capsys):
    engine(None, "interrupt")

    assert exit_code(["run", *SMALL]) == 130
    assert "\ninterrupted; run the same command again to continue" in capsys.readouterr().err


def test_without_data_it_is_3_and_the_command_is_given(tmp_path, capsys):
    assert exit_code(["run", *SMALL]) == 3

    out, err = capsys.readouterr()
    assert out == ""
    assert "hint: prepare first:\n  prime-bench prepare synthetic --rows 1000\n" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("prepared")
def test_what_can_run_does_and_the_rest_is_named(quick_and_criteo, engine, capsys):
    engine(None, None, None)

    assert exit_code(["run", quick_and_criteo, *SMALL[1:]]) == 0
    out, err = capsys.readouterr()
    assert out == f"{quick_and_criteo}: 3 jobs done, 0 had a record, 0 failed\n"
    assert "3 pending" in err
    assert "3 needs data" in err
    assert err.endswith("to prepare: prime-bench prepare criteo --numeric log1p\n")


@pytest.mark.usefixtures("prepared")
def test_a_dry_run_prints_the_plan_and_does_nothing(tmp_path, engine, capsys):
    engine()
    assert exit_code(["plan", *SMALL]) == 0
    planned = capsys.readouterr().out

    assert exit_code(["run", *SMALL, "--dry-run"]) == 0
    assert capsys.readouterr().out == planned
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("prepared")
def test_a_folder_that_cannot_be_written_is_4_and_nothing_is_left(tmp_path, engine, capsys):
    engine()
    (tmp_path / "file").write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())

    assert exit_code(["run", *SMALL, "--runs-dir", "file/runs"]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: file/runs: ")
    assert "hint: name another path (--data-dir, --runs-dir" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    "folder", ["/sys/prime-bench-runs", "/proc/prime-bench-runs", "/proc/self"]
)
def test_a_folder_of_the_kernel_cannot_be_written_even_by_root(engine, capsys, folder):
    engine()

    assert exit_code(["run", *SMALL, "--runs-dir", folder]) == 4
    assert capsys.readouterr().err.startswith(f"error: {folder}: ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["qiuck"], 2, "did you mean `quick`?"),
        (["quick", "--set", "training.max_epoch=1"], 2, "did you mean `max_epochs`?"),
        (["quick", "--set", "dataset.synthetik.rows=9"], 2, "did you mean `synthetic`?"),
        (["quick", "--only", "sead=1"], 2, "--only sead=1: expected KEY=VALUE"),
        (["quick", "--device", "gpu"], 2, "error: no device `gpu`\n\nhint: devices: auto, "),
        (["quick", "--device", "cuda:x"], 2, "error: no device `cuda:x`"),
        (["quick", "--max-hours", "nan"], 2, "nan is not a finite number"),
        (["quick", "--job-timeout", "inf"], 2, "inf is not a finite number"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_mistakes_are_one_message_and_leave_nothing(tmp_path, capsys, arguments, code, message):
    assert exit_code(["run", *arguments]) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("prepared")
def test_a_real_worker_does_a_job_once(capsys):
    one = ["run", *SMALL, "--only", "seed=2021", "--set", "training.max_epochs=1"]
    assert exit_code(one) == 0
    assert capsys.readouterr().out == "quick: 1 job done, 0 had a record, 0 failed\n"

    assert exit_code(one) == 0
    assert capsys.readouterr().out == "quick: 0 jobs done, 1 had a record, 0 failed\n"
    assert exit_code(["plan", *one[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"done": 1}


def test_options_of_an_engine_are_its_arguments() -> None:
    """`run` and `study` pass them on by name."""

    @options.where_jobs_run
    def command() -> None: ...

    names = {option.name for option in command.__click_params__}  # type: ignore[attr-defined]

    assert names == set(inspect.signature(api.open_engine).parameters)


def _outcome(state, name, seed):
    job = SimpleNamespace(id=f"id-{name}", backbone="DNN", seed=seed)
    request = SimpleNamespace(dataset="avazu", arm=name, job=job)
    return SimpleNamespace(state=state, request=request, why=f"why\n{name}")


@pytest.mark.parametrize(
    ("facts", "more", "code"),
    [
        ({}, "", 1),
        ({"interrupted": 1, "stopped": True}, "the same command continues this run\n", 130),
        # Stopped just as the running jobs ended: none of them was interrupted.
        ({"not_started": 1, "stopped": True}, "the same command continues this run\n", 130),
        ({"not_started": 1}, "the same command continues this run\n", 1),
        ({"log_fault": "no event files"}, "no event files\n", 1),
    ],
)
def test_every_job_without_a_record_is_named_with_why_and_its_folder(
    monkeypatch, capsys, facts, more, code
):
    plan = SimpleNamespace(
        **{"earlier": ["another\nversion"], "prepare_commands": [], "broken": [], "unfit": []},
        **{"counts": {}, "jobs": [], "to_run": []},
    )
    ended = RunSummary(
        plan=plan,
        failed=(_outcome("failed", "one", 1),),
        not_run=(_outcome("not run", "two", 2), _outcome("not run", "three", 3)),
        **{**dict.fromkeys(("done", "skipped", "interrupted", "not_started"), 0), "stopped": False},
    )
    answers = {"open_engine": "it", "plan": plan, "run": replace(ended, **facts)}
    for name, answer in answers.items():
        monkeypatch.setattr(api, name, lambda *_, _it=answer, **__: _it)

    assert exit_code(["run", "quick", "--runs-dir", "R"]) == code

    out, err = capsys.readouterr()
    assert out == f"quick: {answers['run']}\n"
    assert err == (
        "source: another\\nversion\n"
        "failed: avazu DNN one seed 1: why\\none (R/id-one)\n"
        "not run: avazu DNN two seed 2: why\\ntwo (R/id-two)\n"
        "not run: avazu DNN three seed 3: why\\nthree (R/id-three)\n"
        f"{more}"
    )
