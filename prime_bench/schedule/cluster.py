"""The cluster engine: runs jobs as tasks of Ray. The only module that imports ray.

A task starts a worker in a temporary folder of its node and returns the job's files, which are
written to the caller's folder of runs. No disk is shared; each node has a copy of the tables.
"""

import contextlib
import json
import logging
import os
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from prime_bench import __version__
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.files import write_whole
from prime_bench.base.identity import NUMERICS
from prime_bench.data.manifest import Manifest
from prime_bench.recipe.events import WorkerEvent
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.child import Child
from prime_bench.schedule.devices import Device, check_devices
from prime_bench.schedule.engine import End, Outcome, Queue
from prime_bench.schedule.slots import Slots, worker_variables
from prime_bench.settings.memory import MemoryNeed
from prime_bench.settings.probes import PROBES
from prime_bench.store.record import DeviceKind
from prime_bench.store.runs import RECORD, Runs

DATA_VARIABLE = "PRIME_BENCH_DATA"
_LOOK_EVERY_S = 0.5
_MAX_LOSSES = 3
_CHECK_TIMEOUT_S = 120
_ANSWER_S = 10

Files = dict[str, bytes]
"""Path below a folder of runs, `<job id>/<name>` -> content."""


@dataclass(frozen=True, kw_only=True)
class _Node:
    """A node of the cluster."""

    node_id: str
    address: str
    cpus: float
    gpus: float

    @property
    def name(self) -> str:
        """The node in a message."""
        return f"{self.address} ({self.node_id[:8]})"


@dataclass(frozen=True, kw_only=True)
class _Running:
    """A running task: its request, and the caller's claim on the job."""

    request: JobRequest
    runs: Runs
    claim: contextlib.ExitStack


class RayEngine:
    """Runs jobs on the nodes of a Ray cluster. This machine must be one of its nodes."""

    def __init__(
        self,
        *,
        address: str = "auto",
        device: str = "auto",
        slots: int = 1,
        threads: int = 1,
        job_timeout_s: float | None = None,
    ) -> None:
        """Connect to the cluster.

        Args:
            address: HOST:PORT, or `auto` for the cluster that runs on this machine.
            device: `cpu`, `cuda`, or `auto` for cuda if a node has a GPU.
            slots: Jobs that share a GPU.
            threads: CPUs of its node that a job takes.
            job_timeout_s: Seconds after which a job is killed; it has then failed.

        Raises:
            UsageError: If `device` has an index: Ray chooses the GPU.
            EnvironmentFault: If no cluster answers, or `device` is `cuda` and no node has a GPU.
        """
        if device not in ("auto", "cpu", "cuda"):
            check_devices(device)
            raise UsageError(
                f"--device {device}: with --engine ray the cluster chooses which one",
                hint="use `cpu`, `cuda` or `auto`",
            )
        _connect(address)
        has_gpu = any(node.gpus for node in _nodes())
        if device == "cuda" and not has_gpu:
            raise EnvironmentFault(
                f"device cuda is not there: no node of the Ray cluster {address} has a GPU",
                hint="use `auto` or `cpu`, or start a node with `ray start --num-gpus`",
            )
        self.device_kind: DeviceKind = "cuda" if has_gpu and device != "cpu" else "cpu"
        # The nodes' devices may differ, so it has no name.
        self.device = Device(name="cpu" if self.device_kind == "cpu" else "cuda:0")
        self._slots, self._threads = slots, threads
        self._job_timeout_s = job_timeout_s
        self._stopping = False

    def slots_for(
        self,
        needs: Sequence[MemoryNeed],  # noqa: ARG002  # the nodes' memory is not known here
        *,
        n_jobs: int | None = None,  # noqa: ARG002
    ) -> Slots:
        """How many jobs the living nodes run at once, and with how many threads."""
        return Slots(on_each=self._slots, total=self._capacity(), threads=self._threads)

    def run(
        self,
        queue: Queue,
        *,
        slots: Slots | None = None,  # noqa: ARG002  # nodes may come and go meanwhile
        on_event: Callable[[WorkerEvent], None],
    ) -> Iterator[Outcome]:
        """Run the jobs of the queue, and yield the final outcome of each when its files are here.

        Jobs of a node that is lost run again on another. This process claims the jobs.

        Raises:
            DataError: If a node does not have the tables.
        """
        self._check_nodes(
            {_absolute_table(w.request): w.request.job.fingerprint for w in queue.left}
        )
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        mailbox: Any = ray.remote(_Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        running: dict[Any, _Running] = {}
        losses: Counter[str] = Counter()
        try:
            while True:
                if self._stopping and not queue.stopped:
                    queue.stop()
                    mailbox.stop.remote()
                while len(running) < self._capacity() and (request := queue.take(wait=False)):
                    if (task := self._claimed(request)) is None:
                        why = "another process has it"
                        outcome = Outcome(request=request, state="skipped", why=why)
                        yield from queue.settle(outcome)
                    else:
                        running[self._submit(task, mailbox)] = task
                if not running:
                    break
                ready, _ = ray.wait(list(running), timeout=_LOOK_EVERY_S)
                for event in ray.get(mailbox.take.remote()):
                    on_event(event)
                for reference in ready:
                    yield from _settled(reference, running.pop(reference), queue, losses=losses)
        finally:
            for reference, task in running.items():
                ray.cancel(reference, force=True)
                task.claim.close()
            ray.shutdown()

    def stop(self) -> None:
        """Start no more jobs, and end the running ones at their next checkpoint."""
        self._stopping = True

    def _check_nodes(self, tables: Mapping[str, str]) -> None:
        """Raise DataError unless each node that would get jobs has our version and the tables."""
        checks = {}
        for node in _nodes():
            if self._slots_of(node):
                on_it = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
                checks[node.name] = _faults.options(scheduling_strategy=on_it).remote(
                    dict(tables), __version__, NUMERICS
                )
        if not checks:
            raise EnvironmentFault(
                f"no node of the Ray cluster can take a job: each wants {self._threads} CPUs"
                + (f" and 1/{self._slots} of a GPU" if self.device_kind == "cuda" else "")
            )
        faults = []
        for name, reference in checks.items():
            try:
                found = ray.get(reference, timeout=_CHECK_TIMEOUT_S)
            except RayError as error:
                found = [f"cannot be asked: {_last_line(error)}"]
            faults += [f"node {name}: {fault}" for fault in found]
        if faults:
            raise DataError(
                "\n".join(faults),
                hint="copy the table's folder there, `rsync -a FOLDER HOST:DATA/`, or prepare it "
                f"there; {DATA_VARIABLE}, set where that node's `ray start` runs, names its DATA. "
                "A node that is to take no jobs is started with --num-cpus 0",
            )

    def _capacity(self) -> int:
        """Jobs that the living nodes can run at once. No more are sent, so none wait in Ray."""
        return sum(self._slots_of(node) for node in _nodes())

    def _slots_of(self, node: _Node) -> int:
        """Number of jobs that a node can run at once."""
        by_cpu = int(node.cpus // self._threads)
        return by_cpu if self.device_kind == "cpu" else min(by_cpu, int(node.gpus * self._slots))

    def _claimed(self, request: JobRequest) -> _Running | None:
        """Claim the job of a request; None if another process has claimed it or has done it."""
        runs, claim = Runs(Path(request.runs)), contextlib.ExitStack()
        if claim.enter_context(runs.claim(request.job.id)) and not runs.done(request.job.id):
            return _Running(request=request, runs=runs, claim=claim)
        claim.close()
        return None

    def _submit(self, task: _Running, mailbox: Any) -> Any:
        job = task.request.job
        carried = [job.id]
        if job.kind != "train" and PROBES[job.kind].reads_checkpoint:
            carried.append(job.training_run.id)
        device = "cpu" if self.device_kind == "cpu" else "cuda:0"
        there = {"device": device, "table": _absolute_table(task.request)}
        return _job.options(
            num_cpus=self._threads,
            num_gpus=0 if self.device_kind == "cpu" else 1 / self._slots,
        ).remote(
            json.dumps(task.request.model_copy(update=there).plain()),
            _pack(task.runs, carried),
            mailbox,
            self._job_timeout_s,
            self._slots,
        )


class _Mailbox:
    """An actor on the caller's node: takes events from the tasks, and tells them to stop."""

    def __init__(self) -> None:
        self._events: list[WorkerEvent] = []
        self._stopping = False

    def post(self, event: WorkerEvent) -> bool:
        """Add an event; returns whether the task shall stop."""
        self._events.append(event)
        return self._stopping

    def take(self) -> list[WorkerEvent]:
        """Return the events that were added since the last call."""
        events, self._events = self._events, []
        return events

    def stop(self) -> None:
        """Make all tasks stop at their next event."""
        self._stopping = True


@ray.remote(num_cpus=0, max_retries=0)
def _faults(tables: dict[str, str], version: str, numerics: int) -> list[str]:
    """Messages about what is wrong on this node. `tables`: folder -> fingerprint."""
    faults = []
    if (version, numerics) != (__version__, NUMERICS):
        faults.append(
            f"has prime-bench {__version__} with numerics {NUMERICS}, "
            f"the caller {version} with {numerics}"
        )
    for path, fingerprint in tables.items():
        folder = _table_here(path)
        try:
            found = Manifest.read(folder).fingerprint
        except DataError as error:
            faults.append(error.message)
            continue
        if found != fingerprint:
            faults.append(f"{folder}: has the fingerprint {found}, the caller's has {fingerprint}")
    return faults


@ray.remote(max_retries=0)
def _job(
    request_json: str, files: Files, mailbox: Any, timeout_s: float | None, on_each: int
) -> tuple[End, str, Files]:
    """Run one job in a temporary folder, and return how it ended, why, and its files.

    `on_each`: jobs that share a GPU.
    """
    request = JobRequest.parse(json.loads(request_json), where="request")
    # How many other tasks share a node's CPU is not known here.
    variables = {} if request.device == "cpu" else worker_variables("cuda", on_each=on_each)
    with (
        tempfile.TemporaryDirectory(prefix="prime-bench-") as folder,
        Child(variables=variables) as child,
    ):
        runs = Runs(Path(folder))
        _unpack(files, runs)

        def post(event: WorkerEvent) -> None:
            if ray.get(mailbox.post.remote(event)):
                child.terminate()

        here = {"table": str(_table_here(request.table)), "runs": folder}
        outcome = child.do(request.model_copy(update=here), on_event=post, timeout_s=timeout_s)
        if outcome.state == "failed":
            runs.fail(request.job.id, outcome.why)
        return outcome.state, outcome.why, _pack(runs, [request.job.id])


def _connect(address: str) -> None:
    try:
        _look_for(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise EnvironmentFault(
            f"no Ray cluster at {address}: {_last_line(error)}",
            hint="start one, `ray start --head`, and join other machines to it, `ray start "
            "--address HOST:PORT`; where the cluster asks for a token, set RAY_AUTH_MODE=token",
        ) from error


def _look_for(address: str) -> None:
    """Raise OSError or ValueError if nothing answers at HOST:PORT.

    Ray would wait for minutes without a message. Other addresses (`auto`) are left to Ray.
    """
    host, colon, port = address.rpartition(":")
    if colon and "/" not in address:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()


def _nodes() -> list[_Node]:
    """The living nodes of the cluster."""
    return [
        _Node(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            cpus=node["Resources"].get("CPU", 0),
            gpus=node["Resources"].get("GPU", 0),
        )
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]


def _absolute_table(request: JobRequest) -> str:
    """The table's folder as an absolute path, since nodes have other working folders."""
    return str(Path(request.table).absolute())


def _table_here(path: str) -> Path:
    """The folder in which this node has the table that the caller has at `path`."""
    data = os.environ.get(DATA_VARIABLE)
    return Path(data) / Path(path).name if data else Path(path)


def _fetched(reference: Any, task: _Running) -> Outcome | None:
    """The outcome of a task, whose files are written to disk; None if its node was lost."""
    with task.claim:
        try:
            state, why, files = ray.get(reference)
        except RayTaskError as error:
            return Outcome(request=task.request, state="failed", why=_last_line(error))
        except RayError:
            return None
        _unpack(files, task.runs)
        if state == "done" and not task.runs.done(task.request.job.id):
            return Outcome(request=task.request, state="failed", why="the worker left no record")
        return Outcome(request=task.request, state=state, why=why)


def _settled(
    reference: Any, task: _Running, queue: Queue, *, losses: Counter[str]
) -> list[Outcome]:
    """The outcomes that are final when a task has ended. A job of a lost node runs again."""
    outcome = _fetched(reference, task)
    if outcome is not None:
        return queue.settle(outcome)
    losses[task.request.job.id] += 1
    if losses[task.request.job.id] < _MAX_LOSSES:
        queue.put_back(task.request)
        return []
    why = f"its node was lost {_MAX_LOSSES} times"
    return queue.settle(Outcome(request=task.request, state="failed", why=why))


def _pack(runs: Runs, job_ids: list[str]) -> Files:
    return {
        f"{job_id}/{path.name}": path.read_bytes()
        for job_id in job_ids
        for path in sorted(runs.path(job_id).glob("*"))
        if path.is_file()
    }


def _unpack(files: Files, runs: Runs) -> None:
    """Write the files, records last: a job with a record is done."""
    for path in sorted(files, key=lambda path: path.endswith(f"/{RECORD}")):
        write_whole(runs.folder / path, files[path])


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
