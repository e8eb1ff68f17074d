"""The state that a run goes on from: whole, of its moment, and refused where it does not fit."""

import contextlib
import errno
import hashlib
import io
import json
import pickle
import threading

import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.recipe.events import EpochProgress, FailedEvent, write_event
from prime_bench.training import checkpoint
from prime_bench.training.checkpoint import (
    JobFolder,
    StateFile,
    StateUnfit,
    load_state,
    one_line,
    save_state,
)
from prime_bench.training.device import is_out_of_memory
from prime_bench.training.loop import Training, TrainingSplits
from prime_bench.training.optimizer import Penalty


class Wordless(RuntimeError):
    """An error of a plug-in, whose message cannot be made."""

    def __str__(self):
        raise KeyError("text")


HERE = {"device": "i486", "torch": "1.0"}


@pytest.fixture
def state():
    return {
        "model": {"w": torch.randn(3, 2), "n": torch.tensor(7), "half": torch.ones(2).double()},
        "best": None,
        "adam": {
            "state": {0: {"step": torch.tensor(5.0)}},
            "groups": [{"lr": 1e-3, "fused": True}],
        },
        "history": [{"epoch": 1, "auc": 0.1 + 0.2, "loss": None}],
    }


def assert_same(one, two):
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key, value in one.items():
            assert_same(value, two[key])
    elif isinstance(one, list):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            assert_same(left, right)
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (two.dtype, two.shape)
        assert torch.equal(one, two)
    else:
        assert one == two


@pytest.mark.parametrize("background", [False, True])
def test_what_is_written_comes_back(tmp_path, state, background):
    path = tmp_path / "state"
    assert load_state(path, conditions=HERE) is None
    with StateFile(path, conditions=HERE, background=background) as file:
        file.write({"model": {}})
        file.write(state)
    assert_same(load_state(path, conditions=HERE), state)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_other_conditions_are_named(tmp_path, state):
    save_state(tmp_path / "state", state, conditions=HERE)
    with pytest.raises(StateUnfit) as unfit:
        load_state(tmp_path / "state", conditions={"device": "i486", "torch": "2.0", "new": "1"})
    assert str(unfit.value) == "new was None, is 1; torch was 1.0, is 2.0"


@pytest.mark.parametrize("at", [0, 20, 40, 90, 500, 1500, -1])
def test_every_changed_byte_is_noticed(tmp_path, state, at):
    path = tmp_path / "state"
    save_state(path, state, conditions=HERE)
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    with pytest.raises(StateUnfit, match="state is damaged"):
        load_state(path, conditions=HERE)


def test_a_state_of_another_format(tmp_path, state, monkeypatch):
    monkeypatch.setattr(checkpoint, "_FORMAT", 0)
    save_state(tmp_path / "state", state, conditions=HERE)
    monkeypatch.undo()
    with pytest.raises(StateUnfit, match="has the format 0, this version writes 2"):
        load_state(tmp_path / "state", conditions=HERE)


KEYS = {
    "best",
    "history",
    "model",
    "optimizer.counts",
    "optimizer.first",
    "optimizer.learning_rate",
    "optimizer.second",
    "optimizer.steps",
    "optimizer.tables.first",
    "optimizer.tables.second",
    "optimizer.tables.squares",
    "row_order",
    "rule.best_auc",
    "rule.learning_rate",
    "rule.misses",
    "streams.cpu",
    "streams.plugin",
    "wall_s",
}


def test_states_with_other_keys_have_another_format(schema, make_split, make_job):
    """A state of an older version is refused by its format, and not by a KeyError."""
    job, split = make_job().resolve(), make_split(20)
    with contextlib.closing(
        Training(
            build_arm(job, schema).arm,
            TrainingSplits(train=split, valid=split),
            job.training,
            penalty=Penalty(embedding=0.0, network=0.0),
            seed=1,
            device=torch.device("cpu"),
            on_progress=lambda _: None,
        )
    ) as training:
        state = training.state_dict()
    found = {key for key in state if key not in ("optimizer", "rule", "streams")}
    found |= {f"rule.{key}" for key in state["rule"]} | {
        f"streams.{key}" for key in state["streams"]
    }
    optimizer = dict(state["optimizer"])
    found |= {f"optimizer.tables.{key}" for key in optimizer.pop("tables")[0]}
    found |= {f"optimizer.{key}" for key in optimizer}
    assert (checkpoint._FORMAT, found) == (2, KEYS)


def signed(content):
    digest = hashlib.sha256(content).hexdigest().encode()
    return b"prime-bench state " + digest + b"\n" + content


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\x80", b"text", b"PK\x05\x06" + bytes(18), pickle.dumps(None)),
        *map(saved, (None, [], 3, {}, {"format": 2}, {"format": 2, "conditions": {}, "state": 1})),
        saved({"format": 2, "conditions": None, "state": {}}),
    ],
)
def test_a_digest_alone_makes_no_state(tmp_path, content):
    (tmp_path / "state").write_bytes(signed(content))

    with pytest.raises(StateUnfit, match=r"^state cannot be read: [^\n]+$"):
        load_state(tmp_path / "state", conditions=HERE)


def test_a_huge_file_that_is_not_ours_is_not_read(tmp_path):
    with (tmp_path / "state").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(StateUnfit, match="state is damaged"):
        load_state(tmp_path / "state", conditions=HERE)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.EMFILE, "Too many", "/x"),
            "/x: the process has too many files open; allow more of them (`ulimit -n 4096`), or "
            "run fewer jobs at once (--slots)",
        ),
        (
            OSError(errno.ENOSPC, "No space", "/x"),
            "/x: the disk is full; free some space, or name another folder (--data-dir, "
            "--runs-dir, --output)",
        ),
        (DataError("x.npy: not as it was\nin line 1"), "x.npy: not as it was"),
        (ValueError("odd\nand more"), "ValueError: odd"),
        (ValueError("\udc80 \x1b"), "ValueError: \\udc80 \x1b"),
        (Wordless(), "Wordless: (its message cannot be made: KeyError)"),
    ],
)
def test_a_job_fails_with_the_words_of_the_command_line(error, line):
    assert one_line(error) == line


@pytest.mark.parametrize("error", [ValueError("\udc80"), Wordless()], ids=type)
def test_an_error_without_a_message_for_files_is_written_all_the_same(tmp_path, error):
    folder = JobFolder(tmp_path)
    folder.fail(error)
    failure = json.loads((tmp_path / "failure.json").read_text())
    assert failure["error"] == one_line(error)
    assert type(error).__name__ in (tmp_path / "log.txt").read_text()
    assert is_out_of_memory(error) is False
    write_event(FailedEvent(job_id="j", error=one_line(error))).encode()


def test_nothing_in_it_is_run(tmp_path):
    """Whoever can write the file can make its digest, too, but no code in it is run."""

    class Evil:
        def __reduce__(self):
            return print, ("run",)

    save_state(tmp_path / "state", {"model": Evil()}, conditions=HERE)
    with pytest.raises(StateUnfit, match="cannot be read"):
        load_state(tmp_path / "state", conditions=HERE)


def test_a_state_in_the_background_is_that_of_the_moment(tmp_path, state, monkeypatch):
    """The run goes on, and changes tensors and lists, before the first byte is written."""
    save, changed = checkpoint.save_state, threading.Event()

    def late(*arguments, **named):
        assert changed.wait(timeout=20)
        save(*arguments, **named)

    monkeypatch.setattr(checkpoint, "save_state", late)
    weight, history = state["model"]["w"], state["history"]
    kept = {"w": weight.clone(), "tables": [{"first": weight.clone()}], "history": [*history]}
    with StateFile(tmp_path / "state", conditions=HERE, background=True) as file:
        file.write({"w": weight, "tables": [{"first": weight}], "history": history})
        weight.fill_(9.0)
        history.append({"epoch": 2})
        changed.set()
    assert_same(load_state(tmp_path / "state", conditions=HERE), kept)


def test_a_full_disk_reaches_the_run(tmp_path, state):
    (tmp_path / "file").write_text("")
    file = StateFile(tmp_path / "file" / "state", conditions=HERE, background=False)
    with pytest.raises(EnvironmentFault, match="a file"):
        file.write(state)


def test_a_full_disk_reaches_the_run_from_the_background_too(tmp_path, state):
    (tmp_path / "file").write_text("")
    file = StateFile(tmp_path / "file" / "state", conditions=HERE, background=True)
    file.write(state)
    with pytest.raises(EnvironmentFault, match="a file"):
        file.write(state)
    file.wait()  # said once


def test_progress_is_written_at_most_once_in_five_seconds(tmp_path, monkeypatch):
    now, folder = [100.0], JobFolder(tmp_path)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    written = []
    for rows, after_s in ((1, 0.0), (2, 4.9), (3, 5.0), (4, 9.9), (5, 10.0)):
        now[0] = 100.0 + after_s
        folder.note_progress(EpochProgress(epoch=1, rows=rows, rows_total=9, rows_per_s=1.0))
        written.append(json.loads((tmp_path / "progress.json").read_text())["rows"])
    assert written == [1, 1, 3, 3, 5]


def test_of_an_earlier_run_the_log_the_saved_state_and_what_is_not_ours_stay(tmp_path):
    ours = {
        *("config.json", "environment.json", "history.jsonl", "progress.json", "test.json"),
        *("checkpoint.safetensors", "failure.json", "predictions.npz", ".part-x"),
    }
    kept = {"log.txt", "resume.state", "notes.txt"}
    for name in ours | kept:
        (tmp_path / name).touch()
    JobFolder(tmp_path).empty()
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_state_waits_for_the_one_before_it(tmp_path, monkeypatch):
    """Else the older one could be the last that is written."""
    save, order, first = checkpoint.save_state, [], threading.Event()

    def slow(path, state, **named):
        if state["epoch"] == 1:
            assert first.wait(timeout=20)
        order.append(state["epoch"])
        save(path, state, **named)

    monkeypatch.setattr(checkpoint, "save_state", slow)
    with StateFile(tmp_path / "state", conditions=HERE, background=True) as file:
        file.write({"epoch": 1})
        threading.Timer(0.05, first.set).start()
        file.write({"epoch": 2})
    assert order == [1, 2]
    assert load_state(tmp_path / "state", conditions=HERE) == {"epoch": 2}


def test_a_long_traceback_keeps_its_beginning_and_its_end():
    lines = checkpoint._trace(ValueError("\n".join(map(str, range(5000))))).splitlines()
    assert len(lines) == 2 * 500 + 1
    assert lines[500] == "[... 4,000 lines]"
    assert (lines[0], lines[-1]) == ("ValueError: 0", "4999")
