"""`run --log tensorboard`: what TensorBoard's own reader finds, also after a kill and a return."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from prime_bench import api
from prime_bench.base.errors import EnvironmentFault
from prime_bench.cli.main import exit_code
from prime_bench.findings import Routing, Validation
from prime_bench.recipe.events import EpochEvent, EpochProgress, ProgressEvent
from prime_bench.recipe.job import Job
from prime_bench.schedule import tensorboard as board_module
from prime_bench.schedule.tensorboard import FOLDER, TensorBoard
from prime_bench.settings.training import TrainSpec
from prime_bench.store.runs import HISTORY, Runs

JOB = "0123456789abcdef"
ROWS, BATCH = 101, 10  # the last row joins the tenth batch
STEPS = 10
CHANGES = {"dataset.synthetic.rows": 1_000, "training.max_epochs": 2}
ONLY = {"backbone": "DNN", "arm": "prime", "seed": 2021}


@pytest.fixture
def installed():
    pytest.importorskip("tensorboard")


def _validation(epoch, *, routing=None, auc=0.5):
    return Validation(
        epoch=epoch,
        step=epoch * STEPS,
        learning_rate=0.25,
        train_loss=1 / epoch,
        valid_auc=auc,
        valid_logloss=0.5 + epoch,
        improved=True,
        wall_s=10.0 * epoch,
        routing=routing,
    )


def _plan(dataset="my log"):
    spec = SimpleNamespace(dataset=dataset, arm=SimpleNamespace(name="wide/../x"))
    training = TrainSpec(batch_size=BATCH)
    job = SimpleNamespace(kind="train", id=JOB, backbone="mod:DNN", seed=7, training=training)
    planned = SimpleNamespace(job=job, job_spec=spec, state="interrupted", record=None)
    return SimpleNamespace(jobs=[planned])


def _history(folder, n_epochs):
    file = Runs(folder).path(JOB) / HISTORY
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(_validation(epoch).plain()) for epoch in range(1, n_epochs + 1)]
    file.write_text("".join(f"{line}\n" for line in lines))


def _train(board, epochs, *, stop_in=None):
    """The events of epochs, and of the beginning of one in which the worker is killed."""
    for epoch in [*epochs, *([stop_in] if stop_in else [])]:
        for rows in (50, ROWS):
            if epoch == stop_in and rows == ROWS:
                return
            at = EpochProgress(epoch=epoch, rows=rows, rows_total=ROWS, rows_per_s=1000.0 * epoch)
            board.event(ProgressEvent(job_id=JOB, progress=at))
        board.event(EpochEvent(job_id=JOB, validation=_validation(epoch)))


def _read(folder):
    """Tag -> pairs of step and value, by TensorBoard's reader."""
    from tensorboard.backend.event_processing import event_accumulator

    sizes = {event_accumulator.SCALARS: 0}
    found = event_accumulator.EventAccumulator(str(folder), size_guidance=sizes).Reload()
    return {
        tag: [(one.step, one.value) for one in found.Scalars(tag)]
        for tag in found.Tags()[event_accumulator.SCALARS]
    }


def _folder(runs):
    (folder,) = (runs / FOLDER).iterdir()
    return folder


@pytest.fixture
def speeds(monkeypatch):
    """Every report of the speed is written."""
    monkeypatch.setattr(board_module, "_SPEED_EVERY_S", 0.0)


@pytest.mark.usefixtures("installed", "speeds")
def test_the_reader_finds_what_the_events_said(tmp_path):
    routing = Routing(entropy=[1.5, 0.25], effective_experts=[4.0, 1.0], largest_load=[0.5, 0.75])
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1, 2])
        board.event(EpochEvent(job_id=JOB, validation=_validation(3, routing=routing, auc=None)))
        board.event(EpochEvent(job_id="f" * 16, validation=_validation(1)))

    assert _folder(tmp_path).name == f"my-log_mod-DNN_wide-..-x_7_{JOB}"
    assert len(list(_folder(tmp_path).iterdir())) == 1
    found = _read(_folder(tmp_path))
    assert found == {
        "train/loss": [(10, 1.0), (20, 0.5), (30, float(np.float32(1 / 3)))],
        "train/learning_rate": [(10, 0.25), (20, 0.25), (30, 0.25)],
        "valid/auc": [(10, 0.5), (20, 0.5)],
        "valid/logloss": [(10, 1.5), (20, 2.5), (30, 3.5)],
        "train/rows_per_s": [(5, 1000.0), (10, 1000.0), (15, 2000.0), (20, 2000.0)],
        "routing_entropy/bag_1": [(30, 1.5)],
        "routing_entropy/bag_2": [(30, 0.25)],
        "routing_load/bag_1": [(30, 0.5)],
        "routing_load/bag_2": [(30, 0.75)],
    }


@pytest.mark.usefixtures("installed")
def test_a_long_name_is_cut_where_it_names_a_folder(tmp_path):
    with TensorBoard(_plan(dataset="x" * 300), Runs(tmp_path)) as board:
        _train(board, [1])
    assert _folder(tmp_path).name == f"{'x' * 40}_mod-DNN_wide-..-x_7_{JOB}"


@pytest.mark.usefixtures("installed", "speeds")
@pytest.mark.parametrize("again", ["another process", "the same one"])
def test_a_run_that_goes_on_doubles_no_step(tmp_path, again):
    """Killed in epoch 4; the state is that after epoch 2, from which the next process goes on."""
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1, 2, 3], stop_in=4)
        if again == "the same one":
            _train(board, [3, 4])
    if again == "another process":
        _history(tmp_path, 3)
        with TensorBoard(_plan(), Runs(tmp_path)) as board:
            _train(board, [3, 4])

    assert len(list(_folder(tmp_path).iterdir())) == (1 if again == "the same one" else 2)
    found = _read(_folder(tmp_path))
    steps = [step for step, _ in found["train/loss"]]
    assert steps == [10, 20, 30, 40]
    assert [step for step, _ in found["train/rows_per_s"]] == [5, 10, 15, 20, 25, 30, 35, 40]


@pytest.mark.usefixtures("installed", "speeds")
def test_epochs_that_were_not_logged_are_taken_from_the_history(tmp_path):
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1])
    _history(tmp_path, 3)  # two more epochs, without --log
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [4])

    found = _read(_folder(tmp_path))
    assert found["valid/logloss"] == [(10, 1.5), (20, 2.5), (30, 3.5), (40, 4.5)]
    assert [step for step, _ in found["train/rows_per_s"]] == [35, 40]


@pytest.mark.usefixtures("installed", "speeds")
def test_training_from_epoch_1_drops_what_was_there(tmp_path):
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1, 2])
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1])

    assert [step for step, _ in _read(_folder(tmp_path))["train/loss"]] == [10]


@pytest.mark.usefixtures("installed")
def test_the_speed_is_written_now_and_then_and_at_the_end_of_an_epoch(tmp_path, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, time=time.time, now=100.0)
    monkeypatch.setattr(board_module, "time", clock)
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        for now, rows in ((100, 10), (109.9, 20), (110, 30), (119, 40), (119.5, ROWS)):
            clock.now = now
            at = EpochProgress(epoch=1, rows=rows, rows_total=ROWS, rows_per_s=1.0 * rows)
            board.event(ProgressEvent(job_id=JOB, progress=at))
        at = EpochProgress(epoch=2, rows=ROWS, rows_total=ROWS)
        board.event(ProgressEvent(job_id=JOB, progress=at))

    speeds = [(1, 10.0), (3, 30.0), (10, 101.0)]
    assert _read(_folder(tmp_path)) == {"train/rows_per_s": speeds}, "no speed, no point"


@pytest.mark.usefixtures("installed")
def test_validations_of_the_past_have_the_times_of_then(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing import event_accumulator

    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: 5000.0)
    monkeypatch.setattr(board_module, "time", clock)
    _history(tmp_path, 3)
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [4])
    found = event_accumulator.EventAccumulator(str(_folder(tmp_path))).Reload()
    # They ended 10 s after each other; the last of them counts as now.
    times = [one.wall_time for one in found.Scalars("train/loss")]
    assert times == [4980.0, 4990.0, 5000.0, 5000.0]


@pytest.mark.usefixtures("installed")
def test_jobs_that_are_done_have_their_points_once_and_others_than_training_have_none(
    tmp_path, plain_record
):
    job = Job(
        fingerprint="f" * 64,
        backbone="DNN",
        backbone_settings={},
        plugin="dense",
        plugin_settings={},
        training=TrainSpec(batch_size=BATCH),
        seed=7,
    )
    history = [_validation(epoch).plain() for epoch in (1, 2)]
    (planned,) = _plan().jobs
    done = {**vars(planned), "job": job, "state": "done"}
    done["record"] = plain_record(job, history=history)
    without = [{"job": None, "state": "needs data"}, {"job": SimpleNamespace(kind="cost", id="0")}]
    jobs = [done, *({**vars(planned), **one} for one in without)]
    plan = SimpleNamespace(jobs=[SimpleNamespace(**one) for one in jobs])
    for _ in range(2):
        with TensorBoard(plan, Runs(tmp_path)):
            (file,) = _folder(tmp_path).iterdir()
        assert _read(_folder(tmp_path))["valid/logloss"] == [(10, 1.5), (20, 2.5)]
    assert file.name.startswith("events.out.tfevents.")


@pytest.mark.usefixtures("installed")
def test_a_closed_job_has_its_points_and_takes_no_more(tmp_path):
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1])
        for _ in range(2):
            board.close(JOB)
        _train(board, [2])

    assert board.fault is None
    assert [step for step, _ in _read(_folder(tmp_path))["train/loss"]] == [10]


@pytest.mark.usefixtures("installed")
def test_a_new_file_is_read_after_all_others_whatever_the_clock_says(tmp_path):
    late = tmp_path / "events.out.tfevents.9000000000.host.1.0"
    late.touch()
    (tmp_path / "events.out.tfevents.x.host.1.0").touch()
    found = board_module._new_file(tmp_path)
    assert found.name.split(".")[3] == "9000000001"
    assert sorted([late.name, found.name]) == [late.name, found.name]


_KILLED = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_tensorboard as t
from pathlib import Path
board = t.TensorBoard(t._plan(), t.Runs(Path(sys.argv[1])))
t._train(board, [1, 2])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("installed", "speeds")
def test_a_killed_process_leaves_a_file_that_is_read(tmp_path):
    killed = subprocess.run([sys.executable, "-c", _KILLED, tmp_path], check=False)

    assert killed.returncode == -signal.SIGKILL
    assert [step for step, _ in _read(_folder(tmp_path))["train/loss"]] == [10, 20]
    # Also where the machine went down in the middle of a record.
    (file,) = _folder(tmp_path).iterdir()
    os.truncate(file, file.stat().st_size - 5)
    assert [step for step, _ in _read(_folder(tmp_path))["train/loss"]] == [10]
    _history(tmp_path, 2)
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [3])
    assert [step for step, _ in _read(_folder(tmp_path))["train/loss"]] == [10, 20, 30]


@pytest.mark.usefixtures("installed")
def test_a_fault_of_the_disk_ends_the_writing_and_not_the_run(tmp_path, monkeypatch):
    taken = tmp_path / "taken"
    taken.touch()
    monkeypatch.setattr(board_module, "_new_file", lambda _folder: taken)
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1, 2])
        taken.unlink()
        _train(board, [3])

    assert board.fault.startswith("no more is written for TensorBoard: ")
    assert "a file is in the way" in board.fault
    assert not taken.exists(), "nothing is written after the first fault"


@pytest.mark.usefixtures("installed")
def test_the_folder_may_be_deleted_while_a_run_writes(tmp_path):
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        shutil.rmtree(tmp_path / FOLDER)
        _train(board, [1])

    assert board.fault is None
    assert [step for step, _ in _read(_folder(tmp_path))["train/loss"]] == [10]


@pytest.mark.usefixtures("installed")
def test_files_that_are_deleted_in_the_middle_are_written_again(tmp_path):
    with TensorBoard(_plan(), Runs(tmp_path)) as board:
        _train(board, [1, 2])
        shutil.rmtree(tmp_path / FOLDER)
        _train(board, [3, 4])

    assert board.fault is None
    assert [step for step, _ in _read(_folder(tmp_path))["train/loss"]] == [10, 20, 30, 40]


@pytest.mark.usefixtures("installed")
def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(tmp_path):
    (tmp_path / FOLDER).touch()

    with pytest.raises(EnvironmentFault, match=FOLDER):
        TensorBoard(_plan(), Runs(tmp_path))


def test_without_tensorboard_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert exit_code(["prepare", "synthetic", "--rows", "1000"]) == 0
    capsys.readouterr()

    rows = ["--set", "dataset.synthetic.rows=1000"]
    assert exit_code(["run", "quick", *rows, "--log", "tensorboard", "--device", "cpu"]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: TensorBoard is not installed here: ")
    assert "pip install 'prime-bench[tensorboard]'" in err
    assert not (tmp_path / "runs").exists()


def _comparable(record):
    """A record without times: what else differs would be another result."""
    plain = record.plain()
    plain["history"] = [{**line, "wall_s": 0} for line in plain["history"]]
    for key in ("wall_s", "digests", "environment"):
        del plain[key]
    return plain


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_the_results_are_those_without_it_to_the_last_bit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    api.prepare("synthetic", settings={"rows": 1_000})
    records = []
    for log_to in (None, "tensorboard"):
        summary = api.run(
            "quick", only=ONLY, changes=CHANGES, device="cpu", threads=1, log_to=log_to
        )
        assert (summary.ok, summary.log_fault) == (True, None)
        plan = api.plan("quick", only=ONLY, changes=CHANGES, device="cpu")
        records.append(plan.jobs[0].record)
        if log_to is None:
            shutil.move("runs", "before")

    assert records[0].weights == records[1].weights
    assert _comparable(records[0]) == _comparable(records[1])
    live = _read(_folder(Path("runs")))
    history = records[1].history
    assert [step for step, _ in live["valid/auc"]] == [one.step for one in history]
    for tag, wanted in (
        ("valid/auc", [one.valid_auc for one in history]),
        ("valid/logloss", [one.valid_logloss for one in history]),
        ("train/loss", [one.train_loss for one in history]),
        ("routing_entropy/bag_1", [one.routing.entropy[0] for one in history]),
        ("routing_load/bag_1", [one.routing.largest_load[0] for one in history]),
    ):
        assert [value for _, value in live[tag]] == [float(np.float32(one)) for one in wanted], tag
    assert len(live["train/rows_per_s"]) >= len(history)

    # No other command takes the folder for a job; what has a record gets its file from that.
    assert exit_code(["verify", records[1].job_id]) == 0
    assert exit_code(["status"]) == 0
    shutil.move("runs/tensorboard", "live")
    rows = [f"--set={key}={value}" for key, value in CHANGES.items()]
    only = [f"--only={key}={value}" for key, value in ONLY.items()]
    capsys.readouterr()
    run = ["run", "quick", *rows, *only, "--device", "cpu", "--log", "tensorboard"]
    assert exit_code(run) == 0
    assert capsys.readouterr().out == "quick: 0 jobs done, 1 had a record, 0 failed\n"
    again = _read(_folder(Path("runs")))
    assert again == {tag: live[tag] for tag in live if tag != "train/rows_per_s"}
