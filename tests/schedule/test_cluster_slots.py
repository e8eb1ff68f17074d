"""How many jobs share the GPUs of a cluster's nodes, with stand-ins for Ray, nodes and GPUs."""

import platform
from collections import Counter
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnschedulableError, RayError

from prime_bench.base.errors import EnvironmentFault
from prime_bench.recipe.events import MachineEvent, StartedEvent
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule import cluster
from prime_bench.schedule.cluster import RayEngine
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.node import News, identity
from prime_bench.schedule.table_copy import TableInfo, TablePiece
from prime_bench.settings.memory import JOBS_ON_DEVICE
from prime_bench.store.runs import Runs

GB = 1_000_000_000
LOOKS = 3
ID_LENGTH = 56
NEED = SimpleNamespace(host_bytes=GB, parameters=1000, gpu_bytes=lambda _total: 20 * GB)


class _Call:
    """An answer that is there as soon as its actor has room."""

    def __init__(self, actor, value):
        self.actor, self.value = actor, value


class _Actor:
    """A slot whose jobs are done at the third look."""

    def __init__(self, ray, options, variables):
        self.ray, self.options, self.variables = ray, options, variables
        self.node_id = options["scheduling_strategy"].node_id[0]
        self.cpus, self.gpus = options["num_cpus"], options["num_gpus"]
        self.placed, self._request, self._looks = False, None, 0

    def __getattr__(self, name):
        method = getattr(type(self), f"_{name}")
        return SimpleNamespace(
            remote=lambda *args, **keys: _Call(self, method(self, *args, **keys))
        )

    def _hello(self):
        return {**identity(), "host": self.node_id}

    def _check(self, *_arguments, free_bytes):
        assert free_bytes > 0
        gpu_bytes = self.ray.gpu_bytes[self.node_id]
        return {"faults": [], "torch": "2", "device": "a GPU", "gpu_bytes": gpu_bytes}

    def _receive(self, *_arguments):
        pass

    def _begin(self, request, *, present, timeout_s):  # noqa: ARG002  # as of a node's slot
        self._request, self._looks = JobRequest.parse(request, where=""), 0
        self.ray.timeouts_s.add(timeout_s)
        self.ray.busy[self.node_id] += 1
        self.ray.most[self.node_id] = max(self.ray.most[self.node_id], self.ray.busy[self.node_id])

    def _look(self):
        self._looks += 1
        if (trouble := self.ray.trouble(self.node_id, self._request)) is not None:
            self.ray.busy[self.node_id] -= 1
            return trouble
        outcome = None
        if self._looks == LOOKS:
            self.ray.busy[self.node_id] -= 1
            folder = Runs(self.ray.folder).path(self._request.job.id)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "record.json").touch()
            outcome = Outcome(request=self._request)
        return News(events=[], pieces=[], gone=[], outcome=outcome)

    def _close(self):
        self.ray.kill(self)


class _Ray:
    """Gives actors the room that their nodes have; notes how many jobs each node did at once.

    Nodes that are `gone` are still listed, as for some seconds after their end.
    """

    def __init__(self, folder, nodes, *, gone=""):
        self.folder, self.gpu_bytes = folder, {name: size for name, (_, _, size) in nodes.items()}
        self._resources = {name: (cpus, gpus) for name, (cpus, gpus, _) in nodes.items()}
        self.actors, self.ever, self.busy, self.most = [], [], Counter(), Counter()
        self.gone, self.timeouts_s = gone, set()
        self.trouble = lambda _node, _request: None
        self._private = SimpleNamespace(worker=SimpleNamespace())

    def init(self, **_keys):
        pass

    def shutdown(self):
        pass

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here")

    def nodes(self):
        return [
            {
                "NodeID": name * ID_LENGTH,
                "Alive": True,
                "NodeManagerHostname": name,
                "NodeManagerAddress": "127.0.0.1",
                "Resources": {"CPU": cpus, "GPU": gpus, "memory": 1000 * GB},
                "Labels": {},
            }
            for name, (cpus, gpus) in self._resources.items()
        ]

    def remote(self, what):
        if what is platform.node:  # the demand for more nodes
            task = SimpleNamespace(remote=lambda: _Call(None, None))
            return SimpleNamespace(options=lambda **_options: task)

        def options(**given):
            return SimpleNamespace(remote=lambda variables: self._start(given, variables))

        return SimpleNamespace(options=options)

    def _start(self, options, variables):
        actor = _Actor(self, options, variables)
        self.actors.append(actor)
        self.ever.append(actor)
        return actor

    def wait(self, calls, *, num_returns=1, timeout):  # noqa: ARG002  # as ray's
        for actor in self.actors:
            cpus, gpus = self._resources[actor.node_id]
            there = [one for one in self.actors if one.placed and one.node_id == actor.node_id]
            fits = sum(one.cpus for one in there) + actor.cpus <= cpus
            # Ray counts in parts of 10,000.
            fits &= round(10_000 * (sum(one.gpus for one in there) + actor.gpus)) <= 10_000 * gpus
            actor.placed |= fits
        ready = [call for call in calls if call.actor is not None and call.actor.placed]
        return ready, [call for call in calls if call not in ready]

    def get(self, call):
        if call.actor.node_id in self.gone:
            self.kill(call.actor)
            raise ActorUnschedulableError("the node does not exist any more")
        if isinstance(call.value, Exception):
            self.kill(call.actor)
            raise call.value
        return call.value

    def kill(self, actor):
        if actor in self.actors:
            self.actors.remove(actor)

    def cancel(self, call):
        pass


@pytest.fixture
def run(monkeypatch, runs, request_of, queue_of):
    """Run 30 jobs on nodes of (CPUs, GPUs, bytes of a GPU)."""

    def run(nodes, *, gone="", on_event=lambda _event: None, **keys):
        ray = _Ray(runs.folder, nodes, gone=gone)
        monkeypatch.setattr(cluster, "ray", ray)
        engine = RayEngine(device="cuda", **keys)
        slots = engine.slots_for([NEED])
        queue = queue_of(*(request_of(seed) for seed in range(30)))
        outcomes = list(engine.run(queue, slots=slots, on_event=on_event))
        assert [outcome.state for outcome in outcomes] == ["done"] * 30
        assert ray.actors == []
        return ray, slots

    return run


def test_each_node_runs_as_many_jobs_as_the_memory_of_its_gpus_holds_and_its_cpus_serve(run):
    # 90 % of 80 GB is three times 20 GB and some.
    two_gpus, small, few_cpus = "abc"
    nodes = {two_gpus: (16, 2, 80 * GB), small: (8, 1, 24 * GB), few_cpus: (2, 1, 80 * GB)}
    ray, slots = run(nodes, slots=None)

    assert ray.most == {two_gpus: 6, small: 1, few_cpus: 2}
    assert (slots.on_each, slots.total) == (1, 4)
    assert "once the memory of the nodes' GPUs is known" in str(slots)
    seen = {name: [one for one in ray.ever if one.node_id == name] for name in nodes}
    assert [one.gpus for one in seen[two_gpus]] == [1] + [0.3333] * 6
    assert [one.gpus for one in seen[small]] == [1]
    assert [one.gpus for one in seen[few_cpus]] == [1, 0.5, 0.5]
    shares = [one.variables[JOBS_ON_DEVICE] for one in seen[two_gpus]]
    assert shares == ["1"] + ["3"] * 6


def test_a_number_of_slots_that_was_asked_for_is_that_of_every_gpu(run):
    ray, slots = run({"a": (16, 2, 24 * GB)}, slots=7)

    assert ray.most == {"a": 14}
    assert (slots.on_each, slots.total) == (7, 14)
    # A seventh, rounded down: seven times 0.1429 is more than a GPU.
    assert {one.gpus for one in ray.ever} == {0.1428}


@pytest.fixture
def troubled(monkeypatch, runs, request_of, queue_of):
    """Run the jobs 0 to 4 on nodes of one CPU, of which some looks end in trouble: outcomes by
    seed, and events.
    """

    def troubled(trouble, *, nodes, **keys):
        ray = _Ray(runs.folder, dict.fromkeys(nodes, (1, 1, 80 * GB)))
        ray.trouble, events = trouble, []
        monkeypatch.setattr(cluster, "ray", ray)
        engine = RayEngine(device="cpu", job_timeout_s=90, **keys)
        queue = queue_of(*(request_of(seed) for seed in range(5)))
        outcomes = list(engine.run(queue, on_event=events.append))
        assert ray.timeouts_s == {90}
        return {outcome.request.job.seed: outcome for outcome in outcomes}, events

    return troubled


def _places(events, request):
    """The nodes to which a job was given, one after the other."""
    ours = [e for e in events if isinstance(e, StartedEvent) and e.job_id == request.job.id]
    return [event.where[0] for event in ours]


@pytest.mark.parametrize(("losses", "state"), [(2, "done"), (3, "failed")])
def test_a_job_whose_process_is_lost_goes_on_and_has_failed_the_third_time(
    troubled, request_of, losses, state
):
    left = iter(range(losses))

    def trouble(_node, request):
        if request.job.seed == 2 and next(left, None) is not None:
            return RayError("the process has ended")
        return None

    outcomes, events = troubled(trouble, nodes="a")

    assert {seed: outcome.state for seed, outcome in outcomes.items() if seed != 2} == (
        dict.fromkeys((0, 1, 3, 4), "done")
    )
    assert outcomes[2].state == state
    assert len(_places(events, request_of(2))) == 3
    if state == "failed":
        assert outcomes[2].why.startswith("its node or the process there was lost 3 times: ")


def _at_fault(request):
    why = "EnvironmentFault: /tmp: the disk is full"
    outcome = Outcome(request=request, state="failed", why=why, machine=True)
    return News(events=[], pieces=[], gone=[], outcome=outcome)


def test_a_node_at_fault_gets_no_more_jobs_and_its_job_goes_to_another(troubled, request_of):
    outcomes, events = troubled(
        lambda node, request: _at_fault(request) if node == "a" else None, nodes="ab"
    )

    assert {outcome.state for outcome in outcomes.values()} == {"done"}
    (aside,) = [event for event in events if isinstance(event, MachineEvent)]
    assert (aside.where[0], aside.state) == ("a", "set aside")
    assert aside.why == "EnvironmentFault: /tmp: the disk is full"
    ((first, second),) = (
        places for seed in range(5) if len(places := _places(events, request_of(seed))) > 1
    )
    assert (first, second) == ("a", "b")


@pytest.mark.parametrize(("faults", "state"), [(2, "done"), (3, "failed")])
def test_a_job_that_finds_every_machine_at_fault_has_failed_the_third_time(
    troubled, request_of, faults, state
):
    left = iter(range(faults))

    def trouble(_node, request):
        if request.job.seed == 2 and next(left, None) is not None:
            return _at_fault(request)
        return None

    outcomes, events = troubled(trouble, nodes="a")

    assert outcomes[2].state == state
    assert sum(outcome.state == "done" for outcome in outcomes.values()) == 4 + (state == "done")
    assert len(_places(events, request_of(2))) == 3
    told = [event.state for event in events if isinstance(event, MachineEvent)]
    assert told.count("set aside") == faults
    assert told.count("back") >= 2


@pytest.fixture
def engine(monkeypatch, tmp_path):
    """An engine that knows what its jobs need."""

    def engine(**keys):
        monkeypatch.setattr(cluster, "ray", _Ray(tmp_path, {"a": (1, 1, GB)}))
        made = RayEngine(**keys)
        made.needs = [SimpleNamespace(**{**vars(NEED), "host_bytes": 1}), NEED]
        return made

    return engine


def _node(*, labels=None, gpu_bytes=None, **resources):
    return cluster._Node(
        node_id="n",
        host="h",
        address="127.0.0.1",
        resources=resources,
        labels=labels or {},
        gpu_bytes=gpu_bytes,
    )


@pytest.mark.parametrize(
    ("resources", "keys", "room"),
    [
        ({"CPU": 7, "memory": 100 * GB}, {"device": "cpu", "threads": 2}, 3),
        ({"CPU": 7, "memory": 2.5 * GB}, {"device": "cpu", "threads": 1}, 2),
        ({"CPU": 7, "GPU": 2, "memory": 100 * GB}, {"device": "cpu", "slots": 3}, 7),
        ({"CPU": 7, "GPU": 2, "memory": 100 * GB}, {"device": "cuda", "slots": 3}, 6),
        ({"CPU": 7, "memory": 100 * GB}, {"device": "cuda", "slots": 3}, 0),
        ({"CPU": 1000, "GPU": 1, "memory": 9999 * GB}, {"device": "cuda", "slots": None}, 48),
    ],
)
def test_the_scarcest_resource_of_a_node_says_how_many_jobs_it_has_room_for(
    engine, resources, keys, room
):
    assert engine(**keys).room_on(_node(gpu_bytes=8000 * GB, **resources)) == room


def test_a_slot_asks_for_threads_memory_and_part_of_a_gpu(engine):
    node = _node(CPU=8, GPU=1, memory=100 * GB)
    asked = {"num_cpus": 2, "memory": GB}
    assert engine(device="cuda", slots=4, threads=2).asked_of(node) == {**asked, "num_gpus": 0.25}
    on_cpu = engine(device="cpu", slots=4, threads=2)
    assert on_cpu.asked_of(node) == {**asked, "num_gpus": 0}
    # Weights, best weights and moments twice, and the checkpoint: float32. The rest is for logs.
    assert on_cpu.disk_bytes == 9 * 4 * 1000 + (64 << 20)


@pytest.mark.parametrize(
    ("text", "labels", "resources", "has", "asked"),
    [
        ("zone=b", {"zone": "b"}, {}, True, {"label_selector": {"zone": "b"}}),
        ("zone=b", {"zone": "c"}, {"zone": 1.0}, False, {"label_selector": {"zone": "b"}}),
        ("zone=b=c", {"zone": "b=c"}, {}, True, {"label_selector": {"zone": "b=c"}}),
        ("fast", {}, {"fast": 1.0}, True, {"resources": {"fast": 0.001}}),
        ("fast", {"fast": "yes"}, {"fast": 0.0}, False, {"resources": {"fast": 0.001}}),
    ],
)
def test_nodes_are_chosen_by_a_label_or_a_resource(text, labels, resources, has, asked):
    chosen = cluster._Chosen.parse(text)
    assert chosen.has(_node(labels=labels, **resources)) == has
    assert chosen.asked == asked


@pytest.mark.parametrize(("variable", "patience_s"), [(None, 45.0), ("20", 15.0)])
def test_a_head_is_given_up_before_ray_ends_the_process(clock, monkeypatch, variable, patience_s):
    """Three quarters of the time after which Ray does: its default, or what its variable says."""
    monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", variable)
    watch = cluster._Watch(list)
    clock[0] += patience_s
    assert not watch.lost
    clock[0] += 0.1
    assert watch.lost


def test_nodes_are_listed_until_the_run_ends():
    with cluster._Watch(list) as watch:
        assert watch.is_alive()
    watch.join(timeout=10)
    assert not watch.is_alive()


@pytest.mark.parametrize("timeout_s", [0, 30])
def test_a_run_waits_for_a_node_as_long_as_it_is_told_to(
    clock, monkeypatch, runs, request_of, queue_of, timeout_s
):
    monkeypatch.setattr(cluster, "ray", _Ray(runs.folder, {}))
    engine, events = RayEngine(device="cpu", node_timeout_s=timeout_s), []
    assert engine.slots_for([NEED]).total == (timeout_s > 0), "it counts with one that comes"
    with pytest.raises(EnvironmentFault, match="no node of the Ray cluster auto can take a job"):
        list(engine.run(queue_of(request_of(1)), on_event=events.append))

    assert 100.0 + timeout_s <= clock[0] < 101.0 + timeout_s
    assert [(event.state, event.why) for event in events] == (
        [("without a node", "at most 30 s")] if timeout_s else []
    )


def test_a_node_that_was_set_aside_is_looked_at_again_after_a_minute(
    clock, monkeypatch, runs, request_of, queue_of
):
    monkeypatch.setattr(cluster, "ray", _Ray(runs.folder, {"a": (4, 0, GB)}))
    engine, events = RayEngine(device="cpu"), []
    watch = SimpleNamespace(nodes=engine._nodes())
    run = cluster._Run(engine, queue_of(request_of(1)), watch, on_event=events.append)
    (node,) = watch.nodes
    assert run._room_on(node, now=clock[0]) == 4
    for _ in range(2):
        run._set_aside(node, "no table", hint="copy it")

    assert [(event.state, event.why, event.hint) for event in events] == [
        ("set aside", "no table", "copy it")
    ]
    assert run._room_on(node, now=clock[0] + 59.9) == 0
    assert run._room_on(node, now=clock[0] + 60.0) == 1, "one slot suffices to look"


def test_a_job_is_claimed_once_and_not_when_it_is_done(request_of, runs):
    request = request_of(1)
    task = cluster._claimed(request)
    assert cluster._claimed(request) is None, "the first holds it"
    task.claim.close()
    runs.path(request.job.id).mkdir()
    (runs.path(request.job.id) / "record.json").touch()
    assert cluster._claimed(request) is None, "it is done"
    assert not runs.claimed(request.job.id)


def test_a_node_that_has_just_gone_has_no_fault_to_tell_of(run):
    events = []
    ray, _ = run({"a": (2, 1, 80 * GB), "b": (2, 1, 80 * GB)}, gone="b", on_event=events.append)

    assert ray.most == {"a": 1}
    assert [event for event in events if isinstance(event, MachineEvent)] == []


@pytest.fixture
def one_run(monkeypatch, runs, request_of, queue_of):
    """A run of a job on two nodes, of which nothing has happened yet, and its events."""
    monkeypatch.setattr(cluster, "ray", _Ray(runs.folder, {"a": (4, 0, GB), "b": (4, 0, GB)}))
    engine, events = RayEngine(device="cpu"), []
    watch = SimpleNamespace(nodes=engine._nodes())
    queue = queue_of(request_of(1))
    return cluster._Run(engine, queue, watch, on_event=events.append), events


def _slot_on(node, **state):
    """A slot whose actor gives no answer."""
    calls = dict.fromkeys(
        ("take_piece", "close", "stop"), SimpleNamespace(remote=lambda *_: object())
    )
    return cluster._Slot(node=node, actor=SimpleNamespace(**calls), **state)


def test_of_each_table_and_node_it_is_told_once_that_it_is_sent(one_run, monkeypatch):
    run, events = one_run
    monkeypatch.setattr(cluster, "read_piece", lambda wanted: wanted)
    info = TableInfo(fingerprint="f", manifest=b"m" * 1000, sizes={"x": 1_999_000}, digests={})
    run._tables = {"/data/t": info, "/data/u": info}
    for node in run._watch.nodes:
        for table in ("/data/t", "/data/u"):
            for offset in (0, 64):
                run._send_table(_slot_on(node), TablePiece(table=table, name="x", offset=offset))

    assert [(event.where[0], event.state, event.why) for event in events] == [
        (name, "sent a table", f"{table}, 2 MB") for name in "ab" for table in "tu"
    ]


def test_after_a_stop_the_slots_without_a_job_are_closed(one_run, request_of):
    run, _ = one_run
    task = cluster._claimed(request_of(2))
    busy, idle = (
        _slot_on(run._watch.nodes[0], state=state, task=task if state == "busy" else None)
        for state in ("busy", "idle")
    )
    run._slots = {busy, idle}
    run._queue.stop()
    assert list(run._hand_out()) == []

    assert run._slots == {busy}
    assert run._queue.left, "the job is for the next run"
    task.claim.close()


def test_a_run_that_is_broken_off_leaves_no_slot_and_no_claim(
    monkeypatch, runs, request_of, queue_of
):
    ray = _Ray(runs.folder, {"a": (4, 0, GB)})
    monkeypatch.setattr(cluster, "ray", ray)
    requests = [request_of(seed) for seed in range(4)]

    def interrupt(event):
        if isinstance(event, StartedEvent):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(RayEngine(device="cpu").run(queue_of(*requests), on_event=interrupt))
    assert len(ray.ever) == 4
    assert ray.actors == []
    assert not any(runs.claimed(request.job.id) for request in requests)
