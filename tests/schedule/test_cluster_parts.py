"""What a run on a cluster does with each answer of a slot, with actors that answer as they are told
to, and what it asks of Ray.
"""

import platform
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnschedulableError, RayError, RayTaskError

from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.recipe.events import (
    MachineEvent,
    RestartedEvent,
    RetryEvent,
    StartedEvent,
    write_event,
)
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule import cluster
from prime_bench.schedule.cluster import RayEngine
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.mirror import Piece
from prime_bench.schedule.node import News, identity
from prime_bench.schedule.table_copy import TableInfo, TablePiece
from prime_bench.settings.memory import JOBS_ON_DEVICE
from prime_bench.settings.probes import RoutingSettings
from prime_bench.store.record import NODE_VARIABLE

GB = 1_000_000_000
GOOD = {"faults": [], "torch": "2.13.0", "device": "a CPU", "gpu_bytes": None}
ID_LENGTH = 56


class _Actor:
    """Notes what it is asked; each call is a reference, which `_Ray` has an answer for or not."""

    def __init__(self, options, variables):
        self.options, self.variables, self.asked = options, variables, []

    def __getattr__(self, name):
        def remote(*arguments, **keys):
            self.asked.append((name, *arguments, keys) if keys else (name, *arguments))
            return object()

        return SimpleNamespace(remote=remote)


class _Ray:
    """A cluster of nodes that gives the answers that it was told, and notes what was started."""

    def __init__(self, nodes):
        self.listed, self.answers, self.started, self.killed = nodes, {}, [], []
        self.down, self.initialised = False, None
        self._private = SimpleNamespace(worker=SimpleNamespace())

    def init(self, **keys):
        self.initialised = keys

    def shutdown(self):
        self.down = True

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here")

    def nodes(self):
        return self.listed

    def remote(self, what):
        def options(**given):
            def start(variables):
                self.started.append(_Actor(given, variables))
                return self.started[-1]

            return SimpleNamespace(remote=start)

        assert what is not platform.node, "the demand is replaced"
        return SimpleNamespace(options=options)

    def wait(self, calls, *, num_returns=1, timeout):  # noqa: ARG002  # as ray's
        ready = [call for call in calls if call in self.answers]
        return ready, [call for call in calls if call not in self.answers]

    def get(self, call):
        if isinstance(self.answers[call], Exception):
            raise self.answers[call]
        return self.answers[call]

    def kill(self, actor):
        self.killed.append(actor)


class _Demand:
    """Notes the demand for more slots."""

    def __init__(self, options):
        self.options, self.asked = options, []

    def ask(self, n_slots):
        self.asked.append(n_slots)


def _listed(name, *, alive=True, labels=None, **resources):
    """A node as Ray lists it."""
    return {
        "NodeID": name * ID_LENGTH,
        "Alive": alive,
        "NodeManagerHostname": name,
        "NodeManagerAddress": f"10.0.0.{ord(name)}",
        "Resources": {"CPU": 1, **resources},
        "Labels": labels,
    }


class _Begun:
    """A run with what it has asked and told, which goes on as its slots answer."""

    def __init__(self, run, ray, watch, queue, events):
        self.run, self.ray, self.watch, self.queue, self.events = run, ray, watch, queue, events

    def look(self):
        """See the nodes, start slots, and hand out jobs."""
        self.run._see_nodes()
        self.run._start_slots()
        return list(self.run._hand_out())

    def slots(self):
        """The slots in the order of their nodes' names."""
        return sorted(self.run._slots, key=lambda slot: slot.node.host)

    def answer(self, slot, value):
        """Let a slot answer what it was asked last; returns the outcomes."""
        (asked,) = (call for call, one in self.run._answers.items() if one is slot)
        self.ray.answers[asked] = value
        return list(self.run._take_answers())

    def ready(self):
        """A slot on each node, whose node has passed its check."""
        self.look()
        for slot in self.slots():
            self.answer(slot, identity())
            self.answer(slot, GOOD)
        return self.slots()

    def at_work(self):
        """The slots on all nodes, each in the middle of a job."""
        self.ready()
        self.look()
        for slot in self.slots():
            self.answer(slot, None)
        return self.slots()

    def told(self):
        """State, first letter of the node, and reason of what was said of machines."""
        found = [event for event in self.events if isinstance(event, MachineEvent)]
        return [(event.state, event.where[0], event.why) for event in found]


@pytest.fixture
def engine(monkeypatch):
    """An engine on nodes of one CPU each, or on those that are given."""

    def engine(listed="a", **keys):
        nodes = [_listed(name) for name in listed] if isinstance(listed, str) else listed
        monkeypatch.setattr(cluster, "ray", _Ray(nodes))
        return RayEngine(**keys)

    return engine


@pytest.fixture
def begin(monkeypatch, engine, queue_of, request_of, clock):  # noqa: ARG001  # its time stands
    """A run of the jobs of these seeds, of which nothing has happened yet."""
    monkeypatch.setattr(cluster, "_Demand", _Demand)

    def begin(*seeds, requests=(), nodes="a", limits=None, **keys):
        made, events = engine(nodes, **{"device": "cpu", "job_timeout_s": 90.0, **keys}), []
        watch = SimpleNamespace(nodes=made._nodes(), lost=False)
        queue = queue_of(*(request_of(seed) for seed in seeds), *requests, **(limits or {}))
        run = cluster._Run(made, queue, watch, on_event=events.append)
        return _Begun(run, cluster.ray, watch, queue, events)

    return begin


def _news(outcome=None, *, events=(), pieces=(), gone=()):
    return News(events=list(events), pieces=list(pieces), gone=list(gone), outcome=outcome)


def test_a_slot_is_asked_one_thing_after_the_other(begin, request_of, runs, clock):
    begun, request = begin(1), request_of(1)
    folder = runs.path(request.job.id)
    folder.mkdir(parents=True)
    for name, content in {"log.txt": b"log", "history.jsonl": b"h", "old.json": b""}.items():
        (folder / name).write_bytes(content)
    assert begun.look() == []
    (slot,) = begun.slots()
    (actor,) = begun.ray.started
    assert actor.options["scheduling_strategy"].node_id == "a" * ID_LENGTH
    assert not actor.options["scheduling_strategy"].soft
    assert actor.options["max_concurrency"] > 1, "it can be stopped while it is looked at"
    assert actor.variables == {NODE_VARIABLE: "a" * ID_LENGTH}, "a CPU has no share"
    assert (slot.state, actor.asked) == ("placing", [("hello",)])

    clock[0] += 7
    begun.answer(slot, {**identity(), "host": "a"})
    table = str(Path("nowhere").absolute())
    check = {"tables": {table: request.job.fingerprint}, "device": "cpu"}
    check |= {"backbones": {"DNN": None}, "plugins": {"dense": None}}
    assert actor.asked[1:] == [("check", check, {}, {"free_bytes": 64 << 20})]
    assert (slot.state, slot.since_s) == ("checking", 107.0)
    begun.answer(slot, GOOD)
    assert slot.state == "idle"

    assert begun.look() == []
    assert slot.state == "sending"
    assert runs.claimed(request.job.id)
    piece = Piece(name="log.txt", offset=0, content=b"log", last=True)
    assert actor.asked[2:] == [("receive", request.job.id, [piece])], "the log and the state alone"
    assert begun.events == [StartedEvent(job_id=request.job.id, where=slot.node.where)]
    assert slot.node.where == "a, 10.0.0.97 (node aaaaaaaa)"
    begun.answer(slot, None)
    there = request.model_copy(update={"device": "cpu", "table": table}).plain()
    present = ("history.jsonl", "log.txt", "old.json")
    assert actor.asked[3:] == [("begin", there, {"present": present, "timeout_s": 90.0})]
    begun.answer(slot, None)
    assert (slot.state, actor.asked[4:]) == ("busy", [("look",)])

    event = RestartedEvent(job_id=request.job.id, reason="no reason")
    record = Piece(name="record.json", offset=0, content=b"{}", last=True)
    lines = [write_event(event), "no event"]
    assert begun.answer(slot, _news(events=lines, pieces=[record], gone=["old.json"])) == []
    assert begun.events[1:] == [event]
    assert {path.name for path in folder.iterdir()} == {"history.jsonl", "log.txt", "record.json"}
    assert (slot.state, actor.asked[5:]) == ("busy", [("look",)])
    (outcome,) = begun.answer(slot, _news(Outcome(request=request)))
    assert (outcome.state, outcome.request) == ("done", request)
    assert not runs.claimed(request.job.id)
    assert (slot.state, slot.task) == ("idle", None)

    begun.look()
    assert begun.slots() == []
    assert actor.asked[6:] == [("close",)]
    assert begun.ray.killed == [], "it has its time to close"
    begun.ray.answers[next(iter(begun.run._closing))] = None
    assert list(begun.run._take_answers()) == []
    assert begun.ray.killed == [actor]


def test_a_job_that_measures_has_the_weights_of_the_one_it_needs(begin, request_of, runs):
    trained = request_of(1)
    job = trained.job.model_copy(update={"kind": "routing", "probe": RoutingSettings().plain()})
    folder = runs.path(trained.job.id)
    folder.mkdir(parents=True)
    for name in ("checkpoint.safetensors", "record.json", "resume.state", "predictions.npz"):
        (folder / name).write_bytes(name.encode())
    begun = begin(requests=[trained.model_copy(update={"job": job})])
    (slot,) = begun.ready()
    begun.look()

    _, job_id, pieces = slot.actor.asked[-1]
    assert job_id == trained.job.id
    assert [piece.name for piece in pieces] == ["checkpoint.safetensors", "record.json"]
    begun.answer(slot, None)
    name, request, keys = slot.actor.asked[-1]
    assert (name, JobRequest.parse(request, where="").job) == ("begin", job)
    assert keys["present"] == (), "of the files of its own folder"


def test_a_job_that_measures_costs_needs_no_weights(begin, request_of, runs):
    job = request_of(1).job.model_copy(update={"kind": "cost", "probe": {"repetitions": 1}})
    folder = runs.path(request_of(1).job.id)
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"weights")
    begun = begin(requests=[request_of(1).model_copy(update={"job": job})])
    (slot,) = begun.ready()
    begun.look()

    assert [call[0] for call in slot.actor.asked] == ["hello", "check", "begin"]


def test_large_files_go_in_several_calls_and_all_of_them_before_the_job_begins(
    begin, request_of, runs, monkeypatch
):
    monkeypatch.setattr("prime_bench.schedule.mirror.PIECE_BYTES", 4)
    folder = runs.path(request_of(1).job.id)
    folder.mkdir(parents=True)
    (folder / "resume.state").write_bytes(b"0123456789")
    begun = begin(1)
    (slot,) = begun.ready()
    begun.look()
    for _ in range(3):
        begun.answer(slot, None)

    sent = [call[2] for call in slot.actor.asked if call[0] == "receive"]
    assert b"".join(piece.content for pieces in sent for piece in pieces) == b"0123456789"
    assert len(sent) == 3
    assert [call[0] for call in slot.actor.asked[-2:]] == ["receive", "begin"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            {"version": "9.9", "numerics": 99},
            "it has prime-bench 9.9 with numerics 99, this machine {version} with {numerics}",
        ),
        ({"code": "0"}, "its prime-bench {version} has other source files than this one"),
    ],
)
def test_a_node_with_another_version_is_set_aside_with_both_named(begin, other, why):
    begun = begin(1)
    begun.look()
    (slot,) = begun.slots()
    begun.answer(slot, {**identity(), "host": "a", **other})

    assert begun.told() == [("set aside", "a", why.format(**identity()))]
    assert begun.events[0].hint == "install the same version of prime-bench there"
    assert begun.slots() == []
    assert begun.ray.killed == [slot.actor]


def test_tables_are_sent_before_the_check_where_that_was_asked_for(
    begin, prepare, request_of, data_dir
):
    prepare("synthetic", {"rows": 1000})
    (table,) = data_dir.iterdir()
    (table / "x").write_bytes(b"0123456789")
    begun = begin(requests=[request_of(1).model_copy(update={"table": str(table)})], sync_data=True)
    info = TableInfo(fingerprint="f", manifest=b"", sizes={"x": 2_400_000}, digests={})
    assert list(begun.run._tables) == [str(table)]
    assert begun.run._tables[str(table)].fingerprint == "f" * 64
    begun.run._tables = {str(table): info}
    begun.look()
    (slot,) = begun.slots()
    begun.answer(slot, identity())
    assert (slot.state, slot.actor.asked[-1]) == (
        "taking tables",
        ("take_tables", {str(table): info}),
    )

    begun.answer(slot, TablePiece(table=str(table), name="x", offset=4))
    piece = TablePiece(table=str(table), name="x", offset=4, content=b"456789")
    assert slot.actor.asked[-1] == ("take_piece", piece)
    assert begun.told() == [("sent a table", "a", f"{table.name}, 2 MB")]
    begun.answer(slot, None)
    assert (slot.state, slot.actor.asked[-1][0]) == ("checking", "check")


def test_a_node_that_cannot_take_a_table_is_set_aside(begin):
    begun = begin(1)
    begun.run._tables = {"/data/t": None}
    begun.look()
    (slot,) = begun.slots()
    begun.answer(slot, identity())
    begun.answer(slot, ("the disk is full", "free some space"))

    assert begun.told() == [("set aside", "a", "the disk is full")]
    assert begun.events[0].hint == "free some space"


def test_each_fault_that_a_check_finds_is_told_once(begin):
    begun = begin(1)
    begun.look()
    (slot,) = begun.slots()
    begun.answer(slot, identity())
    faults = [("no table", "copy it"), ("no torch", ""), ("no table", "copy it")]
    begun.answer(slot, {**GOOD, "faults": faults})

    assert begun.told() == [("set aside", "a", "no table; no torch")]
    assert begun.events[0].hint == "copy it"
    assert (slot.node.fault, slot.node.kind) == ("no table; no torch", None)
    assert begun.look() == []
    assert begun.slots() == [], "it is not asked again at once"


def test_a_node_that_was_set_aside_is_back_after_its_next_check(begin, clock):
    begun = begin(1, 2, nodes=[_listed("a", CPU=2)])
    slots = begun.ready()
    node = slots[0].node
    begun.run._set_aside(node, "no table", hint="copy it", broke=True)
    for seconds, fault in ((59, "no table"), (1, "")):
        clock[0] += seconds
        slot = cluster._Slot(node=node, actor=_Actor({}, {}), state="checking")
        begun.run._take_check(slot, GOOD)
        assert (node.fault, slot.state) == (fault, "idle"), "a check that was under way"
    assert (node.hint, node.broke) == ("", False)
    assert begun.told() == [("set aside", "a", "no table"), ("back", "a", "")]


@pytest.mark.parametrize(
    ("gpu_bytes", "slots", "dropped"),
    [(80 * GB, None, True), (24 * GB, None, False), (80 * GB, 3, False), (None, None, False)],
)
def test_a_slot_with_a_whole_gpu_makes_room_where_several_fit(begin, gpu_bytes, slots, dropped):
    begun = begin(1, nodes=[_listed("a", CPU=8, GPU=1, memory=99)], device="cuda", slots=slots)
    need = SimpleNamespace(gpu_bytes=lambda _total: 20 * GB, host_bytes=0, parameters=0)
    begun.run._engine.needs = [need]
    begun.look()
    (slot,) = begun.slots()
    begun.answer(slot, identity())
    begun.answer(slot, {**GOOD, "gpu_bytes": gpu_bytes})

    assert (begun.slots() == []) == dropped
    assert slot.node.gpu_bytes == gpu_bytes
    assert slot.actor.asked[-1][0] == ("close" if dropped else "check")


def test_a_node_that_does_not_answer_a_check_in_time_is_set_aside(begin, clock):
    begun = begin(1, 2, nodes="ab")
    begun.look()
    first, second = begun.slots()
    begun.answer(first, identity())
    clock[0] += 300.0
    assert begun.look() == list(begun.run._take_answers()) == []
    assert begun.told() == [], "the other one waits for room, which may take any time"
    clock[0] += 0.1
    assert list(begun.run._take_answers()) == []
    assert begun.told() == [("set aside", "a", "it did not answer a check within 300 s")]
    assert second in begun.slots()


def test_an_error_in_a_slot_without_a_job_is_one_of_its_node(begin):
    begun = begin(1)
    begun.look()
    (slot,) = begun.slots()
    begun.answer(slot, RayTaskError("hello", "Traceback", ImportError("no prime_bench")))

    assert begun.told() == [("set aside", "a", "it cannot be asked: ImportError: no prime_bench")]


def test_an_error_in_a_slot_with_a_job_is_one_of_its_machine(begin, request_of, runs):
    begun = begin(1, 2)
    (slot,) = begun.at_work()
    assert begun.answer(slot, RayTaskError("look", "Traceback", OSError("disk full"))) == []

    assert begun.told() == [("set aside", "a", "OSError: disk full")]
    assert not runs.claimed(request_of(1).job.id)
    assert [work.request for work in begun.queue.left] == [request_of(1), request_of(2)]


def test_a_job_that_finds_the_last_of_several_machines_at_fault_has_failed(begin, request_of):
    begun = begin(1)
    (slot,) = begun.at_work()
    begun.run._faults[request_of(1).job.id] = 2
    (outcome,) = begun.answer(slot, RayTaskError("look", "Traceback", OSError("disk full")))
    assert (outcome.request, outcome.state) == (request_of(1), "failed")
    assert (outcome.why, outcome.machine) == ("OSError: disk full", True)


@pytest.mark.parametrize(
    ("error", "listed", "told"),
    [
        (RayError("killed"), True, [("set aside", "a", "it cannot run a worker: killed")]),
        (ActorUnschedulableError("gone"), True, []),
        (RayError("killed"), False, [("lost", "a", "it has left the cluster, or does not answer")]),
    ],
)
def test_a_process_that_is_lost_without_a_job_is_told_of_unless_its_node_is_gone(
    begin, error, listed, told
):
    begun = begin(1)
    begun.look()
    (slot,) = begun.slots()
    if not listed:
        begun.watch.nodes = []
        begun.run._see_nodes()
    begun.answer(slot, error)

    assert begun.told() == told
    assert begun.slots() == []
    assert bool(slot.node.fault) == listed


def test_a_lost_job_is_free_and_the_next_one(begin, request_of, runs):
    begun = begin(1, 2)
    (slot,) = begun.at_work()
    begun.answer(slot, RayError("killed"))

    assert not runs.claimed(request_of(1).job.id)
    assert [work.request for work in begun.queue.left] == [request_of(1), request_of(2)]
    assert begun.told() == [], "its node is as it was"
    (again,) = begun.ready()
    assert again is not slot


def test_a_job_that_failed_may_be_tried_again(begin, request_of):
    begun = begin(1, limits={"retries": 1})
    (slot,) = begun.at_work()
    failed = Outcome(request=request_of(1), state="failed", why="out of luck")
    assert begun.answer(slot, _news(failed)) == []
    assert begun.events[-1] == RetryEvent(job_id=request_of(1).job.id, error="out of luck")

    begun.look()
    begun.answer(slot, None)
    (outcome,) = begun.answer(slot, _news(failed))
    assert (outcome.state, outcome.why) == ("failed", "out of luck")


def test_jobs_that_lack_memory_together_are_fewer_on_their_node(begin):
    begun = begin(1, 2, nodes=[_listed("a", CPU=2)])
    first, _ = begun.at_work()
    lacking = Outcome(
        request=first.task.request, state="failed", why="no memory", out_of_memory=True
    )
    assert begun.answer(first, _news(lacking)) == []
    job_id, where = lacking.request.job.id, first.node.where
    own = {"device": where, "at_once": 1}
    assert begun.events[-1] == RetryEvent(job_id=job_id, error="no memory", **own)
    begun.look()
    assert [work.request for work in begun.queue.left] == [lacking.request]


def test_an_outcome_without_a_record_is_a_failure(begin, request_of):
    begun = begin(1)
    (slot,) = begun.at_work()
    (outcome,) = begun.answer(slot, _news(Outcome(request=request_of(1))))
    assert (outcome.state, outcome.why) == ("failed", "the worker left no record")
    assert str(begun.run._cut_off("it")).partition("of this run ")[2].startswith("0 records safe")


def test_a_stop_reaches_the_jobs_and_starts_none_that_is_on_its_way(begin, request_of, runs):
    begun = begin(1, 2, nodes="ab")
    (runs.path(request_of(2).job.id)).mkdir(parents=True)
    (runs.path(request_of(2).job.id) / "log.txt").write_text("log")
    first, second = begun.ready()
    begun.look()
    busy = next(slot for slot in (first, second) if slot.task.request == request_of(1))
    sending = second if busy is first else first
    begun.answer(busy, None)
    begun.run._stop_if_asked()
    assert not begun.queue.stopped
    begun.run._engine.stop()
    for _ in range(2):
        begun.run._stop_if_asked()

    assert begun.queue.stopped
    assert [slot.actor.asked.count(("stop",)) for slot in (busy, sending)] == [1, 0]
    (outcome,) = begun.answer(sending, None)
    assert (outcome.state, outcome.why) == ("interrupted", "not started")
    assert outcome.request == request_of(2)
    assert not runs.claimed(request_of(2).job.id)
    assert begun.look() == []
    assert begun.slots() == [busy]


def test_a_run_that_is_stopped_ends_with_the_last_of_its_jobs(begin, request_of):
    begun = begin(1, 2)
    (slot,) = begun.at_work()
    begun.run._engine.stop()
    (asked,) = begun.run._answers
    interrupted = Outcome(request=request_of(1), state="interrupted", why="at a checkpoint")
    begun.ray.answers[asked] = _news(interrupted)

    assert list(begun.run.outcomes()) == [interrupted]
    assert ("stop",) in slot.actor.asked
    assert [work.request for work in begun.queue.left] == [request_of(2)]


def test_a_job_that_began_as_the_stop_came_is_stopped_as_well(begin):
    begun = begin(1)
    (slot,) = begun.ready()
    begun.look()
    begun.run._engine.stop()
    begun.run._stop_if_asked()
    assert ("stop",) not in slot.actor.asked, "it has not answered that it has begun"
    assert begun.answer(slot, None) == []

    assert slot.state == "busy"
    assert slot.actor.asked[-2:] == [("look",), ("stop",)]


def test_jobs_that_others_have_are_skipped_and_the_next_one_is_given(begin, request_of, runs):
    begun = begin(1, 2)
    (slot,) = begun.ready()
    with runs.claim(request_of(1).job.id):
        (outcome,) = begun.look()
    assert (outcome.state, outcome.why) == ("skipped", "another process has it")
    assert slot.task.request == request_of(2)


def test_slots_are_spread_evenly_and_are_no_more_than_the_jobs(begin):
    nodes = [_listed("a", CPU=4), _listed("b", CPU=1), _listed("c", CPU=4)]
    begun = begin(*range(7), nodes=nodes)
    for _ in range(2):
        begun.look()
        assert Counter(slot.node.host for slot in begun.slots()) == {"a": 3, "b": 1, "c": 3}
    assert begun.run._demand.asked == [0, 0]


def _another(node):
    return cluster._Node(**{**vars(node), "node_id": "b" * ID_LENGTH})


def test_what_has_no_room_is_asked_for_unless_an_unseen_node_may_take_it(begin):
    begun = begin(*range(5), nodes=[_listed("a", CPU=2)])
    begun.look()
    assert begun.run._demand.asked == [3]
    begun.watch.nodes += [_another(begun.watch.nodes[0])]
    begun.run._see_nodes()
    begun.run._tables = {"/data/t": None}
    begun.run._start_slots()
    assert begun.run._demand.asked == [3, 1], "one takes the tables first, with room for one more"
    assert len(begun.slots()) == 3


def test_a_node_that_is_full_or_set_aside_counts_as_none_that_may_take_jobs(begin):
    begun = begin(*range(5), nodes="ab")
    begun.run._see_nodes()
    known, other = begun.run._nodes.values()
    known.kind = cluster._Kind("a CPU", "2")
    known.resources = {"CPU": 1}
    begun.run._set_aside(other, "no table")
    begun.run._start_slots()

    assert [slot.node for slot in begun.slots()] == [known]
    assert begun.run._demand.asked == [4]


def test_a_slot_that_waits_for_room_does_not_keep_another_node_from_being_asked(begin, clock):
    begun = begin(1, nodes="a")
    begun.look()
    begun.slots()[0].since_s = clock[0]
    begun.watch.nodes += [_another(begun.watch.nodes[0])]
    clock[0] += 4.9
    begun.look()
    assert len(begun.slots()) == 1
    clock[0] += 0.1
    begun.look()
    assert {slot.node.node_id[0] for slot in begun.slots()} == {"a", "b"}


def test_a_worker_on_a_gpu_knows_how_many_jobs_share_it(begin):
    begun = begin(1, nodes=[_listed("a", CPU=4, GPU=1)], device="cuda", slots=3)
    begun.look()
    (actor,) = begun.ray.started
    assert actor.variables[JOBS_ON_DEVICE] == "3"
    assert actor.variables[NODE_VARIABLE] == "a" * ID_LENGTH
    assert actor.options["num_gpus"] == 0.3333


def test_what_may_run_on_no_node_that_is_left_is_not_run(begin, request_of, finish, runs):
    finish(request_of(1).job, device="another CPU", versions={"torch": "2.0"})
    job = request_of(1).job.model_copy(update={"plugin": "prime"})
    begun = begin(requests=[request_of(1).model_copy(update={"job": job})])
    begun.ready()
    assert begun.look() == []
    (outcome,) = begun.run._give_up_what_cannot_run()

    assert outcome.state == "not run"
    assert outcome.why == (
        "what it is compared with ran on another CPU with torch 2.0, and no node of that kind is "
        "left; --allow-mixed-devices runs it on another"
    )
    assert not runs.claimed(job.id)


def test_a_run_that_waits_for_room_says_so_once(begin, clock):
    begun = begin(1, 2, nodes="ab")
    begun.look()
    for slot in begun.slots():
        slot.since_s = clock[0]
    for seconds, told in ((5.0, []), (0.1, ["waited for"]), (9.0, ["waited for"])):
        clock[0] += seconds
        assert list(begun.run._give_up_what_cannot_run()) == []
        assert [state for state, _, _ in begun.told()] == told
    assert begun.told()[0][2] == "others use all that this run asks for"


def test_a_run_whose_slots_all_wait_looks_for_the_reason(begin, clock):
    begun = begin(1)
    begun.look()
    begun.slots()[0].since_s = clock[0] - 5.1

    class Watch:
        """Of a head that is lost after one look."""

        nodes, looks = begun.watch.nodes, 0

        @property
        def lost(self):
            self.looks += 1
            return self.looks > 1

    begun.run._watch = Watch()
    with pytest.raises(EnvironmentFault, match="no longer answers"):
        list(begun.run.outcomes())
    assert [state for state, _, _ in begun.told()] == ["waited for"]


def test_nodes_that_a_job_found_at_fault_are_looked_at_at_once_where_no_other_is_left(begin, clock):
    begun = begin(1, nodes="ab")
    begun.run._see_nodes()
    first, second = begun.run._nodes.values()
    begun.run._set_aside(first, "no table")
    begun.run._set_aside(second, "the disk is full", broke=True)
    assert list(begun.run._give_up_what_cannot_run()) == []

    assert (second.broke, second.again_s) == (False, clock[0])
    assert first.again_s == clock[0] + 60.0
    begun.look()
    assert [slot.node for slot in begun.slots()] == [second]


def test_without_a_node_the_run_ends_with_what_each_lacks(begin):
    begun = begin(1, nodes="ab", device="cpu", threads=2)
    begun.run._engine.needs = [SimpleNamespace(host_bytes=1_560_000_000)]
    begun.run._see_nodes()
    first, _ = begun.run._nodes.values()
    begun.run._set_aside(first, "no table", hint="copy it")
    with pytest.raises(EnvironmentFault) as caught:
        list(begun.run._give_up_what_cannot_run())

    assert caught.value.message.splitlines() == [
        "no node of the Ray cluster auto can take a job",
        f"{first.where}: no table",
        "1 node with less than a job wants: 2 CPUs, 1.6 GB of memory",
    ]
    assert caught.value.hint == "copy it"


@pytest.mark.parametrize(
    ("keys", "wanted", "hint"),
    [
        ({}, "1 CPUs", "--node-timeout SECONDS waits for nodes that an autoscaler starts"),
        ({"node_timeout_s": 5}, "1 CPUs", ""),
        ({"device": "cuda", "slots": 4, "node_timeout_s": 5}, "1 CPUs, 1/4 of a GPU", ""),
        ({"device": "cuda", "slots": None, "node_timeout_s": 5}, "1 CPUs, 1/1 of a GPU", ""),
    ],
)
def test_a_cluster_with_too_small_nodes_is_told_what_a_job_wants(begin, keys, wanted, hint):
    begun = begin(1, nodes=[], **keys)
    fault = begun.run._no_node()
    assert fault.message.splitlines()[1:] == [f"0 nodes with less than a job wants: {wanted}"]
    assert fault.hint == hint


def test_where_all_nodes_have_faults_none_is_called_too_small(begin):
    begun = begin(1)
    begun.run._see_nodes()
    begun.run._set_aside(*begun.run._nodes.values(), "no table")
    fault = begun.run._no_node()
    assert len(fault.message.splitlines()) == 2
    assert fault.hint == "", "waiting for others would not help"


def test_a_run_that_loses_the_head_says_what_is_safe_and_what_is_left(begin, request_of, runs):
    begun = begin(1, 2, 3, address="here")
    (slot,) = begun.at_work()
    (runs.path(request_of(1).job.id)).mkdir(parents=True)
    (runs.path(request_of(1).job.id) / "record.json").touch()
    begun.answer(slot, _news(Outcome(request=request_of(1))))
    begun.watch.nodes += [_another(begun.watch.nodes[0])]
    begun.look()
    assert sorted(slot.state for slot in begun.slots()) == ["placing", "sending"]
    begun.watch.lost = True
    with pytest.raises(EnvironmentFault) as caught:
        next(begun.run.outcomes())

    assert caught.value.message == (
        "the head of the Ray cluster here no longer answers; of this run 1 record safe, 2 jobs left"
    )
    assert caught.value.hint == (
        "start it again, `ray start --head`, and the other nodes with it; the same command then "
        "continues each job from its last validation"
    )


def test_a_connection_that_breaks_is_one_that_is_cut_off(begin, monkeypatch):
    begun = begin(1)
    begun.look()

    def broken(*_calls, **_keys):
        raise ConnectionError("broken pipe")

    monkeypatch.setattr(cluster.ray, "wait", broken)
    said = "the head, or the node of this machine, of the Ray cluster auto no longer answers"
    with pytest.raises(EnvironmentFault, match=said):
        list(begun.run._take_answers())


def test_nothing_to_ask_is_no_reason_to_be_busy(begin, clock):
    begun = begin(1)
    before = clock[0]
    assert list(begun.run._take_answers()) == []
    assert clock[0] == before + 0.5


def test_nodes_come_and_go(begin):
    begun = begin(1, nodes="ab")
    begun.run._see_nodes()
    first, _ = begun.watch.nodes
    fresh = cluster._Node(**vars(first))
    begun.watch.nodes = [fresh]
    begun.run._see_nodes()

    assert begun.told() == [("lost", "b", "it has left the cluster, or does not answer")]
    assert begun.run._nodes == {first.node_id: first}, "what is known of it stays"


def test_a_run_leaves_no_slot_no_demand_and_no_claim(begin, request_of, runs, monkeypatch):
    begun = begin(1, 2, nodes="ab")
    with begun.run:
        begun.look()
        first, second = begun.slots()
        begun.answer(first, identity())
        begun.answer(first, GOOD)
        begun.look()
        assert runs.claimed(request_of(1).job.id)
        waited = []

        def wait(calls, **keys):
            waited.append((len(calls), keys))
            raise RayError("the head is gone")

        monkeypatch.setattr(begun.ray, "wait", wait)
    assert begun.run._demand.asked[-1] == 0
    assert (begun.run._slots, begun.run._answers) == (set(), {})
    assert not runs.claimed(request_of(1).job.id)
    assert waited == [(1, {"num_returns": 1, "timeout": 10.0})]
    assert first.actor.asked[-1] == ("close",)
    assert second.actor.asked == [("hello",)], "it may wait for room, and would never answer"
    assert begun.ray.killed == [second.actor, first.actor]
    assert begun.ray.down


@pytest.mark.parametrize(
    ("device", "nodes", "keys", "kind", "name"),
    [
        ("auto", [_listed("a", GPU=1)], {}, "cuda", "cuda:0"),
        ("auto", [_listed("a")], {}, "cpu", "cpu"),
        ("cpu", [_listed("a", GPU=1)], {}, "cpu", "cpu"),
        ("auto", [_listed("a", GPU=1, alive=False), _listed("b")], {}, "cpu", "cpu"),
        ("auto", [_listed("a", GPU=1), _listed("b", fast=1)], {"nodes": "fast"}, "cpu", "cpu"),
        ("cuda", [], {"node_timeout_s": 9}, "cuda", "cuda:0"),
        ("cpu", [], {"node_timeout_s": 9, "nodes": "zone=b"}, "cpu", "cpu"),
    ],
)
def test_the_device_is_that_of_the_nodes_that_take_jobs(engine, device, nodes, keys, kind, name):
    made = engine(nodes, device=device, **keys)
    assert (made.device_kind, made.device.name) == (kind, name)


@pytest.mark.parametrize(
    ("keys", "error", "said", "hint"),
    [
        (
            {"device": "cuda:0"},
            UsageError,
            "--device cuda:0: with --engine ray the cluster chooses which one",
            "use `cpu`, `cuda` or `auto`",
        ),
        (
            {"device": "tpu"},
            UsageError,
            "no device `tpu`",
            "devices: auto, cpu, cuda, cuda:<index>",
        ),
        (
            {"device": "cuda", "address": "h"},
            EnvironmentFault,
            "device cuda is not there: no node of the Ray cluster h has a GPU",
            "use `auto` or `cpu`, or start a node with `ray start --num-gpus`",
        ),
        (
            {"nodes": "zone=b"},
            EnvironmentFault,
            "no node of the Ray cluster has `zone=b`, a label as KEY=VALUE or a resource",
            "give it to a node with `ray start --labels KEY=VALUE`",
        ),
    ],
)
def test_an_engine_that_can_run_nothing_is_not_made(engine, keys, error, said, hint):
    with pytest.raises(error) as caught:
        engine("a", **keys)
    assert (caught.value.message, caught.value.hint) == (said, hint)


def test_the_jobs_at_once_are_those_of_all_nodes(engine):
    made = engine([_listed("a", CPU=5, GPU=1), _listed("b", CPU=3)], device="cpu", threads=2)
    found = made.slots_for([])
    assert (found.on_each, found.total, found.threads, found.bound) == (1, 3, 2, "as asked for")
    made = engine([_listed("a", CPU=5, GPU=1)], device="cuda", threads=2, slots=2, nodes="GPU")
    assert (made.slots_for([]).on_each, made.slots_for([]).total) == (2, 2)
    asked = {"num_cpus": 2, "num_gpus": 0.5, "memory": None, "resources": {"GPU": 0.001}}
    assert made.asked_anywhere == asked
    made = engine([_listed("a", CPU=5)], device="cpu", slots=None)
    found = made.slots_for([])
    assert (found.on_each, found.total, found.bound) == (1, 5, "as asked for")
    made = engine([_listed("a", CPU=5, GPU=1)], device="cuda", slots=None)
    assert made.slots_for([]).bound == "or more, once the memory of the nodes' GPUs is known"
    assert made.asked_anywhere == {"num_cpus": 1, "num_gpus": 1, "memory": None}


def test_on_a_node_with_few_cpus_a_job_still_has_a_gpu(engine):
    made = engine([_listed("a", CPU=1, GPU=2)], device="cuda", slots=None, threads=1)
    (node,) = made._nodes()
    node.gpu_bytes = 80 * GB
    made.needs = [SimpleNamespace(gpu_bytes=lambda _total: 20 * GB, host_bytes=0)]
    assert made.on_each_gpu(node) == 1


def test_ray_is_quiet_and_asked_at_the_address(engine):
    engine("a", address="host-without-port")
    assert cluster.ray.initialised["address"] == "host-without-port"
    assert cluster.ray.initialised["log_to_driver"] is False
    assert cluster.ray._private.worker.print_to_stdstream("a", b="c") is None


@pytest.mark.parametrize(
    ("address", "looked_for"),
    [
        ("auto", None),
        ("ray://host:10001", None),
        ("host:6379", ("host", 6379)),
        ("[::1]:6379", ("::1", 6379)),
    ],
)
def test_something_must_answer_at_a_host_and_port(engine, monkeypatch, address, looked_for):
    seen = []

    def connect(place, *, timeout):
        seen.append((place, timeout))
        return SimpleNamespace(close=lambda: seen.append("closed"))

    monkeypatch.setattr(cluster.socket, "create_connection", connect)
    engine("a", address=address)
    assert seen == ([] if looked_for is None else [(looked_for, 10), "closed"])


@pytest.mark.parametrize("address", ["host:x", "host:99999999999999999999"])
def test_an_address_at_which_nothing_answers_is_an_environment_fault(engine, monkeypatch, address):
    def refuse(place, **_keys):
        raise OverflowError("getsockaddrarg: port must be 0-65535." if place[1] else "")

    monkeypatch.setattr(cluster.socket, "create_connection", refuse)
    with pytest.raises(EnvironmentFault, match=f"no Ray cluster at {address}: ") as caught:
        engine("a", address=address)
    assert caught.value.hint == (
        "start one, `ray start --head`, and join other machines to it, `ray start --address "
        "HOST:PORT`; where the cluster asks for a token, set RAY_AUTH_MODE=token"
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EnvironmentFault("the disk is full", hint="free some"), "the disk is full"),
        (RayTaskError("f", "Traceback", ValueError("first\nsecond")), "ValueError: first"),
        (RayTaskError("f", "Traceback", KeyError()), "KeyError:"),
        (RayError("it has ended\n\nadvice"), "it has ended"),
        (RayError(""), "RayError"),
        (
            RayError(
                "The actor died.\n  Traceback (most recent call last):\n"
                "  ray.exceptions.RaySystemError: no memory\nsee the log"
            ),
            "ray.exceptions.RaySystemError: no memory",
        ),
    ],
)
def test_of_an_error_its_one_line_is_told(error, reason):
    assert cluster._reason(error) == reason


def test_modules_of_ones_own_go_along_and_are_checked_for(own_class, request_of):
    own_class(1)
    job = request_of(1).job
    code = {"own_mod:Net": "1" * 64, "own_mod:Gate": "2" * 64}
    own = {"backbone": "own_mod:Net", "plugin": "own_mod:Gate", "code": code}
    requests = [request_of(1).model_copy(update={"job": job.model_copy(update=own)}), request_of(2)]

    assert list(cluster._sources_of(requests)) == ["own_mod.py"]
    check = cluster._check_of(requests, device="cuda:0")
    assert check.backbones == {"own_mod:Net": "1" * 64, "DNN": None}
    assert check.plugins == {"own_mod:Gate": "2" * 64, "dense": None}
    assert check.device == "cuda:0"
    assert cluster._sources_of(requests[1:]) == {}


def test_the_watch_goes_on_after_an_error_of_the_connection(monkeypatch):
    monkeypatch.setattr(cluster, "_LIST_EVERY_S", 0.001)
    answers, over = iter([["first"], ConnectionError(), ["second"]]), cluster.threading.Event()

    def nodes():
        answer = next(answers, None)
        if answer is None:
            over.set()
            return ["second"]
        if isinstance(answer, Exception):
            raise answer
        return answer

    with cluster._Watch(nodes) as watch:
        assert watch.daemon, "Ray may never answer it"
        assert over.wait(timeout=10)
    watch.join(timeout=10)
    assert watch.nodes == ["second"]
