"""Checks of whole jobs on a generated table of the full size: an epoch with validation, scores."""

import time

import numpy as np
import torch
from gpu_data import write_table
from gpu_results import Figures
from gpu_session import Bench, Wrong

from prime_bench.assemble import build_arm
from prime_bench.data.table import PreparedTable
from prime_bench.training.batches import Rows
from prime_bench.training.checkpoint import CHECKPOINT, load_weights
from prime_bench.training.evaluation import predict, score

JOBS = ("DNN dense", "DCNv2 prime")
_METRIC = 1e-12
_LEAST_AUC = 0.6
"""After an epoch of the generated rows, in which a few fields tell much."""


def generate(bench: Bench, dataset: str) -> Figures:
    """The table that the other checks read: the size of Avazu_x1."""
    shape = bench.shape(dataset)
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

    rows = Rows(table.split("test"), device=bench.device)
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
