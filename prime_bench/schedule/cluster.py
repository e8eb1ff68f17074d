"""The cluster engine: runs jobs on the nodes of a Ray cluster. The only module that imports ray.

A slot is an actor on a certain node, which keeps the CPUs and the part of a GPU that it was started
with, and its worker (`schedule.node`), until there are no more jobs for it. Ray decides when its
node has room for it, so that several runs never take more than there is. No disk is shared: a job's
files come back in pieces while it runs, and go along to another node when its own is lost.
"""

import contextlib
import functools
import logging
import os
import platform
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import ray
import ray._private.worker
from ray.exceptions import ActorUnschedulableError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from prime_bench.base.errors import EnvironmentFault, UsageError, UserError
from prime_bench.base.sources import own_sources
from prime_bench.base.words import counted
from prime_bench.catalog import is_foreign
from prime_bench.recipe.events import (
    MachineEvent,
    StartedEvent,
    WorkerEvent,
    read_event,
)
from prime_bench.recipe.job import JobRequest, MachineCheck
from prime_bench.schedule.devices import Device, check_devices
from prime_bench.schedule.engine import Outcome, Queue, by_record
from prime_bench.schedule.mirror import Copy, Source
from prime_bench.schedule.node import News, NodeSlot, identity
from prime_bench.schedule.plan import group_of
from prime_bench.schedule.slots import MPS_CLIENTS, Slots, jobs_in_memory, worker_variables
from prime_bench.schedule.table_copy import TableInfo, TablePiece, read_piece
from prime_bench.settings.memory import MemoryNeed
from prime_bench.settings.probes import PROBES
from prime_bench.store.record import NODE_VARIABLE, DeviceKind, RunRecord
from prime_bench.store.runs import LOG, PREDICTIONS, STATE, Runs

_LOOK_EVERY_S = 0.5
"""Longest wait for an answer of a slot before the run looks at the nodes again."""
_LIST_EVERY_S = 1.0
"""Time between two lists of the living nodes."""
_ANSWER_S = 10
"""Longest wait for a connection to the cluster's head."""
_ASK_EVERY_S = 5.0
"""Time between two reports to the autoscaler of what this run could use."""
_PLACED_S = 5.0
"""After this time a slot that its node has not started counts as waiting for room there, and
another one is started."""
_CHECK_S = 300.0
"""Longest wait for the answer to a check of a node: its worker imports torch, perhaps from a slow
network folder."""
_AGAIN_S = 60.0
"""Time after which a node that was set aside is checked again."""
_SOME_OF_IT = 0.001
"""How much of the resource that `--nodes` names a slot asks for: it must be there, and is not used
up."""
_UNITS = 10_000
"""Number of parts into which Ray divides a GPU."""
_CLOSE_S = 10.0
"""Longest wait for the slots to delete their folders as the run ends."""
_MAX_LOSSES = 3
"""A job whose node or process was lost so often has failed."""
_MAX_FAULTS = 3
"""A job with which so many machines had a fault has failed itself."""
# What Ray's own variable and default say; it ends this process when the time is over.
_RECONNECT_VARIABLE, _RECONNECT_S = "RAY_gcs_rpc_server_reconnect_timeout_s", 60.0
_MARGIN = 0.75
"""Share of that time after which the run gives the cluster up, with a message of its own."""
_SPARE_BYTES = 64 << 20
"""Free space for logs, predictions and a compiler's files."""
_STATE_COPIES = 2 * 4 + 1
"""Weights, best weights and two moments, twice while a saved state is replaced; and the
checkpoint."""
_FLOAT_BYTES = 4


class _Kind(NamedTuple):
    """What two runs of a pair must have in common, on whatever machines they run."""

    device: str
    torch: str

    def __str__(self) -> str:
        return f"{self.device} with torch {self.torch}"


class _Chosen(NamedTuple):
    """Which nodes take jobs: those with a label, or, without a value, with a resource."""

    key: str
    value: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `--nodes`: KEY=VALUE for a label, or the name of a resource."""
        key, equals, value = text.partition("=")
        return cls(key, value if equals else None)

    def has(self, node: "_Node") -> bool:
        """Whether a node is one of them."""
        if self.value is None:
            return bool(node.resources.get(self.key))
        return node.labels.get(self.key) == self.value

    @property
    def asked(self) -> dict[str, Any]:
        """The same for Ray, as options of a task."""
        if self.value is None:
            return {"resources": {self.key: _SOME_OF_IT}}
        return {"label_selector": {self.key: self.value}}


@dataclass(eq=False, kw_only=True)
class _Node:
    """A node of the cluster, as this run sees it."""

    node_id: str
    host: str
    address: str
    resources: dict[str, float]
    """What Ray counts on it: CPU, GPU, memory in bytes, and resources of the user's."""
    labels: dict[str, str]
    kind: _Kind | None = None
    """None before its first check was passed."""
    gpu_bytes: int | None = None
    """Memory of a GPU of it; None before its first check was passed, and without one."""
    fault: str = ""
    """Why it takes no jobs for now; empty if it does."""
    hint: str = ""
    broke: bool = False
    """Whether the fault was found by a job, and not by a check."""
    again_s: float = 0.0
    """When it is looked at again, on `time.monotonic`'s clock."""

    @property
    def where(self) -> str:
        """The node in a message."""
        return f"{self.host}, {self.address} (node {self.node_id[:8]})"


@dataclass(kw_only=True)
class _Task:
    """A job that a slot was given, and the caller's claim on it."""

    request: JobRequest
    runs: Runs
    """The caller's folder of records, to which the job's files are copied."""
    claim: contextlib.ExitStack
    """Gives the claim back when it is closed."""

    @property
    def job_id(self) -> str:
        return self.request.job.id


@dataclass(eq=False, kw_only=True)
class _Slot:
    """A slot from the side of the caller. In every state but `idle` one call of its actor has not
    been answered yet, and `_Run._advance` goes on from the answer:

    placing         `hello`: Ray has not started it yet, or has no room for it
    taking tables   `take_tables`, `take_piece`: its node gets the tables that it lacks
    checking        `check`: its node looks for what the jobs need
    idle            it waits for a job
    sending         `receive`, `begin`: a job is handed over
    busy            `look`: the job runs; then the slot is idle again
    """

    node: _Node
    actor: Any
    """Ray's handle of its `NodeSlot`."""
    state: Literal["placing", "taking tables", "checking", "idle", "sending", "busy"] = "placing"
    since_s: float = field(default_factory=time.monotonic)
    """When it was started, and then when its check began, on `time.monotonic`'s clock."""
    task: _Task | None = None
    """The job that is handed over or runs; None in the first four states."""
    calls: Iterator[Any] = field(default_factory=lambda: iter(()))
    """Calls that hand the job over, one after the other."""


class RayEngine:
    """Runs jobs on the nodes of a Ray cluster. This machine must be one of its nodes."""

    def __init__(
        self,
        *,
        address: str = "auto",
        device: str = "auto",
        slots: int | None = 1,
        threads: int = 1,
        job_timeout_s: float | None = None,
        nodes: str | None = None,
        node_timeout_s: float = 0,
        mixed_devices: bool = False,
        sync_data: bool = False,
    ) -> None:
        """Connect to the cluster.

        Args:
            address: HOST:PORT, or `auto` for the cluster that runs on this machine.
            device: `cpu`, `cuda`, or `auto` for cuda if a node has a GPU.
            slots: Jobs that share a GPU; None for as many as its memory holds and its node has
                CPUs for. On CPUs it has no effect.
            threads: CPUs of its node that a job takes.
            job_timeout_s: Seconds after which a job is killed; it has then failed.
            nodes: Which nodes take jobs: `KEY=VALUE` for a label that Ray knows of them, or the
                name of one of their resources; None for all.
            node_timeout_s: Seconds for which the run waits for a node that can take a job where
                none is there, as on a cluster whose autoscaler starts nodes on demand.
            mixed_devices: Whether arms that are compared may run on different models of a
                device, or under different versions of torch.
            sync_data: Whether nodes are sent the tables that they lack.

        Raises:
            UsageError: If `device` has an index: Ray chooses the GPU.
            EnvironmentFault: If no cluster answers, or, with nothing to wait for, no node is one
                of `nodes`, or `device` is `cuda` and no node has a GPU.
        """
        if device not in ("auto", "cpu", "cuda"):
            check_devices(device)
            raise UsageError(
                f"--device {device}: with --engine ray the cluster chooses which one",
                hint="use `cpu`, `cuda` or `auto`",
            )
        _connect(address)
        self.address = address
        self._chosen = None if nodes is None else _Chosen.parse(nodes)
        found = self._nodes()
        if nodes is not None and not found and not node_timeout_s:
            raise EnvironmentFault(
                f"no node of the Ray cluster has `{nodes}`, a label as KEY=VALUE or a resource",
                hint="give it to a node with `ray start --labels KEY=VALUE`",
            )
        has_gpu = any(node.resources.get("GPU") for node in found)
        if device == "cuda" and not has_gpu and not node_timeout_s:
            raise EnvironmentFault(
                f"device cuda is not there: no node of the Ray cluster {address} has a GPU",
                hint="use `auto` or `cpu`, or start a node with `ray start --num-gpus`",
            )
        on_gpu = device == "cuda" or (device == "auto" and has_gpu)
        self.device_kind: DeviceKind = "cuda" if on_gpu else "cpu"
        # The nodes' devices may differ, so it has no name.
        self.device = Device(name="cpu" if self.device_kind == "cpu" else "cuda:0")
        self.n_slots, self.threads = slots, threads
        self.job_timeout_s, self.node_timeout_s = job_timeout_s, node_timeout_s
        self.mixed_devices, self.sync_data = mixed_devices, sync_data
        self.stopping = False
        self.needs: Sequence[MemoryNeed] = ()

    def slots_for(
        self,
        needs: Sequence[MemoryNeed],
        *,
        n_jobs: int | None = None,  # noqa: ARG002  # all nodes are there anyway
    ) -> Slots:
        """How many jobs the living nodes run at once, and with how many threads."""
        self.needs = needs
        total = sum(self.room_on(node) for node in self._nodes())
        if self.node_timeout_s:
            total = max(total, 1)
        if self.asks_for_gpu_memory:
            why = "or more, once the memory of the nodes' GPUs is known"
            return Slots(on_each=1, total=total, threads=self.threads, bound=why)
        return Slots(on_each=self.n_slots or 1, total=total, threads=self.threads)

    def run(
        self,
        queue: Queue,
        *,
        slots: Slots | None = None,  # noqa: ARG002  # nodes may come and go meanwhile
        on_event: Callable[[WorkerEvent], None],
    ) -> Iterator[Outcome]:
        """Run the jobs of the queue, and yield the final outcome of each when its files are here.

        Jobs of a node that is lost go on elsewhere from their last validation, and so do those of a
        node with a fault of its own. This process claims the jobs.

        Raises:
            EnvironmentFault: If no node is left that can take jobs, or the cluster's head is lost.
        """
        with _Watch(self._nodes) as watch, _Run(self, queue, watch, on_event=on_event) as run:
            yield from run.outcomes()

    def stop(self) -> None:
        """Start no more jobs, and end the running ones after their next validation."""
        self.stopping = True

    def room_on(self, node: _Node) -> int:
        """Number of jobs that a node can run at once, if nobody else uses it."""
        rooms = [node.resources.get("CPU", 0) // self.threads]
        if self.device_kind == "cuda":
            rooms.append(node.resources.get("GPU", 0) * self.on_each_gpu(node))
        if self.host_bytes:
            rooms.append(node.resources.get("memory", 0) // self.host_bytes)
        return int(min(rooms))

    def on_each_gpu(self, node: _Node) -> int:
        """Number of jobs that share a GPU of a node: one as long as its memory is not known."""
        if self.n_slots is not None:
            return self.n_slots
        if node.gpu_bytes is None:
            return 1
        cores_each = node.resources.get("CPU", 0) / max(node.resources.get("GPU", 0), 1)
        by_cores = int(cores_each // self.threads)
        return max(1, min(jobs_in_memory(self.needs, node.gpu_bytes), by_cores, MPS_CLIENTS))

    def asked_of(self, node: _Node) -> dict[str, Any]:
        """What a slot takes of its node, as options of Ray's tasks and actors."""
        return self._asked(on_each=self.on_each_gpu(node))

    @property
    def asked_anywhere(self) -> dict[str, Any]:
        """What a slot takes on any of the chosen nodes, also where their GPUs are not known yet."""
        chosen = self._chosen.asked if self._chosen else {}
        return {**self._asked(on_each=self.n_slots or 1), **chosen}

    def _asked(self, *, on_each: int) -> dict[str, Any]:
        # Rounded down as Ray counts: 7 x 0.1429 would be more than one.
        part = 1 if on_each == 1 else _UNITS // on_each / _UNITS
        return {
            "num_cpus": self.threads,
            "num_gpus": part if self.device_kind == "cuda" else 0,
            "memory": self.host_bytes or None,
        }

    @property
    def asks_for_gpu_memory(self) -> bool:
        """Whether the memory of a node's GPU decides how many jobs share it."""
        return self.n_slots is None and self.device_kind == "cuda"

    @property
    def host_bytes(self) -> int:
        """Memory of its node that a slot takes, in bytes; 0 where nothing is known."""
        return max((need.host_bytes for need in self.needs), default=0)

    @property
    def disk_bytes(self) -> int:
        """What has to be free in the temporary folder of a node, in bytes."""
        parameters = max((need.parameters for need in self.needs), default=0)
        return _STATE_COPIES * _FLOAT_BYTES * parameters + _SPARE_BYTES

    def _nodes(self) -> list[_Node]:
        """The living nodes of the cluster that may take jobs."""
        found = [
            _Node(
                node_id=node["NodeID"],
                host=node["NodeManagerHostname"],
                address=node["NodeManagerAddress"],
                resources=node["Resources"],
                labels=node.get("Labels") or {},
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]
        return [node for node in found if self._chosen is None or self._chosen.has(node)]


class _Watch(threading.Thread):
    """Lists the living nodes every second, in a thread of its own: without a head Ray does not
    answer, and after a minute it ends the process.
    """

    def __init__(self, list_nodes: Callable[[], list[_Node]]) -> None:
        super().__init__(daemon=True)
        self._list = list_nodes
        self._end = threading.Event()
        self.nodes = list_nodes()
        self._seen_s = time.monotonic()
        patience = float(os.environ.get(_RECONNECT_VARIABLE) or _RECONNECT_S)
        self._patience_s = _MARGIN * patience

    @property
    def lost(self) -> bool:
        """Whether the cluster's head has not answered for so long that it has to be given up."""
        return time.monotonic() - self._seen_s > self._patience_s

    def run(self) -> None:
        """List the nodes until the end. Called by `start`."""
        while not self._end.wait(_LIST_EVERY_S):
            # Any error is one of the connection, and shows in the time of the last answer.
            with contextlib.suppress(Exception):
                self.nodes = self._list()
                self._seen_s = time.monotonic()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; the thread is not waited for, since Ray may not answer it."""
        self._end.set()


class _Run:
    """One run: its slots, what each is doing, and what is known of the nodes."""

    def __init__(
        self,
        engine: RayEngine,
        queue: Queue,
        watch: _Watch,
        *,
        on_event: Callable[[WorkerEvent], None],
    ) -> None:
        self._engine, self._queue, self._watch = engine, queue, watch
        self._on_event = on_event
        requests = [work.request for work in queue.left]
        self._check = _check_of(requests, device=engine.device.name).plain()
        self._sources = _sources_of(requests)
        self._tables: dict[str, TableInfo] = {}
        if engine.sync_data:
            tables = dict.fromkeys(_absolute_table(request) for request in requests)
            self._tables = {table: TableInfo.read(Path(table)) for table in tables}
        self._told_of: set[tuple[str, str]] = set()
        """Pairs of a node and a table about which the user was told that the node is sent it."""
        self._identity = identity()
        self._pairs = _Pairs(requests, allow_mixed=engine.mixed_devices)
        self._nodes: dict[str, _Node] = {}
        self._slots: set[_Slot] = set()
        self._answers: dict[Any, _Slot] = {}
        """What each slot was asked last."""
        self._closing: dict[Any, Any] = {}
        """The answer of an actor that was asked to close -> the actor."""
        self._losses: Counter[str] = Counter()
        """How often the node or process of each job was lost, by its id."""
        self._faults: Counter[str] = Counter()
        """How often each job met a fault of a machine, by its id."""
        self._here = ray.get_runtime_context().get_node_id()
        self._demand = _Demand(engine.asked_anywhere)
        self._could_run_s = time.monotonic()
        """When a job ran, or a node might have taken one, for the last time."""
        self._n_done = 0
        self._asked_to_stop = self._said_waiting = self._said_no_node = False

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcome of each job as it ends, until all have ended or the run is to stop.

        Raises EnvironmentFault if the head of the cluster is lost.
        """
        while True:
            if self._watch.lost:
                raise self._cut_off("the head")
            self._stop_if_asked()
            self._see_nodes()
            self._start_slots()
            yield from self._hand_out()
            if any(slot.task for slot in self._slots):
                self._could_run_s = time.monotonic()
            else:
                if self._queue.stopped or not self._queue.open:
                    return
                yield from self._give_up_what_cannot_run()
            yield from self._take_answers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all slots, jobs that still run among them, and leave the cluster."""
        self._demand.ask(0)
        for slot in list(self._slots):
            self._drop(slot)
        with contextlib.suppress(RayError, OSError):
            ray.wait(list(self._closing), num_returns=len(self._closing) or 1, timeout=_CLOSE_S)
        for actor in self._closing.values():
            ray.kill(actor)
        ray.shutdown()

    # -- the cluster ---------------------------------------------------------------------------

    def _cut_off(self, which: str) -> EnvironmentFault:
        """The error where the cluster no longer answers: what is safe, and how to go on."""
        n_left = len(self._queue.left) + sum(slot.task is not None for slot in self._slots)
        return EnvironmentFault(
            f"{which} of the Ray cluster {self._engine.address} no longer answers; of this "
            f"run {counted(self._n_done, 'record')} safe, {counted(n_left, 'job')} left",
            hint="start it again, `ray start --head`, and the other nodes with it; the same "
            "command then continues each job from its last validation",
        )

    def _stop_if_asked(self) -> None:
        if self._engine.stopping and not self._asked_to_stop:
            self._asked_to_stop = True
            self._queue.stop()
            for slot in self._slots:
                if slot.state == "busy":
                    slot.actor.stop.remote()

    def _see_nodes(self) -> None:
        """Take in which nodes have joined or gone."""
        living = {node.node_id: node for node in self._watch.nodes}
        for node_id in self._nodes.keys() - living.keys():
            node = self._nodes.pop(node_id)
            self._say(node, "lost", "it has left the cluster, or does not answer")
        for node_id in living.keys() - self._nodes.keys():
            self._nodes[node_id] = living[node_id]

    def _start_slots(self) -> None:
        """Start as many slots as there are jobs for, evenly on the nodes that can take them."""
        now = time.monotonic()
        n_slots = Counter(slot.node.node_id for slot in self._slots)
        n_ready = sum(
            slot.task is None and (slot.state != "placing" or now - slot.since_s < _PLACED_S)
            for slot in self._slots
        )
        n_wanted = 0 if self._queue.stopped else len(self._queue.left) - n_ready
        while n_wanted > 0:
            with_room = [
                node
                for node in self._nodes.values()
                if n_slots[node.node_id] < self._room_on(node, now=now)
            ]
            if not with_room:
                break
            node = min(with_room, key=lambda node: n_slots[node.node_id])
            self._start_slot(node)
            n_slots[node.node_id] += 1
            n_wanted -= 1
        unseen = [node for node in self._nodes.values() if node.kind is None and not node.fault]
        n_coming = sum(self._engine.room_on(node) - n_slots[node.node_id] for node in unseen)
        self._demand.ask(max(n_wanted - n_coming, 0))

    def _room_on(self, node: _Node, *, now: float) -> int:
        """How many slots a node may have: one to look at it again if it was set aside, and one to
        take its tables, or to tell how many jobs the memory of its GPU holds.
        """
        room = self._engine.room_on(node)
        if node.kind is None and (self._tables or self._engine.asks_for_gpu_memory):
            room = min(room, 1)
        return room if not node.fault else min(room, now >= node.again_s)

    def _start_slot(self, node: _Node) -> None:
        engine = self._engine
        # How many other jobs share a node's CPU is not known here.
        shared = {}
        if engine.device_kind == "cuda":
            shared = worker_variables("cuda", on_each=engine.on_each_gpu(node))
        # By a call and not as a decorator: Ray then names the class, and the node has its own.
        slot_class: Any = ray.remote(NodeSlot)
        actor = slot_class.options(
            **engine.asked_of(node),
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
            max_concurrency=4,
        ).remote({**shared, NODE_VARIABLE: node.node_id})
        slot = _Slot(node=node, actor=actor)
        self._slots.add(slot)
        self._answers[actor.hello.remote()] = slot

    def _set_aside(
        self, node: _Node, fault: str, *, hint: str = "", broke: bool = False, say: bool = True
    ) -> None:
        """Give a node no more jobs for a while, and say so once."""
        if say and node.fault != fault:
            self._say(node, "set aside", fault, hint=hint)
        node.fault, node.hint, node.broke = fault, hint, broke
        node.again_s = time.monotonic() + _AGAIN_S
        for slot in list(self._slots):
            if slot.node is node and slot.task is None:
                self._drop(slot)

    def _say(
        self,
        node: _Node,
        state: Literal["waited for", "set aside", "back", "lost", "sent a table"],
        why: str = "",
        *,
        hint: str = "",
    ) -> None:
        self._on_event(MachineEvent(where=node.where, state=state, why=why, hint=hint))

    def _give_up_what_cannot_run(self) -> Iterator[Outcome]:
        """Called while no job runs, and some could. Raise EnvironmentFault if no node can take a
        job; yield the outcomes of those that no node may take.
        """
        now = time.monotonic()
        idle = [slot for slot in self._slots if slot.state == "idle"]
        if idle and len(idle) == len(self._slots):
            while (request := self._queue.take(wait=False)) is not None:
                why = (
                    f"what it is compared with ran on {self._pairs.kind_of(request)}, and no node "
                    "of that kind is left; --allow-mixed-devices runs it on another"
                )
                yield from self._queue.settle(Outcome(request=request, state="not run", why=why))
        elif self._slots:
            waiting = [slot for slot in self._slots if slot.state == "placing"]
            long = [slot for slot in waiting if now - slot.since_s > _PLACED_S]
            if long and len(long) == len(self._slots) and not self._said_waiting:
                self._said_waiting = True
                self._say(long[0].node, "waited for", "others use all that this run asks for")
        elif broken := [node for node in self._nodes.values() if node.broke]:
            # A fault that a job has met may have gone with it.
            for node in broken:
                node.broke, node.again_s = False, now
        elif now - self._could_run_s >= self._engine.node_timeout_s:
            raise self._no_node()
        elif not self._said_no_node:
            self._said_no_node = True
            cluster = f"Ray cluster {self._engine.address}"
            longest = f"at most {self._engine.node_timeout_s:.0f} s"
            self._on_event(MachineEvent(where=cluster, state="without a node", why=longest))

    def _no_node(self) -> EnvironmentFault:
        engine, address = self._engine, self._engine.address
        asked = f"{engine.threads} CPUs"
        if engine.device_kind == "cuda":
            asked += f", 1/{engine.n_slots or 1} of a GPU"
        if engine.host_bytes:
            asked += f", {engine.host_bytes / 1e9:.1f} GB of memory"
        faults = [f"{node.where}: {node.fault}" for node in self._nodes.values() if node.fault]
        small = len(self._nodes) - len(faults)
        lines = [f"no node of the Ray cluster {address} can take a job", *faults]
        if small or not faults:
            lines.append(f"{counted(small, 'node')} with less than a job wants: {asked}")
        hints = dict.fromkeys(node.hint for node in self._nodes.values() if node.hint)
        if not faults and not engine.node_timeout_s:
            hints["--node-timeout SECONDS waits for nodes that an autoscaler starts"] = None
        return EnvironmentFault("\n".join(lines), hint="; ".join(hints))

    # -- slots ---------------------------------------------------------------------------------

    def _hand_out(self) -> Iterator[Outcome]:
        """Give jobs to the slots that have none, and close those for which there are none."""
        for slot in [slot for slot in self._slots if slot.state == "idle"]:
            while not slot.node.fault:
                fits = functools.partial(self._pairs.fits, kind=slot.node.kind)
                request = self._queue.take(wait=False, device=slot.node.where, fits=fits)
                if request is None:
                    break
                if (task := _claimed(request)) is not None:
                    self._give(slot, task)
                    break
                why = "another process has it"
                yield from self._queue.settle(Outcome(request=request, state="skipped", why=why))
        if self._queue.stopped or not self._queue.left:
            for slot in list(self._slots):
                if slot.task is None:
                    self._drop(slot)

    def _give(self, slot: _Slot, task: _Task) -> None:
        self._pairs.bind(task.request, slot.node.kind)
        slot.task, slot.state = task, "sending"
        slot.calls = _calls(slot.actor, task, engine=self._engine)
        self._answers[next(slot.calls)] = slot
        self._on_event(StartedEvent(job_id=task.job_id, where=slot.node.where))

    def _take_answers(self) -> Iterator[Outcome]:
        """Wait for the next answers of slots, and go on from there."""
        asked = [*self._answers, *self._closing]
        if not asked:
            time.sleep(_LOOK_EVERY_S)
            return
        try:
            ray.wait(asked, timeout=_LOOK_EVERY_S)
            ready, _ = ray.wait(asked, num_returns=len(asked), timeout=0)
        except OSError as error:
            raise self._cut_off("the head, or the node of this machine,") from error
        for reference in ready:
            if (actor := self._closing.pop(reference, None)) is not None:
                ray.kill(actor)
            elif (slot := self._answers.pop(reference, None)) is not None:
                yield from self._advance(slot, reference)
        for reference, slot in list(self._answers.items()):
            if slot.state == "checking" and time.monotonic() - slot.since_s > _CHECK_S:
                del self._answers[reference]
                self._set_aside(slot.node, f"it did not answer a check within {_CHECK_S:.0f} s")

    def _advance(self, slot: _Slot, reference: Any) -> Iterator[Outcome]:
        """Go on with a slot that has answered, or was lost."""
        task = slot.task
        try:
            answer = ray.get(reference)
        except (RayTaskError, UserError) as error:
            if task is None:
                self._set_aside(slot.node, f"it cannot be asked: {_reason(error)}")
            else:
                why = _reason(error)
                fault = Outcome(request=task.request, state="failed", why=why, machine=True)
                yield from self._ended(slot, task, fault)
            return
        except RayError as error:
            # Of a node that is gone it is said when it is no longer listed.
            gone = isinstance(error, ActorUnschedulableError)
            yield from self._lost(slot, _reason(error), say=not gone)
            return
        if slot.state == "placing":
            self._take_identity(slot, answer)
        elif slot.state == "taking tables":
            self._send_table(slot, answer)
        elif slot.state == "checking":
            self._take_check(slot, answer)
        elif slot.state == "sending" and task is not None:
            yield from self._send_more(slot, task)
        elif task is not None:
            yield from self._take_news(slot, task, answer)

    def _send_more(self, slot: _Slot, task: _Task) -> Iterator[Outcome]:
        """Go on with handing a job over, and then follow it."""
        call = next(slot.calls, None)
        if call is not None and self._asked_to_stop:
            stopped = Outcome(request=task.request, state="interrupted", why="not started")
            yield from self._ended(slot, task, stopped)
            return
        if call is None:
            slot.state, call = "busy", slot.actor.look.remote()
            if self._asked_to_stop:
                slot.actor.stop.remote()
        self._answers[call] = slot

    def _take_identity(self, slot: _Slot, answer: dict[str, Any]) -> None:
        """Have the node look for what the jobs need, if it has the same version."""
        found = {key: answer.get(key) for key in self._identity}
        if found != self._identity:
            own = self._identity
            fault = (
                f"it has prime-bench {found['version']} with numerics {found['numerics']}, this "
                f"machine {own['version']} with {own['numerics']}"
            )
            if found["version"] == own["version"]:
                fault = f"its prime-bench {own['version']} has other source files than this one"
            self._set_aside(slot.node, fault, hint="install the same version of prime-bench there")
            return
        if self._tables:
            slot.state = "taking tables"
            self._answers[slot.actor.take_tables.remote(self._tables)] = slot
        else:
            self._have_checked(slot)

    def _send_table(self, slot: _Slot, wanted: TablePiece | tuple[str, str] | None) -> None:
        """Send the piece of a table that a node wants next; go on if it has all."""
        node = slot.node
        if wanted is None:
            self._have_checked(slot)
        elif isinstance(wanted, tuple):
            self._set_aside(node, wanted[0], hint=wanted[1])
        else:
            if (node.node_id, wanted.table) not in self._told_of:
                self._told_of.add((node.node_id, wanted.table))
                size = self._tables[wanted.table].total_bytes
                self._say(node, "sent a table", f"{Path(wanted.table).name}, {size / 1e6:,.0f} MB")
            self._answers[slot.actor.take_piece.remote(read_piece(wanted))] = slot

    def _have_checked(self, slot: _Slot) -> None:
        slot.state, slot.since_s = "checking", time.monotonic()
        asked = slot.actor.check.remote(
            self._check, self._sources, free_bytes=self._engine.disk_bytes
        )
        self._answers[asked] = slot

    def _take_check(self, slot: _Slot, answer: dict[str, Any]) -> None:
        node = slot.node
        if answer["faults"]:
            messages = dict.fromkeys(message for message, _ in answer["faults"])
            hints = dict.fromkeys(hint for _, hint in answer["faults"] if hint)
            self._set_aside(node, "; ".join(messages), hint="; ".join(hints))
            return
        if node.fault and time.monotonic() >= node.again_s:
            node.fault, node.hint, node.broke = "", "", False
            self._say(node, "back")
        known = node.gpu_bytes is not None
        node.kind, node.gpu_bytes = _Kind(answer["device"], answer["torch"]), answer["gpu_bytes"]
        if not known and self._engine.asks_for_gpu_memory and self._engine.on_each_gpu(node) > 1:
            # It has a whole GPU, from which smaller ones follow.
            self._drop(slot)
        else:
            slot.state = "idle"

    def _take_news(self, slot: _Slot, task: _Task, news: News) -> Iterator[Outcome]:
        """Write what has come of a job's files, and pass its events on."""
        copy = Copy(task.runs.path(task.job_id))
        for line in news.events:
            if (event := read_event(line)) is not None:
                self._on_event(event)
        for piece in news.pieces:
            copy.add(piece)
        for name in news.gone:
            copy.remove(name)
        if news.outcome is None:
            self._answers[slot.actor.look.remote()] = slot
            return
        outcome = by_record(news.outcome, task.request, task.runs)
        yield from self._ended(slot, task, outcome)

    def _ended(self, slot: _Slot, task: _Task, outcome: Outcome) -> Iterator[Outcome]:
        """Settle how a job has ended. A fault of its node is not counted as one of the job."""
        task.claim.close()
        slot.task, slot.state = None, "idle"
        self._n_done += outcome.state == "done"
        if outcome.machine and outcome.state == "failed":
            self._faults[task.job_id] += 1
            self._set_aside(slot.node, outcome.why, broke=True)
            if self._faults[task.job_id] < _MAX_FAULTS:
                self._queue.put_back(task.request)
                return
        final = self._queue.settle(outcome)
        if not final:
            self._on_event(self._queue.retry_event(outcome, device=slot.node.where))
        yield from final

    def _lost(self, slot: _Slot, why: str, *, say: bool) -> Iterator[Outcome]:
        """Go on after the process of a slot, or its node, is gone. Its job goes on elsewhere."""
        self._slots.discard(slot)
        if (task := slot.task) is None:
            if slot.node.node_id in self._nodes:
                self._set_aside(slot.node, f"it cannot run a worker: {why}", say=say)
            return
        task.claim.close()
        self._losses[task.job_id] += 1
        if self._losses[task.job_id] < _MAX_LOSSES:
            self._queue.put_back(task.request)
            return
        whole = f"its node or the process there was lost {_MAX_LOSSES} times: {why}"
        yield from self._queue.settle(Outcome(request=task.request, state="failed", why=whole))

    def _drop(self, slot: _Slot) -> None:
        """End a slot, and the job in it."""
        self._slots.discard(slot)
        for reference in [ref for ref, asked in self._answers.items() if asked is slot]:
            del self._answers[reference]
        if slot.task is not None:
            slot.task.claim.close()
        if slot.state == "placing":
            ray.kill(slot.actor)
        else:
            self._closing[slot.actor.close.remote()] = slot.actor


class _Demand:
    """What this run could use and the cluster has no room for, in a form that Ray's autoscaler
    sees: tasks that do nothing and wait until there is room.

    Ray drops them with this process, however it ends. Its `request_resources` knows one request for
    the whole cluster, which another run would replace and a killed one would leave.
    """

    def __init__(self, asked: dict[str, Any]) -> None:
        # A function of the standard library, which each node has in whatever version of ours.
        self._task: Any = ray.remote(platform.node).options(**asked, max_retries=0)
        self._waiting: list[Any] = []
        self._asked_s = -_ASK_EVERY_S

    def ask(self, n_slots: int) -> None:
        """Keep tasks for `n_slots` further slots waiting with Ray, so that an autoscaler sees them.

        Tasks that got room are replaced every few seconds: the room may have been on a node that
        takes no jobs.
        """
        now = time.monotonic()
        if n_slots and now - self._asked_s < _ASK_EVERY_S:
            return
        self._asked_s = now
        if self._waiting:
            n_waiting = len(self._waiting)
            _, self._waiting = ray.wait(self._waiting, num_returns=n_waiting, timeout=0)
        while len(self._waiting) > n_slots:
            ray.cancel(self._waiting.pop())
        self._waiting += [self._task.remote() for _ in range(n_slots - len(self._waiting))]


class _Pairs:
    """The one kind of device for jobs that are compared with each other.

    It is that of the first of them that has a record or was given to a node.
    """

    def __init__(self, requests: Sequence[JobRequest], *, allow_mixed: bool) -> None:
        self._allow_mixed = allow_mixed
        self._groups: dict[str, str] = {}
        """The group of jobs that are compared with each other (`plan.group_of`), by job id."""
        self._kinds: dict[str, _Kind] = {}
        """The kind of device of each group that has one."""
        for folder in dict.fromkeys(request.runs for request in requests):
            records, _ = Runs(Path(folder)).readable()
            for record in records:
                if isinstance(record, RunRecord):
                    found = record.environment
                    kind = _Kind(found.device, found.versions.get("torch", ""))
                    self._kinds.setdefault(group_of(record.job), kind)

    def fits(self, request: JobRequest, *, kind: _Kind | None) -> bool:
        """Whether the job may run on a device of that kind."""
        return self._allow_mixed or self._kinds.get(self._group(request), kind) == kind

    def bind(self, request: JobRequest, kind: _Kind | None) -> None:
        """Note that the job runs on a device of that kind."""
        if kind is not None:
            self._kinds.setdefault(self._group(request), kind)

    def kind_of(self, request: JobRequest) -> _Kind | None:
        """The kind of device on which the job has to run; None for any."""
        return self._kinds.get(self._group(request))

    def _group(self, request: JobRequest) -> str:
        job_id = request.job.id
        if job_id not in self._groups:
            self._groups[job_id] = group_of(request.job.training_run)
        return self._groups[job_id]


def _check_of(requests: Sequence[JobRequest], *, device: str) -> MachineCheck:
    """All that these jobs need on a machine. Tables have absolute paths: nodes have other working
    folders.
    """
    jobs = [request.job for request in requests]
    return MachineCheck(
        tables={_absolute_table(request): request.job.fingerprint for request in requests},
        backbones={job.backbone: job.code.get(job.backbone) for job in jobs},
        plugins={job.plugin: job.code.get(job.plugin) for job in jobs},
        device=device,
    )


def _sources_of(requests: Sequence[JobRequest]) -> dict[str, bytes]:
    """Path -> content of the user's own modules that the jobs name, for nodes without them."""
    names = {name for request in requests for name in (request.job.backbone, request.job.plugin)}
    modules = {name.partition(":")[0] for name in names if is_foreign(name)}
    return {path: text for module in modules for path, text in own_sources(module).items()}


def _claimed(request: JobRequest) -> _Task | None:
    """Claim the job of a request; None if another process has claimed it or has done it."""
    runs, claim = Runs(Path(request.runs)), contextlib.ExitStack()
    if claim.enter_context(runs.claim(request.job.id)) and not runs.done(request.job.id):
        return _Task(request=request, runs=runs, claim=claim)
    claim.close()
    return None


def _calls(actor: Any, task: _Task, *, engine: RayEngine) -> Iterator[Any]:
    """The calls that hand a job over: its files in pieces, then the request."""
    job = task.request.job
    sources = {task.job_id: Source(task.runs.path(task.job_id), only=(LOG, STATE))}
    if job.kind != "train" and PROBES[job.kind].reads_checkpoint:
        trained = task.runs.path(job.training_run.id)
        names = {*Copy(trained).names()} - {STATE, PREDICTIONS}
        sources[job.training_run.id] = Source(trained, only=names)
    for job_id, source in sources.items():
        all_sent = False
        while not all_sent:
            pieces, _, all_sent = source.news(whole=True)
            if pieces:
                yield actor.receive.remote(job_id, pieces)
    there = {"device": engine.device.name, "table": _absolute_table(task.request)}
    yield actor.begin.remote(
        task.request.model_copy(update=there).plain(),
        present=Copy(task.runs.path(task.job_id)).names(),
        timeout_s=engine.job_timeout_s,
    )


def _absolute_table(request: JobRequest) -> str:
    return str(Path(request.table).absolute())


def _connect(address: str) -> None:
    try:
        _look_for(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise EnvironmentFault(
            f"no Ray cluster at {address}: {_reason(error)}",
            hint="start one, `ray start --head`, and join other machines to it, `ray start "
            "--address HOST:PORT`; where the cluster asks for a token, set RAY_AUTH_MODE=token",
        ) from error
    # Ray prints on stdout which nodes it has lost, and has no option against it.
    ray._private.worker.print_to_stdstream = lambda *_arguments, **_keys: None


def _look_for(address: str) -> None:
    """Raise OSError or ValueError if nothing answers at HOST:PORT.

    Ray would wait for minutes without a message. Other addresses (`auto`) are left to Ray.
    """
    host, colon, port = address.rpartition(":")
    if colon and "/" not in address:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()


_ERROR_LINE = re.compile(r"\s*[\w.]*(Error|Exception|Fault|Interrupt)\b.*: \S.*")


def _reason(error: Exception) -> str:
    """What has gone wrong, in a line: Ray puts tracebacks around it, and advice below it."""
    if isinstance(error, UserError):
        return error.message
    if isinstance(error, RayTaskError) and error.cause is not None:
        return f"{type(error.cause).__name__}: {error.cause}".strip().splitlines()[0]
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.fullmatch(line)]
    return [type(error).__name__, *lines[:1], *errors][-1]
