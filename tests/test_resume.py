"""A training run that was stopped continues from its last validation, with the same bits."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from prime_bench import worker
from prime_bench.recipe.events import InterruptedEvent, ResumedEvent, read_event
from prime_bench.store.runs import STATE, Runs
from prime_bench.training import job as training_job
from prime_bench.training import loop
from prime_bench.training.checkpoint import StateFile, StateUnfit, load_state, save_state
from prime_bench.training.job import JobInterrupted
from prime_bench.worker import run_job

STEPS = 10  # of an epoch
LEFT = {"config.json", "environment.json", "history.jsonl", "log.txt", STATE}
COMMAND = [sys.executable, "-m", "prime_bench.worker"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


class Killed(BaseException):
    """What a test stops a run with: nothing in the package catches it."""


@pytest.fixture
def kill_at_step(monkeypatch):
    """Let a run die in its n-th step, counted from now; a dead run says nothing any more."""

    def kill(n):
        step, left = loop.Optimizer.step, iter(range(n - 1, -1, -1))

        def dying(self, batch):
            if next(left) == 0:
                raise Killed
            return step(self, batch)

        monkeypatch.setattr(loop.Optimizer, "step", dying)

    return kill


@pytest.fixture
def make_elsewhere(make_request, tmp_path):
    """Requests in a folder of runs of their own, of 4 epochs by default."""

    def make(name, *arguments, patience=9, **named):
        request = make_request(*arguments, patience=patience, **named)
        return request.model_copy(update={"runs": str(tmp_path / name)})

    return make


@pytest.fixture(scope="module")
def wholes():
    """What is known of runs that nothing stopped."""
    return {}


@pytest.fixture
def whole(make_elsewhere, wholes):
    """What a run leaves that nothing stops; each is done once."""

    def whole(*arguments, threads=1, **named):
        key = (*arguments, threads, *sorted(named.items()))
        if key not in wholes:
            request = make_elsewhere("whole", *arguments, **named)
            request = request.model_copy(update={"threads": threads})
            run_job(request, lambda _: None)
            wholes[key] = results_of(request)
        return wholes[key]

    return whole


def folder_of(request):
    return Path(request.runs) / request.job.id


SIDE_FILES = [
    "checkpoint.safetensors",
    "config.json",
    "environment.json",
    "history.jsonl",
    "test.json",
]


def results_of(request):
    """All that a finished job left, without the times it took and when it began."""
    folder = folder_of(request)
    record = json.loads((folder / "record.json").read_text())
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert lines == record["history"]
    for line in record["history"]:
        del line["wall_s"]
    # Digests are over the times as well.
    assert sorted(record["digests"].pop("files")) == SIDE_FILES
    del record["digests"], record["wall_s"], record["environment"]["started"]
    files = sorted(path.name for path in folder.iterdir())
    return record, (folder / "checkpoint.safetensors").read_bytes(), files


def names(events):
    return [event.event for event in events if event.event != "progress"]


# The first step of each epoch, and the middle and the end of epochs.
@pytest.mark.parametrize(
    ("plugin", "step"),
    [
        *(("prime", step) for step in (1, 6, 11, 20, 21, 31, 38, 40)),
        *((plugin, step) for plugin in ("dense", "permuted_routing") for step in (11, 26)),
    ],
)
def test_killed_anywhere_it_ends_with_the_same_bits(
    plugin, step, make_elsewhere, kill_at_step, monkeypatch, whole
):
    wanted = whole(plugin, batch_norm=True)
    request, events = make_elsewhere("killed", plugin, batch_norm=True), []
    kill_at_step(step)
    with pytest.raises(Killed):
        run_job(request, lambda _: None)
    monkeypatch.undo()
    # What a process draws before it continues has no effect.
    torch.rand(17)
    run_job(request, events.append)

    done = (step - 1) // STEPS
    first = [ResumedEvent(job_id=request.job.id, epoch=done)] if done else []
    assert events[: len(first)] == first
    assert names(events) == ["resumed"] * bool(done) + ["epoch"] * (4 - done)
    assert results_of(request) == wanted


def test_killed_while_states_are_written_in_the_background(
    make_elsewhere, kill_at_step, monkeypatch, whole
):
    """As on a GPU, whose epochs are short."""
    wanted = whole()

    def in_background(path, *, conditions, background):  # noqa: ARG001
        return StateFile(path, conditions=conditions, background=True)

    monkeypatch.setattr(training_job, "StateFile", in_background)
    request, events = make_elsewhere("killed"), []
    kill_at_step(2 * STEPS + 5)
    with pytest.raises(Killed):
        run_job(request, lambda _: None)
    monkeypatch.undo()
    run_job(request, events.append)
    assert events[0] == ResumedEvent(job_id=request.job.id, epoch=2)
    assert results_of(request) == wanted


def test_killed_in_every_epoch(make_elsewhere, kill_at_step, monkeypatch, whole):
    wanted = whole()
    request = make_elsewhere("killed")
    for _ in range(3):
        kill_at_step(STEPS + 3)  # an epoch, and a part of the next
        with pytest.raises(Killed):
            run_job(request, lambda _: None)
        monkeypatch.undo()
    run_job(request, lambda _: None)
    assert results_of(request) == wanted


def test_killed_between_training_and_record(make_elsewhere, monkeypatch, whole):
    wanted = whole()
    request, events = make_elsewhere("killed"), []

    def dying(self, record):  # noqa: ARG001
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "put", dying)
        with pytest.raises(Killed):
            run_job(request, lambda _: None)
    run_job(request, events.append)
    assert names(events) == ["resumed"]
    assert results_of(request) == wanted


def test_the_state_that_a_kill_right_after_the_record_left_is_swept(make_elsewhere, monkeypatch):
    request = make_elsewhere("killed", max_epochs=1)
    put = Runs.put

    def put_and_die(self, record):
        put(self, record)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "put", put_and_die)
        with pytest.raises(Killed):
            run_job(request, lambda _: None)
    assert (folder_of(request) / STATE).exists()
    runs = Runs(Path(request.runs))
    runs.sweep([request.job.id])
    assert runs.done(request.job.id)
    assert not (folder_of(request) / STATE).exists()


@pytest.mark.parametrize("epochs", [1, 2])
def test_best_weights_misses_and_rate_are_remembered(
    epochs, make_elsewhere, kill_at_step, monkeypatch
):
    """No epoch is that much better than the first, so the third ends the run."""
    spec = {"learning_rate": 0.3, "max_epochs": 9, "min_delta": 0.2, "patience": 2}
    whole = make_elsewhere("whole", **spec)
    record = run_job(whole, lambda _: None)
    assert [v.improved for v in record.history] == [True, False, False]
    assert record.history[2].learning_rate == pytest.approx(0.03)
    request = make_elsewhere("killed", **spec)
    kill_at_step(epochs * STEPS + 4)
    with pytest.raises(Killed):
        run_job(request, lambda _: None)
    monkeypatch.undo()
    run_job(request, lambda _: None)
    assert results_of(request) == results_of(whole)


def test_a_run_of_nan_is_gone_on_with_as_well(
    make_elsewhere, kill_at_step, monkeypatch, tmp_path, write_table
):
    def spoil(name, numerics, labels):  # noqa: ARG001
        if name == "train":
            numerics[5] = float("nan")

    broken = write_table(tmp_path / "nan-1", spoil=spoil)
    whole, request = (
        make_elsewhere(name, table=broken, patience=2) for name in ("whole", "killed")
    )
    run_job(whole, lambda _: None)
    kill_at_step(STEPS + 2)
    with pytest.raises(Killed):
        run_job(request, lambda _: None)
    monkeypatch.undo()
    run_job(request, lambda _: None)
    # NaN differs from itself in bits and meaning; the record and the files do not.
    assert results_of(request)[0] == results_of(whole)[0]
    assert results_of(request)[0]["result"]["degenerate"].startswith("predictions were not finite")


class TestUnfit:
    """States from which a run must not continue: it starts from epoch 1 and reports why."""

    @pytest.fixture
    def stopped(self, make_elsewhere):
        """A request whose run was stopped after its second epoch."""
        request, asked = make_elsewhere("stopped"), iter([False, False, True])
        with pytest.raises(JobInterrupted):
            run_job(request, lambda _: None, interrupted=lambda: next(asked))
        return request

    def assert_restarted(self, request, whole, *, why):
        events = []
        run_job(request, events.append)
        assert names(events) == ["restarted"] + ["epoch"] * 4
        assert why in events[0].reason
        log = (folder_of(request) / "log.txt").read_text()
        assert f"from epoch 1 and not from the saved state: {events[0].reason}" in log
        assert results_of(request) == whole(threads=request.threads)

    def test_it_is_there_and_fits(self, stopped):
        folder, events = folder_of(stopped), []
        assert {path.name for path in folder.iterdir()} - {"progress.json"} == LEFT
        assert len((folder / "history.jsonl").read_text().splitlines()) == 2
        run_job(stopped, events.append)
        assert names(events) == ["resumed", "epoch", "epoch"]
        assert "stopped as asked" in (folder / "log.txt").read_text()

    @pytest.mark.parametrize("keep", [0, 10, 500, -1])
    def test_cut_off(self, stopped, whole, keep):
        file = folder_of(stopped) / STATE
        file.write_bytes(file.read_bytes()[:keep])
        self.assert_restarted(stopped, whole, why="resume.state is damaged")

    def test_one_flipped_bit(self, stopped, whole):
        file = folder_of(stopped) / STATE
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        self.assert_restarted(stopped, whole, why="resume.state is damaged")

    @pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
    def test_no_file(self, stopped, whole, kind):
        file = folder_of(stopped) / STATE
        file.unlink()
        if kind == "folder":
            (file / "below").mkdir(parents=True)
        elif kind == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to("/dev/zero")
        names = {"folder": "a folder", "pipe": "a named pipe", "device": "a device"}
        why = f"resume.state cannot be read: {names[kind]}, not a file"
        self.assert_restarted(stopped, whole, why=why)

    @pytest.mark.parametrize("history", [None, 3, [None], [{"epoch": 1}], "missing"])
    def test_a_history_that_is_none(self, stopped, whole, history):
        file = folder_of(stopped) / STATE
        conditions = self.conditions_in(file)
        state = load_state(file, conditions=conditions)
        state["history"] = history
        if history == "missing":
            del state["history"]
        save_state(file, state, conditions=conditions)
        self.assert_restarted(stopped, whole, why="its history cannot be read")

    def test_another_number_of_threads(self, stopped, whole):
        other = stopped.model_copy(update={"threads": 2})
        self.assert_restarted(other, whole, why="number of threads was 1, is 2")

    def test_another_version(self, stopped, monkeypatch):
        found = worker.environment

        def newer(device):
            environment = found(device)
            versions = environment.versions | {"torch": "99.0"}
            return environment.model_copy(update={"versions": versions, "device": "i486"})

        with monkeypatch.context() as patch:
            patch.setattr(worker, "environment", newer)
            events = []
            run_job(stopped, events.append)
        assert names(events) == ["restarted"] + ["epoch"] * 4
        assert f"torch was {torch.__version__}, is 99.0" in events[0].reason
        assert "device was " in events[0].reason

    def test_a_state_of_other_weights(self, stopped, whole):
        """Whole, and under the same conditions, but not what this version makes."""
        file = folder_of(stopped) / STATE
        conditions = self.conditions_in(file)
        state = load_state(file, conditions=conditions)
        del state["model"]["backbone.embedding.table"]
        save_state(file, state, conditions=conditions)
        events = []
        run_job(stopped, events.append)
        assert names(events) == ["resumed", "restarted"] + ["epoch"] * 4
        assert results_of(stopped) == whole()

    def conditions_in(self, file):
        with pytest.raises(StateUnfit) as unfit:
            load_state(file, conditions={})
        parts = str(unfit.value).removesuffix(", is None").split(", is None; ")
        return dict(part.split(" was ", 1) for part in parts)


class TestProcess:
    def start(self, request):
        child = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        child.stdin.write(json.dumps(request.plain()) + "\n")
        child.stdin.flush()
        return child

    def test_killed_twice_by_the_system(self, make_elsewhere):
        """Each process reads the state of another one, which could tidy up nothing."""
        spec = {"max_epochs": 30, "patience": 30}
        whole = make_elsewhere("whole", **spec)
        run_job(whole, lambda _: None)
        request = make_elsewhere("killed", **spec)
        for n_epochs in (3, 9):
            with self.start(request) as child:
                while n_epochs:
                    n_epochs -= json.loads(child.stdout.readline())["event"] == "epoch"
                child.kill()
        assert not (folder_of(request) / "record.json").exists()
        events = []
        run_job(request, events.append)
        assert events[0].event == "resumed"
        assert events[0].epoch >= 10
        assert results_of(request) == results_of(whole)

    def test_asked_to_stop_it_stops_after_the_epoch(self, make_elsewhere):
        request = make_elsewhere("asked", max_epochs=100_000, patience=100_000)
        with self.start(request) as child:
            while json.loads(child.stdout.readline())["event"] != "epoch":
                pass
            child.send_signal(signal.SIGTERM)
            events = [read_event(line) for line in child.stdout]
            assert child.wait(timeout=20) == 0
        assert events[-1] == InterruptedEvent(job_id=request.job.id)
        epochs = 1 + names(events).count("epoch")
        history = (folder_of(request) / "history.jsonl").read_text().splitlines()
        assert len(history) == epochs
        left = {path.name for path in folder_of(request).iterdir()}
        assert left - {"progress.json"} == LEFT
        assert not Runs(Path(request.runs)).claimed(request.job.id)

    def test_asked_to_stop_without_a_job_it_ends(self):
        with subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as child:
            child.stdin.write("no request\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["event"] == "failed"
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=20) == 0

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
    def test_without_its_device_it_says_so_once_and_ends(self, make_elsewhere):
        request = make_elsewhere("cuda").model_copy(update={"device": "cuda"})
        line = json.dumps(request.plain()) + "\n"
        done = subprocess.run(
            COMMAND,
            input=2 * line,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=120,
            check=False,
        )
        (event,) = (json.loads(line) for line in done.stdout.splitlines())
        assert (event["event"], event["exit_code"], done.returncode) == ("fault", 4, 4)
        assert event["error"] == done.stderr.strip()
        assert "device cuda is not there" in event["error"]
        assert event["hint"]
        assert not folder_of(request).exists()
