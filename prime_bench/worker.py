"""The worker: does one job after another, each of which becomes a record. Every engine runs it.

As a process (`python -m prime_bench.worker`) it reads a JobRequest as JSON from each line of stdin
and writes the job's events, one a line, to stdout (`recipe.events`), each after the value of the
environment variable PRIME_BENCH_EVENT_KEY if that is set. A line may also hold a MachineCheck; its
answer is one event.

The process ends when stdin ends, and at once when nobody reads its events any more. On SIGTERM it
stops after the validation of the running epoch, or at the end of a probe, and exits with code 0; a
job that has already begun to compute its scores is finished. After the event `fault` it exits with
the code in the event. It may be killed at any moment: the next process that is given the job
continues from its last validation.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.files import environment_fault
from prime_bench.base.identity import NUMERICS
from prime_bench.base.machine import keep_freed_memory, return_freed_memory
from prime_bench.base.sources import load_class
from prime_bench.catalog import BackboneEntry, PluginEntry, find_backbone, find_plugin
from prime_bench.data.manifest import Manifest
from prime_bench.data.table import PreparedTable, checked_table
from prime_bench.recipe.events import (
    KEY_VARIABLE,
    CheckedEvent,
    DoneEvent,
    FailedEvent,
    FaultEvent,
    InterruptedEvent,
    ProgressEvent,
    SkippedEvent,
    WorkerEvent,
    write_event,
)
from prime_bench.recipe.job import JobRequest, MachineCheck
from prime_bench.settings.probes import Kind
from prime_bench.store.record import Environment, Findings, ProbeRecord, Record
from prime_bench.store.runs import CONFIG, ENVIRONMENT, Runs
from prime_bench.training.checkpoint import JobFolder, one_line
from prime_bench.training.device import (
    NoDevice,
    device_bytes,
    device_name,
    fix_arithmetic,
    is_out_of_memory,
    resolve_device,
)
from prime_bench.training.environment import environment
from prime_bench.training.job import JobInterrupted, TrainingJob

_PROBES: dict[Kind, str] = {
    "gradients": "prime_bench.probes.gradients",
    "routing": "prime_bench.probes.routing",
    "subgroups": "prime_bench.probes.subgroups",
    "cost": "prime_bench.probes.cost",
}
"""Kind of probe -> the module whose `run` does it; training imports none of them."""
_LOOK_AT_PARENT_EVERY_MS = 1000
_EXIT_DEVICE = EnvironmentFault.exit_code
_DEFAULT_THREADS = torch.get_num_threads()
"""The number that torch has chosen itself, read before a job can change it."""


class JobTaken(Exception):
    """Another process has the job, or has already done it."""


class TableFault(DataError):
    """The copy of a table on this machine is missing, damaged, or another one."""


def run_job(
    request: JobRequest,
    on_event: Callable[[WorkerEvent], None],
    *,
    interrupted: Callable[[], bool] = lambda: False,
) -> Record:
    """Do the job, write its folder, and return the record, which is then on disk.

    A training run continues from the state that an earlier process has saved, if there is one.

    Args:
        request: The job and where its files are.
        on_event: Called with each event but the last one, which `main` sends.
        interrupted: Asked before the first epoch and after each one whether to stop there.

    Raises:
        JobTaken: If another process has the job or has done it.
        JobInterrupted: If `interrupted` returned True.
        NoDevice: If the device is missing. Nothing is written to the job's folder then.
        Exception: Any other error, after it was written to the job's failure.json.
    """
    # A missing device is no fault of the job, so it is found before the job's folder is made.
    device = resolve_device(request.device)
    # The code of a plug-in may go to another folder.
    runs, job_id = Runs(Path(request.runs).absolute()), request.job.id
    with runs.claim(job_id) as mine:
        if not mine or runs.done(job_id):
            raise JobTaken(job_id)
        folder = JobFolder(runs.path(job_id))
        folder.empty()
        try:
            try:
                record = _do(request, folder, device, on_event=on_event, interrupted=interrupted)
            except SystemExit as left:
                raise RuntimeError(f"the code of the job called sys.exit({left.code!r})") from left
            record = runs.sealed(record)
            runs.put(record)
        except JobInterrupted:
            raise
        except Exception as error:
            # The disk may be full, and the error itself must be raised in any case.
            with contextlib.suppress(EnvironmentFault, OSError):
                folder.fail(error)
            raise
        folder.drop_state()
    return record


def _do(
    request: JobRequest,
    folder: JobFolder,
    device: torch.device,
    *,
    on_event: Callable[[WorkerEvent], None],
    interrupted: Callable[[], bool],
) -> Record:
    """Do a claimed job whose folder is empty: write config.json and environment.json, then train or
    probe. Returns the record, which is not written yet.
    """
    start, job = time.perf_counter(), request.job
    folder.write(CONFIG, {"job_id": job.id, **request.plain()})
    here = {key: str(Path(getattr(request, key)).absolute()) for key in ("table", "runs")}
    request = request.model_copy(update=here)
    if job.numerics != NUMERICS:
        raise UsageError(f"the job wants numerics {job.numerics}, this version has {NUMERICS}")
    if job.training.matmul == "tf32" and device.type != "cuda":
        raise UsageError(
            "training.matmul: tf32 is a precision of NVIDIA GPUs, and this job is on a CPU",
            hint="set it to float32, or name a GPU with --device",
        )
    fix_arithmetic(threads=request.threads or _DEFAULT_THREADS, matmul=job.training.matmul)
    found_environment = environment(device)
    folder.write(ENVIRONMENT, found_environment.plain())
    table = _table(request.table, fingerprint=job.fingerprint)
    resolved = job.resolve()
    if job.kind != "train":
        probe = importlib.import_module(_PROBES[job.kind])
        findings = probe.run(
            request,
            resolved,
            table,
            device=device,
            on_progress=lambda found: on_event(ProgressEvent(job_id=job.id, progress=found)),
        )
        table.check_unchanged()
        return _probe_record(request, table, findings, found_environment, start=start)
    training = TrainingJob(
        request=request,
        job=resolved,
        folder=folder,
        table=table,
        device=device,
        environment=found_environment,
        on_event=on_event,
        interrupted=interrupted,
    )
    record = training.run()
    table.check_unchanged()
    return record


def _probe_record(
    request: JobRequest,
    table: PreparedTable,
    findings: Findings,
    found_environment: Environment,
    *,
    start: float,
) -> ProbeRecord:
    """The record of a probe that began when `time.perf_counter()` was `start`."""
    return ProbeRecord(
        job_id=request.job.id,
        job=request.job,
        dataset=request.dataset,
        arm=request.arm,
        data_variant=table.manifest.variant,
        data_verified=table.manifest.verified,
        data_notes=table.manifest.notes,
        data_card=table.manifest.own_card,
        findings=findings,
        environment=found_environment,
        wall_s=time.perf_counter() - start,
    )


def check_machine(check: MachineCheck) -> CheckedEvent:
    """Look for everything that the jobs of a `MachineCheck` need; nothing is written."""
    faults: list[tuple[str, str]] = []
    for folder, fingerprint in check.tables.items():
        try:
            found = Manifest.read(Path(folder)).fingerprint
        except (DataError, EnvironmentFault) as error:
            hint = error.hint if isinstance(error, EnvironmentFault) else _COPY_TABLE
            faults.append((error.message, hint))
            continue
        if found != fingerprint:
            differ = f"{folder}: has the fingerprint {found}, the caller's has {fingerprint}"
            faults.append((differ, _COPY_TABLE))
    names: list[tuple[str, str | None, Callable[[str], BackboneEntry | PluginEntry]]] = [
        *((name, code, find_backbone) for name, code in check.backbones.items()),
        *((name, code, find_plugin) for name, code in check.plugins.items()),
    ]
    for name, code, find in names:
        try:
            entry = find(name)
            if entry.target is not None:
                load_class(entry.target)
        except UsageError as error:
            faults.append((error.message, f"{error.hint} on that machine"))
            continue
        if entry.code != code:
            other = f"{name}: its source files are not those of the caller"
            faults.append((other, "install the same version of its package there"))
    device, gpu_bytes = "", None
    try:
        found_device = resolve_device(check.device)
        device = device_name(found_device)
        gpu_bytes = device_bytes(found_device) if found_device.type == "cuda" else None
    except (EnvironmentFault, RuntimeError) as error:
        message = error.message if isinstance(error, EnvironmentFault) else one_line(error)
        faults.append((message, getattr(error, "hint", "")))
    return CheckedEvent(faults=faults, torch=torch.__version__, device=device, gpu_bytes=gpu_bytes)


_COPY_TABLE = (
    "copy the table's folder there, `rsync -a FOLDER HOST:DATA/`, or let `run --sync-data` "
    "send it; PRIME_BENCH_DATA, set where that node's `ray start` runs, names its DATA"
)


def _table(path: str, *, fingerprint: str) -> PreparedTable:
    """The table at `path`. Raises TableFault if its fingerprint differs, or if it is not as it was
    prepared.
    """
    try:
        table = checked_table(path)
    except DataError as error:
        raise TableFault(error.message, hint=error.hint) from error
    if table.manifest.fingerprint != fingerprint:
        raise TableFault(
            f"{path}: the table has the fingerprint {table.manifest.fingerprint}, "
            f"the job wants {fingerprint}",
            hint="the data were prepared again after the plan was made: run the recipe again",
        )
    return table


class _EventStream:
    """Writes events to the stdout of the process; whatever else is printed goes to stderr.

    A process that a plug-in forks has neither events nor requests. If it goes on with the job, as
    if it were the worker, it ends here or where it would write to the job's folder (`JobFolder`).
    """

    def __init__(self) -> None:
        # Not for what a plug-in starts.
        self._key = os.environ.pop(KEY_VARIABLE, "")
        self._owner = os.getpid()
        self.descriptor = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        os.register_at_fork(after_in_child=self._close)

    def _close(self) -> None:
        """Let go of the pipes of the parent."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (self.descriptor, sys.stdin.fileno()):
            os.dup2(nothing, descriptor)
        os.close(nothing)

    def send(self, event: WorkerEvent) -> None:
        """Write one line. If nobody reads it, the parent is gone and the process ends."""
        if os.getpid() != self._owner:
            os._exit(1)
        line = memoryview(write_event(event, key=self._key).encode())
        try:
            while line:
                line = line[os.write(self.descriptor, line) :]
        except BrokenPipeError:
            os._exit(0)


def _end_with_parent(events: int, parent: int) -> None:
    """Wait until nobody reads the events or the parent is gone, then end the process at once.

    A worker may be killed in the middle of a job, so nothing has to be cleaned up.
    """
    pipe = select.poll()
    pipe.register(events, 0)  # reports only the error of a pipe that has no reader
    while not pipe.poll(_LOOK_AT_PARENT_EVERY_MS) and os.getppid() == parent:
        pass
    os._exit(0)


class _Stop:
    """Handles SIGTERM: ends the process at once without a job, else when the job can stop."""

    def __init__(self) -> None:
        self.asked, self.at_work = False, False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, frame: object) -> None:  # noqa: ARG002  # as signal calls it
        self.asked = True
        if not self.at_work:
            os._exit(0)


def _answer(line: str, events: _EventStream, *, interrupted: Callable[[], bool]) -> None:
    """Do the job of one line and send its last event, or answer the check in it."""
    try:
        table = json.loads(line)
        if isinstance(table, dict) and "tables" in table:
            events.send(check_machine(MachineCheck.parse(table, where="check")))
            return
        request = JobRequest.parse(table, where="request")
    except Exception as error:  # noqa: BLE001  # A line may hold anything.
        events.send(FailedEvent(job_id=None, error=one_line(error)))
        return
    job_id = request.job.id
    try:
        record = run_job(request, events.send, interrupted=interrupted)
    except JobTaken:
        events.send(SkippedEvent(job_id=job_id))
    except JobInterrupted:
        events.send(InterruptedEvent(job_id=job_id))
    except NoDevice as fault:
        code = fault.exit_code
        events.send(FaultEvent(job_id=job_id, error=fault.message, hint=fault.hint, exit_code=code))
        print(fault.message, file=sys.stderr, flush=True)
        os._exit(code)
    except Exception as error:  # noqa: BLE001  # The next job may succeed.
        _end_if_device_is_lost(error)
        out_of_memory = is_out_of_memory(error)
        events.send(
            FailedEvent(
                job_id=job_id,
                error=one_line(error),
                out_of_memory=out_of_memory,
                machine=not out_of_memory and _is_fault_of_machine(error),
            )
        )
    else:
        events.send(_done(record))


def _done(record: Record) -> DoneEvent:
    """The last event of a job that now has a record."""
    if isinstance(record, ProbeRecord):
        return DoneEvent(job_id=record.job_id, wall_s=record.wall_s)
    result = record.result
    return DoneEvent(
        job_id=record.job_id,
        wall_s=record.wall_s,
        valid=result.valid,
        test=result.test,
        degenerate=result.degenerate,
    )


def _is_fault_of_machine(error: Exception) -> bool:
    """Whether the job may succeed on another machine."""
    return isinstance(error, (EnvironmentFault, TableFault)) or (
        isinstance(error, OSError) and environment_fault(error) is not None
    )


def _end_if_device_is_lost(error: Exception) -> None:
    """End the process if CUDA no longer works in it, so that the engine starts another.

    No event is sent: the engine would give the next job to a process that is about to end.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        print(one_line(error), file=sys.stderr, flush=True)
        os._exit(_EXIT_DEVICE)


def _free_memory() -> None:
    """Free what the last job has left, above all if it ran out of memory."""
    gc.collect()
    return_freed_memory()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def main() -> None:
    """Answer requests until stdin ends."""
    keep_freed_memory()
    # Ctrl-C in a terminal reaches the whole process group: end without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    events, stop = _EventStream(), _Stop()
    watch = threading.Thread(
        target=_end_with_parent, args=(events.descriptor, os.getppid()), daemon=True
    )
    watch.start()
    home: Path | None = None
    with contextlib.suppress(FileNotFoundError):  # it may have been deleted
        home = Path.cwd()
    for line in sys.stdin:
        stop.at_work = True
        if line.strip():
            # Paths may be relative, and a plug-in of the last job may have gone elsewhere.
            if home is not None:
                with contextlib.suppress(OSError):
                    os.chdir(home)
            _answer(line, events, interrupted=lambda: stop.asked)
            _free_memory()
        stop.at_work = False
        if stop.asked:
            break


if __name__ == "__main__":
    main()
