"""A slot of a node, without a cluster: its checks, its files, and what killed slots leave."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from prime_bench.base.errors import EnvironmentFault
from prime_bench.recipe.events import RestartedEvent, StartedEvent, read_event
from prime_bench.schedule import node
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.mirror import Copy, Piece
from prime_bench.schedule.node import NodeSlot, identity

ANSWER = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    faults = [[f"{name}: {os.environ.get('PYTHONPATH')}", ""] for name in asked["plugins"]]
    key = os.environ["PRIME_BENCH_EVENT_KEY"]
    event = {"event": "checked", "faults": faults, "torch": str(asked["tables"]), "device": "cpu"}
    print(key, json.dumps(event), flush=True)
"""
ANSWERING = (sys.executable, "-c", ANSWER)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The temporary folder of the node."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def slot(place):  # noqa: ARG001  # its folders are there
    made = []

    def slot(command, **variables):
        made.append(NodeSlot(variables, command=command))
        return made[-1]

    yield slot
    for one in made:
        one.close()


def _check(slot, *, sources=None, free_bytes=0, **keys):
    check = {"tables": {}, "backbones": {}, "plugins": {}, "device": "cpu", **keys}
    return slot.check(check, sources or {}, free_bytes=free_bytes)


def _follow(slot, copy):
    """All events of the running job, and its outcome."""
    events = []
    for _ in range(100):
        news = slot.look()
        events += [read_event(line) for line in news.events]
        for piece in news.pieces:
            copy.add(piece)
        for name in news.gone:
            copy.remove(name)
        if news.outcome is not None:
            return events, news.outcome
    raise AssertionError("no end")


def _worked(slot, worker, request, folder):
    """Do a job with a worker that plays a part."""
    done = slot(worker)
    done._folder = done._own_folder(free_bytes=0)
    done.begin(request.plain(), present=("failure.json",), timeout_s=None)
    return _follow(done, Copy(folder))


def test_the_identity_is_that_of_the_sources():
    found = NodeSlot({}).hello()

    assert {key: found[key] for key in identity()} == identity()
    assert found["host"]


def test_tables_are_looked_for_where_the_node_has_them(slot, monkeypatch):
    monkeypatch.setenv("PRIME_BENCH_DATA", "/mine")

    answer = _check(slot(ANSWERING), tables={"/yours/synthetic-1": "f"})

    torch = "{'/mine/synthetic-1': 'f'}"
    assert answer == {"faults": [], "torch": torch, "device": "cpu", "gpu_bytes": None}


def test_sources_of_the_caller_come_first_on_the_workers_path(slot, place):
    sources = {"own/gate.py": b"x = 1"}

    answer = _check(slot(ANSWERING), sources=sources, plugins={"own.gate:Gate": "f"})

    ((message, _),) = answer["faults"]
    first = Path(message.partition(": ")[2].split(os.pathsep)[0])
    assert first.is_relative_to(place)
    assert (first / "own" / "gate.py").read_bytes() == b"x = 1"


def test_too_little_space_is_a_fault_with_the_folder(slot, place):
    ((message, hint),) = _check(slot(ANSWERING), free_bytes=1 << 60)["faults"]

    assert message.startswith(f"{place}: ")
    assert "MB are free, a job may need" in message
    assert "TMPDIR" in hint


def test_a_folder_that_cannot_be_written_is_a_fault(slot, place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "nowhere"))
    (place / "nowhere").write_text("a file")

    ((message, _),) = _check(slot(ANSWERING))["faults"]

    assert str(place / "nowhere") in message


def test_a_worker_that_cannot_start_is_a_fault_with_its_last_words(slot):
    dying = (sys.executable, "-c", "raise SystemExit('no such library')")

    ((message, _),) = _check(slot(dying))["faults"]

    assert message == "the worker ended with exit code 1: no such library"


@pytest.mark.parametrize("part", ["done", "failed", "killed", "fault", "empty"])
def test_a_jobs_files_and_end_come_to_the_caller(slot, worker, request_of, tmp_path, part):
    request = request_of(7)
    mine = tmp_path / "mine"
    Copy(mine).remove("x")
    mine.mkdir()
    (mine / "failure.json").write_text("of an earlier try")

    events, outcome = _worked(slot, worker(**{"7": part}), request, mine)

    assert not isinstance(events[0] if events else None, StartedEvent)
    assert outcome.state == {"done": "done", "empty": "done"}.get(part, "failed")
    assert outcome.machine == (part == "fault")
    names = {path.name for path in mine.iterdir()}
    assert ("record.json" in names) == (part == "done")
    if outcome.state == "failed":
        assert json.loads((mine / "failure.json").read_text())["error"] == outcome.why
    else:
        assert "failure.json" not in names


def test_a_closed_slot_leaves_nothing(slot, place):
    closed = slot(ANSWERING)
    _check(closed)
    assert list(place.iterdir())
    closed.close()

    assert list(place.iterdir()) == []


def test_a_new_slot_deletes_the_folder_of_a_killed_one(slot, place):
    (place / "prime-bench-0").mkdir()
    (place / "prime-bench-0.lock").touch()
    _check(slot(ANSWERING))

    assert not (place / "prime-bench-0").exists()


def test_a_stopped_job_ends_at_its_checkpoint(slot, worker, request_of, tmp_path):
    request = request_of(7)
    stopped = slot(worker(**{"7": "gentle"}))
    stopped._folder = stopped._own_folder(free_bytes=0)
    stopped.begin(request.plain(), present=(), timeout_s=None)
    while not stopped.look().events:
        time.sleep(0.01)
    stopped.stop()
    _, outcome = _follow(stopped, Copy(tmp_path / "mine"))

    assert outcome.state == "interrupted"
    assert node.DATA_VARIABLE == "PRIME_BENCH_DATA"


class _Child:
    """Stands in for a worker: ends a job at once, with memory or without."""

    alive = True

    def __init__(self, *, out_of_memory=False):
        self.given, self._out_of_memory = None, out_of_memory

    def do(self, request, *, on_event, timeout_s):
        self.given = request, timeout_s
        on_event(RestartedEvent(job_id=request.job.id, reason="no reason"))
        state = "failed" if self._out_of_memory else "done"
        return Outcome(request=request, state=state, why="CUDA", out_of_memory=self._out_of_memory)

    def kill(self):
        pass


def test_an_error_of_our_own_is_the_end_of_the_job_and_no_fault_of_the_machine(
    slot, request_of, tmp_path, monkeypatch
):
    """The caller gives a job to another node after a fault of the machine."""
    begun, child = slot(ANSWERING), _Child()
    monkeypatch.setattr(child, "do", lambda *_, **__: {}["lost"])
    begun._folder, begun._child = begun._own_folder(free_bytes=0), child
    begun.begin(request_of(7).plain(), present=(), timeout_s=None)
    _, outcome = _follow(begun, Copy(tmp_path / "mine"))

    assert (outcome.state, outcome.why) == ("failed", "KeyError: 'lost'")
    assert not outcome.machine


@pytest.mark.parametrize("out_of_memory", [False, True])
def test_a_job_gets_the_nodes_folders_and_the_callers_limit(
    slot, request_of, tmp_path, monkeypatch, out_of_memory
):
    monkeypatch.setenv("PRIME_BENCH_DATA", "/mine")
    asked = request_of(7).model_copy(update={"table": "/yours/t-1", "threads": 3})
    begun, child = slot(ANSWERING), _Child(out_of_memory=out_of_memory)
    begun._folder, begun._child = begun._own_folder(free_bytes=0), child
    begun.begin(asked.plain(), present=(), timeout_s=90)
    events, outcome = _follow(begun, Copy(tmp_path / "mine"))

    request, timeout_s = child.given
    runs = str(begun._folder / "runs")
    assert request == asked.model_copy(update={"table": "/mine/t-1", "runs": runs})
    assert timeout_s == 90
    assert [event.event for event in events] == ["restarted"]
    assert outcome.out_of_memory == out_of_memory
    assert (begun._child is None) == out_of_memory, "its memory is given back"
    assert (tmp_path / "mine" / "failure.json").exists() == out_of_memory
    assert not Path(runs).exists(), "nothing stays on the node"


def test_a_folder_with_room_to_the_byte_suffices(slot, monkeypatch):
    monkeypatch.setattr(
        "prime_bench.schedule.node.shutil.disk_usage", lambda _: SimpleNamespace(free=5_000_000)
    )
    assert _check(slot(ANSWERING), free_bytes=5_000_000)["faults"] == []
    ((message, _),) = _check(slot(ANSWERING), free_bytes=5_500_001)["faults"]
    assert message.endswith(": 5 MB are free, a job may need 6 MB")


def test_the_end_of_a_job_is_news_at_once(slot, request_of, monkeypatch):
    monkeypatch.setattr(node, "_WAIT_S", 20.0)
    begun, child = slot(ANSWERING), _Child()

    def do(request, **_):
        time.sleep(0.2)  # so that `look` waits already
        return Outcome(request=request)

    monkeypatch.setattr(child, "do", do)
    begun._folder, begun._child = begun._own_folder(free_bytes=0), child
    begun.begin(request_of(7).plain(), present=(), timeout_s=None)

    start = time.monotonic()
    assert begun.look().outcome.state == "done"
    assert time.monotonic() - start < 10


def test_a_job_that_goes_on_here_has_the_files_that_the_caller_sent(slot):
    begun = slot(ANSWERING)
    piece = Piece(name="log.txt", offset=0, content=b"log", last=True)
    for early, said in (
        (lambda: begun.receive("a" * 16, [piece]), "`check` comes first"),
        (begun.look, "no job was begun"),
    ):
        with pytest.raises(RuntimeError, match=said):
            early()
    begun.stop()  # no worker, no job
    assert _check(begun)["faults"] == []

    begun.receive("a" * 16, [piece])
    assert (begun._folder / "runs" / ("a" * 16) / "log.txt").read_bytes() == b"log"


def _begun(slot, child):
    """A slot with that worker."""
    begun = slot(ANSWERING)
    begun._folder, begun._child = begun._own_folder(free_bytes=0), child
    return begun


def test_the_end_of_a_job_is_told_when_all_its_files_were_sent(slot, request_of, monkeypatch):
    monkeypatch.setattr("prime_bench.schedule.mirror.PIECE_BYTES", 4)
    child, request = _Child(), request_of(7)
    begun = _begun(slot, child)
    folder = begun._folder / "runs" / request.job.id

    def do(request, **_):
        folder.mkdir(parents=True)
        (folder / "record.json").write_bytes(b"0123456789")
        return Outcome(request=request)

    monkeypatch.setattr(child, "do", do)
    begun.begin(request.plain(), present=(), timeout_s=None)
    news = [begun.look()]
    while news[-1].outcome is None:
        assert folder.exists(), "it is needed until all is sent"
        news.append(begun.look())
    content = b"".join(piece.content for one in news for piece in one.pieces)
    assert (content, len(news) > 2) == (b"0123456789", True)


def test_a_second_job_knows_nothing_of_the_first(slot, request_of, tmp_path):
    child = _Child()
    begun = _begun(slot, child)
    for seed in (7, 8):
        request = request_of(seed)
        begun.begin(request.plain(), present=(), timeout_s=None)
        events, outcome = _follow(begun, Copy(tmp_path / str(seed)))
        assert [event.job_id for event in events] == [request.job.id]
        assert outcome.request.job == request.job
    assert begun._child is child, "the worker stays"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(28, "No space left on device", "/x"), "/x: the disk is full"),
        (OSError("odd"), "OSError: odd"),
        (EnvironmentFault("no device", hint="buy one"), "no device"),
    ],
)
def test_an_error_of_the_system_is_a_fault_of_the_machine(
    slot, request_of, tmp_path, monkeypatch, error, why
):
    def do(*_arguments, **_keys):
        raise error

    child = _Child()
    monkeypatch.setattr(child, "do", do)
    begun = _begun(slot, child)
    begun.begin(request_of(7).plain(), present=(), timeout_s=None)
    _, outcome = _follow(begun, Copy(tmp_path / "mine"))
    assert (outcome.state, outcome.why, outcome.machine) == ("failed", why, True)


def test_a_worker_that_has_ended_is_replaced_and_has_the_variables(slot, monkeypatch):
    made = []

    class Made(_Child):
        """Notes how it was started."""

        def __init__(self, command, *, variables):
            super().__init__()
            made.append((command, dict(variables)))

        def __enter__(self):
            return self

        def __exit__(self, *_error):
            self.alive = False

    monkeypatch.setattr(node, "Child", Made)
    begun = slot(("a", "command"), COLOUR="blue")
    first = begun._worker()
    assert begun._worker() is first
    first.alive = False
    assert begun._worker() is not first
    assert made == [(("a", "command"), {"COLOUR": "blue"})] * 2
