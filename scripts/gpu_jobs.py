"""Checks of whole jobs on a generated table of the full size: an epoch with validation, scores."""

import collections
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import torch
from gpu_data import write_table
from gpu_results import Figures
from gpu_session import SEED, Bench, Wrong

from prime_bench.assemble import build_arm
from prime_bench.base.errors import EnvironmentFault
from prime_bench.data.manifest import SplitCounts
from prime_bench.data.table import PreparedTable
from prime_bench.probes.arms import trainer_of
from prime_bench.recipe.events import RestartedEvent, ResumedEvent, WorkerEvent
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import CHECKPOINT
from prime_bench.training import batches
from prime_bench.training.checkpoint import StateFile, load_weights
from prime_bench.training.evaluation import predict, score
from prime_bench.training.job import JobInterrupted
from prime_bench.training.loop import weights_of
from prime_bench.worker import run_job

JOBS = ("DNN dense", "DCNv2 prime")
_METRIC = 1e-12
_LEAST_AUC = 0.6
"""After an epoch of the generated rows, in which a few fields tell much."""


def generate(bench: Bench, _: str) -> Figures:
    """The table that the other checks read: the size of Avazu_x1."""
    shape = bench.shape("avazu")
    write_table(bench.table, shape, device=bench.device)
    return {"rows": shape.rows.total, "ids": shape.schema.shape.embedding_rows}


def job(bench: Bench, arm: str) -> Figures:
    """An epoch of a real job, with validation and scores of all splits; it must have learnt."""
    backbone, plugin = arm.split()
    if bench.on_cuda:
        torch.cuda.reset_peak_memory_stats()
    record = bench.run(bench.job(backbone, plugin, training={"max_epochs": 1}))
    (validation,) = record.history
    bench.trained[arm] = record
    fault = record.result.degenerate
    if fault or (not bench.small and (record.result.test.auc or 0) < _LEAST_AUC):
        raise Wrong(f"{arm}: {fault or record.result.test}")
    rows = bench.shape("avazu").rows
    return {
        "epoch_s": validation.wall_s,
        "rows_per_s": (rows.train + rows.valid) / validation.wall_s,
        "job_s": record.wall_s,
        "test_auc": record.result.test.auc,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if bench.on_cuda else None,
    }


def evaluation(bench: Bench, arm: str) -> Figures:
    """The test split scored again: the record's numbers, and those of a plain float64 count."""
    record = bench.trained[arm]
    table = PreparedTable.open(bench.table)
    model = build_arm(record.job.resolve(), table.schema).arm
    model.load_state_dict(load_weights(bench.runs / record.job_id / CHECKPOINT))
    model.to(bench.device)
    marks = [time.perf_counter()]

    def mark() -> None:
        bench.wait()
        marks.append(time.perf_counter())

    rows = batches.Rows(table.split("test"), device=bench.device)
    mark()
    probabilities = predict(model, rows, batch_size=record.job.training.batch_size)
    mark()
    found = score(rows.labels, probabilities)
    mark()
    seconds = dict(zip(("load_s", "predict_s", "score_s"), np.diff(marks).tolist(), strict=True))
    wanted = plain_scores(rows.labels, probabilities.double().cpu().numpy())
    for what, own, other in (
        ("AUC, counted plainly", found.auc, wanted[0]),
        ("LogLoss, summed plainly", found.logloss, wanted[1]),
        ("AUC in the record", found.auc, record.result.test.auc),
        ("LogLoss in the record", found.logloss, record.result.test.logloss),
    ):
        if own is None or other is None or not abs(own - other) <= _METRIC:
            raise Wrong(f"{arm}: {what} {other}, here {own}")
    return {"rows": len(rows), **seconds}


def plain_scores(labels: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """AUC by ranks, a tie taking the mean rank, and LogLoss as scikit-learn clips it."""
    _, inverse, counts = np.unique(p, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    n_positive = int(labels.sum())
    n_pairs = n_positive * (len(labels) - n_positive)
    positive_ranks = float(ranks[inverse[labels == 1]].sum())
    auc = (positive_ranks - n_positive * (n_positive + 1) / 2) / n_pairs
    eps = np.finfo(np.float64).eps
    right = np.clip(np.where(labels == 1, p, 1 - p), eps, 1 - eps)
    return auc, float(-np.log(right).mean())


_RESUMED_ROWS = SplitCounts(train=200_100, valid=50_000, test=50_000)
_EPOCHS = 2


def resume(bench: Bench, arm: str) -> Figures:
    """A job that is stopped after its first epoch and continued has bitwise the same weights as one
    that is not.
    """
    backbone, plugin = arm.split()
    table = bench.folder / "table-of-resume"
    if not table.exists():
        rows = bench.shape("avazu").rows if bench.small else _RESUMED_ROWS
        write_table(table, replace(bench.shape("avazu"), rows=rows), device=bench.device)
    wanted = bench.job(backbone, plugin, training={"max_epochs": _EPOCHS})
    undisturbed = bench.run(wanted, table=table, runs=bench.folder / "undisturbed")
    request = bench.request(wanted, table=table, runs=bench.folder / "resumed")
    stops = iter([False, True])
    events: list[WorkerEvent] = []
    try:
        run_job(request, events.append, interrupted=lambda: next(stops))
        raise Wrong(f"{arm}: it was not stopped")
    except JobInterrupted:
        pass
    resumed = run_job(request, events.append)
    if not any(isinstance(event, ResumedEvent) for event in events):
        reasons = [event.reason for event in events if isinstance(event, RestartedEvent)]
        raise Wrong(f"{arm}: it started again from epoch 1: {'; '.join(reasons)}")
    assert isinstance(resumed, RunRecord)  # noqa: S101
    if resumed.weights != undisturbed.weights:
        raise Wrong(f"{arm}: the continued run has other weights")
    return {"epochs": _EPOCHS, "epoch_s": undisturbed.history[-1].wall_s / _EPOCHS}


_PINNED_ROWS = 4_000_000


def places(bench: Bench) -> list[str]:
    """Where the rows of a run may be."""
    return ["resident", "pinned"] if bench.on_cuda else ["pinned"]


def pinned(bench: Bench, place: str) -> Figures:
    """Batches of rows that are on the device, or are sent from the host's pinned memory because
    they do not fit, are those that NumPy takes from the files.
    """
    split = PreparedTable.open(bench.table).split("train")
    with mock.patch.object(batches, "_fits", return_value=place == "resident"):
        rows = batches.Rows(split, device=bench.device)
        order = batches.row_order(len(split), seed=SEED, epoch=1)
        order = order[: min(len(split), _PINNED_ROWS)]
        first = next(iter(rows.shuffled(order, batch_size=bench.batch_size)))
        bench.wait()
        start = time.perf_counter()
        (last,) = collections.deque(rows.shuffled(order, batch_size=bench.batch_size), maxlen=1)
        bench.wait()
        seconds = time.perf_counter() - start
    bounds = batches.batch_bounds(len(order), bench.batch_size)
    for batch, (begin, end) in ((first, bounds[0]), (last, bounds[-1])):
        places = order[begin:end].numpy()
        for name in ("ids", "numerics", "labels"):
            if not np.array_equal(getattr(batch, name).cpu().numpy(), getattr(split, name)[places]):
                raise Wrong(f"{place}: other {name} than in the file")
    return {"rows": len(order), "rows_per_s": len(order) / seconds}


def costs(bench: Bench, _: str) -> Figures:
    """Seconds of what a run does beside its steps: the order of an epoch's rows, the copy of the
    rows to the device, and saving the state after an epoch.
    """
    table = PreparedTable.open(bench.table)
    found: Figures = {}
    with _timed(bench, found, "order_s"):
        order = batches.row_order(len(table.split("train")), seed=SEED, epoch=1)
    with _timed(bench, found, "order_digest_s"):
        batches.row_order_digest(order)
    with _timed(bench, found, "upload_s"):
        held = [batches.Rows(table.split(name), device=bench.device) for name in ("train", "valid")]
    del held
    with _timed(bench, found, "build_s"):
        wanted = bench.job("DCNv2", "prime").resolve()
        trainer = trainer_of(wanted, table.schema, device=bench.device)
    trainer.optimizer.step(bench.pool("avazu").batches(batch_size=bench.batch_size, n=1)[0])
    state = {
        "model": dict(trainer.arm.state_dict()),
        "optimizer": trainer.optimizer.state_dict(),
    }
    path = bench.folder / "costs.state"
    with StateFile(path, conditions={}, background=bench.on_cuda) as file:
        with _timed(bench, found, "save_wait_s"):
            file.write(state)
        with _timed(bench, found, "save_write_s"):
            file.wait()
    found["state_bytes"] = path.stat().st_size
    with _timed(bench, found, "best_weights_s"):
        weights_of(trainer.arm)
    return found


@contextmanager
def _timed(bench: Bench, found: Figures, name: str) -> Iterator[None]:
    bench.wait()
    start = time.perf_counter()
    yield
    bench.wait()
    found[name] = time.perf_counter() - start


def memory(bench: Bench, _: str) -> Figures:
    """A job for which the device is too small ends with an error that says so, and the next one is
    done.
    """
    wanted = bench.job("DNN", "dense", training={"max_epochs": 1})
    table = bench.folder / "table-of-resume"
    total = torch.cuda.get_device_properties(bench.device).total_memory
    weights = 4 * bench.shape("avazu").schema.shape.embedding_rows * 10
    torch.cuda.empty_cache()
    # Enough for the weights, but not for Adam's two moments.
    torch.cuda.set_per_process_memory_fraction(2 * weights / total, bench.device)
    try:
        bench.run(wanted, table=table, runs=bench.folder / "too-large")
        raise Wrong("the memory was limited, and the job was done")
    except EnvironmentFault as error:
        found = {"message": error.message}
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, bench.device)
    bench.run(wanted, table=table, runs=bench.folder / "too-large")
    return found
