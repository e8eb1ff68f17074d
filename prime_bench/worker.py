"""One job in, one record out: what every engine runs.

As a process (`python -m prime_bench.worker`) it reads a JSON JobRequest a line on stdin and writes
a JSON event a line on stdout, of the job that its `job_id` names:

    progress   epoch, rows, rows_total, rows_per_s     at most two a second
    epoch      a validation: the keys of a line of history.jsonl
    done       wall_s; of a training run also valid, test (auc, logloss) and degenerate
    skipped    another process has the job or has done it
    failed     error (one line); failure.json has the rest

A job's last event is one of the latter three. The process ends when stdin does, and at once when
nobody reads its events any more.
"""

import contextlib
import functools
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
from typing import Any

import torch

from prime_bench.assemble import Assembled, build_arm
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.numerics import NUMERICS
from prime_bench.data.schema import Schema
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.budget import Budget, budget_of
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.settings.kinds import Kind
from prime_bench.store.record import (
    Environment,
    Findings,
    Pairing,
    ProbeRecord,
    Result,
    RunRecord,
    Validation,
)
from prime_bench.store.runs import Runs
from prime_bench.training.batches import Rows, joins_last_row
from prime_bench.training.checkpoint import save_weights
from prime_bench.training.device import fix_arithmetic, resolve_device
from prime_bench.training.evaluation import check_labels, degeneracy, predict, score
from prime_bench.training.folder import CHECKPOINT, CONFIG, ENVIRONMENT, TEST, JobFolder, one_line
from prime_bench.training.loop import Progress, TrainingSplits, TrainResult, train
from prime_bench.training.optimizer import Penalty
from prime_bench.training.provenance import environment

Event = dict[str, Any]
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


def run_job(request: JobRequest, on_event: Callable[[Event], None]) -> Record:
    """Do the job, write its folder, and return the record that is now on disk.

    Raises JobTaken where there is nothing to do, and whatever went wrong otherwise, after it has
    been written to the job's failure.json.
    """
    runs, job_id = Runs(Path(request.runs)), request.job.id
    with runs.claim(job_id) as mine:
        if not mine or runs.done(job_id):
            raise JobTaken(job_id)
        folder = JobFolder(runs.path(job_id))
        folder.empty()
        try:
            record = _do(request, folder, on_event)
            runs.put(record)
        except Exception as error:
            # A full disk may be the very reason; the error itself is what has to get out.
            with contextlib.suppress(EnvironmentFault, OSError):
                folder.fail(error)
            raise
    return record


def _do(request: JobRequest, folder: JobFolder, on_event: Callable[[Event], None]) -> Record:
    start, job = time.perf_counter(), request.job
    folder.write(CONFIG, {"job_id": job.id, **request.plain()})
    if job.numerics != NUMERICS:
        raise UsageError(f"the job wants numerics {job.numerics}, this version has {NUMERICS}")
    device = resolve_device(request.device)
    fix_arithmetic(threads=request.threads or _default_threads())
    surroundings = environment(device)
    folder.write(ENVIRONMENT, surroundings.plain())
    table = _table(request.table, fingerprint=job.fingerprint)
    if job.kind != "train":
        probe = importlib.import_module(_PROBES[job.kind])
        findings = probe.run(request, table, device=device, on_event=on_event)
        return _probe_record(request, table, findings, surroundings, start=start)
    check_labels("test", table.split("test").labels)
    assembled = build_arm(job, table.schema)
    budget = _budget(job, table.schema, assembled)
    folder.log(f"{request.dataset}, {job.backbone}, {request.arm}, seed {job.seed}: {budget}")

    def tell(event: Progress | Validation) -> None:
        if isinstance(event, Progress):
            on_event({"event": "progress", "job_id": job.id, **vars(event)})
        else:
            folder.add_validation(event)
            folder.log(f"epoch {event.epoch}: {event}")
            on_event({"event": "epoch", "job_id": job.id, **event.plain()})

    trained = train(
        assembled.arm,
        TrainingSplits(train=table.split("train"), valid=table.split("valid")),
        job.training,
        penalty=Penalty(
            embedding=job.backbone_settings["embedding_l2"],
            network=job.backbone_settings["network_l2"],
        ),
        seed=job.seed,
        device=device,
        on_event=tell,
    )
    save_weights(folder.path / CHECKPOINT, trained.weights)
    result = _evaluate(job, assembled, table, trained, device=device)
    folder.write(TEST, {"rows": table.manifest.rows.test, **result.test.plain()})
    folder.log(f"done: {result}")
    return RunRecord(
        job_id=job.id,
        job=job,
        dataset=request.dataset,
        arm=request.arm,
        data_variant=table.manifest.variant,
        data_verified=table.manifest.verified,
        data_notes=table.manifest.notes,
        pairing=Pairing(initial_weights=assembled.initial_weights, row_order=trained.row_order),
        budget=budget,
        result=result,
        history=trained.history,
        environment=surroundings,
        wall_s=time.perf_counter() - start,
    )


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


def _evaluate(
    job: Job,
    assembled: Assembled,
    table: PreparedTable,
    trained: TrainResult,
    *,
    device: torch.device,
) -> Result:
    """Score the validation and, this once, the test split with the weights that training left."""
    found, scores = {}, {}
    for name in ("valid", "test"):
        rows = Rows(table.split(name), device=device)
        found[name] = predict(assembled.arm, rows, batch_size=job.training.batch_size)
        scores[name] = score(rows.labels, found[name])
    lost = [str(v.epoch) for v in trained.history if v.valid_auc is None]
    faults = [f"predictions were not finite after epochs {', '.join(lost)}"] if lost else []
    fault = degeneracy(found, scores)
    joined = joins_last_row(table.manifest.rows.train, job.training.batch_size)
    return Result(
        best_epoch=trained.best_epoch,
        epochs=len(trained.history),
        stopped=trained.stopped,
        valid=scores["valid"],
        test=scores["test"],
        degenerate="; ".join([*faults, *([fault] if fault else [])]) or None,
        notes=["the last training row of an epoch joined the batch before it"] if joined else [],
    )


def _budget(job: Job, schema: Schema, assembled: Assembled) -> Budget:
    """The settings' formulas, which must agree with the parameters that were built."""
    budget = budget_of(
        job.backbone, job.backbone_settings, job.plugin, job.plugin_settings, shape=schema.shape
    )
    built = sum(p.numel() for p in assembled.arm.parameters() if p.requires_grad)
    if built != budget.backbone_parameters + budget.plugin_parameters:
        raise RuntimeError(f"{job.backbone}, {job.plugin}: {budget}, but {built} parameters built")
    return budget


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


def _answer(line: str, events: _Events) -> None:
    """Do the job of one line and send its last event."""
    job_id: str | None = None
    try:
        request = JobRequest.parse(json.loads(line), where="request")
        job_id = request.job.id
        record = run_job(request, events.send)
    except JobTaken:
        events.send({"event": "skipped", "job_id": job_id})
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


def main() -> None:
    """Answer requests until stdin ends."""
    # Ctrl-C in a terminal reaches the whole process group: end quietly, as by any other kill.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    events = _Events()
    watch = threading.Thread(
        target=_end_with_parent, args=(events.descriptor, os.getppid()), daemon=True
    )
    watch.start()
    for line in sys.stdin:
        if line.strip():
            _answer(line, events)


if __name__ == "__main__":
    main()
