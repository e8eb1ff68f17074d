"""One job in, one record out: what every engine runs.

As a process (`python -m prime_bench.worker`) it reads a JSON JobRequest a line on stdin and writes
a JSON event a line on stdout, of the job that its `job_id` names:

    resumed      epoch: the last one that an earlier process has finished
    afresh       why: what speaks against the saved state of an earlier process
    progress     epoch, rows, rows_total, rows_per_s     at most two a second
    epoch        a validation: the keys of a line of history.jsonl
    done         wall_s; of a training run also valid, test (auc, logloss) and degenerate
    skipped      another process has the job or has done it
    failed       error (one line); failure.json has the rest
    interrupted  stopped on SIGTERM with its state saved
    fault        error, hint, exit_code: no job can be done here, for want of the device

A job's last event is one of the latter five. The process ends when stdin does, and at once when
nobody reads its events any more. On SIGTERM it stops after the validation of the running epoch, or
after the job where that is no training run, and ends with exit code 0; a job that has just come to
its scores is done. After `fault` it ends with that exit code. Killed at any moment, it leaves a
job that the next process goes on with from its last validation.
"""

import contextlib
import functools
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
from prime_bench.base.identity import NUMERICS
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.job import JobRequest
from prime_bench.settings.probes import Kind
from prime_bench.store.record import Environment, Findings, ProbeRecord, RunRecord
from prime_bench.store.runs import CONFIG, ENVIRONMENT, Runs
from prime_bench.training.checkpoint import JobFolder, one_line
from prime_bench.training.device import NoDevice, fix_arithmetic, resolve_device
from prime_bench.training.environment import environment
from prime_bench.training.job import Event, JobInterrupted, TrainingJob

Record = RunRecord | ProbeRecord
_PROBES: dict[Kind, str] = {
    "gradients": "prime_bench.probes.gradients",
    "routing": "prime_bench.probes.routing",
    "subgroups": "prime_bench.probes.subgroups",
    "cost": "prime_bench.probes.cost",
}
"""Kind of a job that measures -> the module whose `run` does it; training loads none of them."""
_LOOK_AT_PARENT_EVERY_MS = 1000
_EXIT_DEVICE = EnvironmentFault.exit_code


class JobTaken(Exception):
    """Another process has the job, or has done it meanwhile."""


def run_job(
    request: JobRequest,
    on_event: Callable[[Event], None],
    *,
    interrupted: Callable[[], bool] = lambda: False,
) -> Record:
    """Do the job, write its folder, and return the record that is now on disk.

    A training run goes on from where an earlier process was stopped, and stops where `interrupted`
    says so. Raises JobTaken where there is nothing to do, JobInterrupted, NoDevice, and whatever
    else went wrong after it has been written to the job's failure.json.
    """
    # Not the job's fault: it comes before the job is touched.
    device = resolve_device(request.device)
    runs, job_id = Runs(Path(request.runs)), request.job.id
    with runs.claim(job_id) as mine:
        if not mine or runs.done(job_id):
            raise JobTaken(job_id)
        folder = JobFolder(runs.path(job_id))
        folder.empty()
        try:
            record = _do(request, folder, device, on_event=on_event, interrupted=interrupted)
            runs.put(record)
        except JobInterrupted:
            raise
        except Exception as error:
            # A full disk may be the very reason; the error itself is what has to get out.
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
    on_event: Callable[[Event], None],
    interrupted: Callable[[], bool],
) -> Record:
    start, job = time.perf_counter(), request.job
    folder.write(CONFIG, {"job_id": job.id, **request.plain()})
    if job.numerics != NUMERICS:
        raise UsageError(f"the job wants numerics {job.numerics}, this version has {NUMERICS}")
    fix_arithmetic(threads=request.threads or _default_threads())
    surroundings = environment(device)
    folder.write(ENVIRONMENT, surroundings.plain())
    table = _table(request.table, fingerprint=job.fingerprint)
    if job.kind != "train":
        probe = importlib.import_module(_PROBES[job.kind])
        findings = probe.run(request, table, device=device, on_event=on_event)
        return _probe_record(request, table, findings, surroundings, start=start)
    training = TrainingJob(
        request=request,
        folder=folder,
        table=table,
        device=device,
        environment=surroundings,
        on_event=on_event,
        interrupted=interrupted,
    )
    return training.run()


def _probe_record(
    request: JobRequest,
    table: PreparedTable,
    findings: Findings,
    surroundings: Environment,
    *,
    start: float,
) -> ProbeRecord:
    """The record of a measurement that began at `start` of the performance counter."""
    return ProbeRecord(
        job_id=request.job.id,
        job=request.job,
        dataset=request.dataset,
        arm=request.arm,
        data_variant=table.manifest.variant,
        data_verified=table.manifest.verified,
        data_notes=table.manifest.notes,
        findings=findings,
        environment=surroundings,
        wall_s=time.perf_counter() - start,
    )


def _table(path: str, *, fingerprint: str) -> PreparedTable:
    """The table at `path`, opened once a process. Raises DataError where it is another one."""
    table = _opened(path)
    if table.manifest.fingerprint != fingerprint:
        # It may have been prepared anew since it was opened.
        _opened.cache_clear()
        table = _opened(path)
    if table.manifest.fingerprint != fingerprint:
        raise DataError(
            f"{path}: the table has the fingerprint {table.manifest.fingerprint}, "
            f"the job wants {fingerprint}",
            hint="the data were prepared anew since the plan was made: run the recipe again",
        )
    return table


@functools.lru_cache(maxsize=8)
def _opened(path: str) -> PreparedTable:
    table = PreparedTable.open(Path(path))
    # An id that was changed on the disk would train without a word, or fail far from its cause.
    table.check_contents()
    return table


@functools.cache
def _default_threads() -> int:
    """What torch chose when the process began."""
    return torch.get_num_threads()


class _Events:
    """Writes events to what was stdout when the process began; prints go to stderr from then on."""

    def __init__(self) -> None:
        self.descriptor = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(self, event: Event) -> None:
        """Write one line. Nobody to read it: the parent is gone, and so are we."""
        line = memoryview((json.dumps(event, allow_nan=False) + "\n").encode())
        try:
            while line:
                line = line[os.write(self.descriptor, line) :]
        except BrokenPipeError:
            os._exit(0)


def _end_with_parent(events: int, parent: int) -> None:
    """Wait until the reader of our events or our parent is gone, then end without ceremony.

    Being killed in the middle of a job is safe, so nothing needs to be unwound.
    """
    pipe = select.poll()
    pipe.register(events, 0)  # only the error that a pipe without a reader has
    while not pipe.poll(_LOOK_AT_PARENT_EVERY_MS) and os.getppid() == parent:
        pass
    os._exit(0)


class _Stop:
    """SIGTERM: end at once where there is no job, else as soon as the job allows."""

    def __init__(self) -> None:
        self.asked, self.at_work = False, False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, frame: object) -> None:  # noqa: ARG002  # as signal calls it
        self.asked = True
        if not self.at_work:
            os._exit(0)


def _answer(line: str, events: _Events, *, interrupted: Callable[[], bool]) -> None:
    """Do the job of one line and send its last event."""
    job_id: str | None = None
    try:
        request = JobRequest.parse(json.loads(line), where="request")
        job_id = request.job.id
        record = run_job(request, events.send, interrupted=interrupted)
    except JobTaken:
        events.send({"event": "skipped", "job_id": job_id})
    except JobInterrupted:
        events.send({"event": "interrupted", "job_id": job_id})
    except NoDevice as fault:
        words = {"error": fault.message, "hint": fault.hint, "exit_code": fault.exit_code}
        events.send({"event": "fault", "job_id": job_id, **words})
        print(fault.message, file=sys.stderr, flush=True)
        os._exit(fault.exit_code)
    except Exception as error:  # noqa: BLE001  # A failed job is a status; the next one may do well.
        _end_if_device_is_lost(error)
        events.send({"event": "failed", "job_id": job_id, "error": one_line(error)})
    else:
        result = record.result.plain() if isinstance(record, RunRecord) else {}
        last: Event = {k: v for k, v in result.items() if k in ("valid", "test", "degenerate")}
        events.send({"event": "done", "job_id": job_id, **last, "wall_s": record.wall_s})


def _end_if_device_is_lost(error: Exception) -> None:
    """A fault of a CUDA kernel spoils its process: end it, so that the engine starts another.

    No event then: the engine would hand the next job to a process that is about to die.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        print(one_line(error), file=sys.stderr, flush=True)
        os._exit(_EXIT_DEVICE)


def _give_memory_back() -> None:
    """What a job has left behind on the device, above all one that failed for want of memory."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def main() -> None:
    """Answer requests until stdin ends."""
    # Ctrl-C in a terminal reaches the whole process group: end quietly, as by any other kill.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    events, stop = _Events(), _Stop()
    watch = threading.Thread(
        target=_end_with_parent, args=(events.descriptor, os.getppid()), daemon=True
    )
    watch.start()
    for line in sys.stdin:
        stop.at_work = True
        if line.strip():
            _answer(line, events, interrupted=lambda: stop.asked)
            _give_memory_back()
        stop.at_work = False
        if stop.asked:
            break


if __name__ == "__main__":
    main()
