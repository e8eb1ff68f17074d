"""The weights of a finished job once more: what they predict, and whether that gives its record."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from prime_bench.assemble import Assembled, build_arm
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.identity import NUMERICS
from prime_bench.data.table import PreparedTable
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import CHECKPOINT
from prime_bench.training.batches import Rows, row_order, row_order_digest
from prime_bench.training.checkpoint import load_weights
from prime_bench.training.device import fix_arithmetic, is_out_of_memory
from prime_bench.training.environment import conditions, environment, unlike
from prime_bench.training.evaluation import SPLITS, predict, score

TOLERANCE = 1e-5
"""How far a metric may be from the recorded one, relative to the larger of it and 1, where device,
threads or versions are not those of the record. Where they are, it must be the same number."""


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """What the weights give now."""

    probabilities: dict[str, Tensor]
    """Of `valid` and `test`, (N,) on the device."""
    differences: list[str]
    """Where this is not what the record says, each in a line; empty where all is."""
    conditions: list[str]
    """What is other than when the job ran (device, threads, versions), in words. Empty: the same
    numbers are demanded. Else TOLERANCE holds, and the initial weights are not compared."""


def recompute(
    record: RunRecord,
    folder: Path,
    table: PreparedTable,
    *,
    device: torch.device,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Recomputed:
    """Load the weights in the job's `folder`, predict validation and test rows, and compare.

    `on_rows` is told how many more rows were predicted. Sets torch's number of threads to the
    record's. Raises DataError where the table or the weights are not the job's, UsageError where
    the code is not, EnvironmentFault for want of memory.
    """
    _check_fit(record, table)
    fix_arithmetic(threads=record.environment.threads)
    changed = unlike(conditions(record.environment), conditions(environment(device)))
    assembled = build_arm(record.job.resolve(), table.schema)
    _load(assembled, folder / CHECKPOINT)
    probabilities, differences = {}, list(_origins(record, assembled, table, same=not changed))
    try:
        assembled.arm.to(device)
        for name in SPLITS:
            rows = Rows(table.split(name), device=device)
            probabilities[name] = predict(
                assembled.arm, rows, batch_size=record.job.training.batch_size, on_rows=on_rows
            )
            now, then = score(rows.labels, probabilities[name]), getattr(record.result, name)
            for metric in ("auc", "logloss"):
                found, recorded = getattr(now, metric), getattr(then, metric)
                if not _agree(found, recorded, tolerance=TOLERANCE if changed else 0.0):
                    differences.append(f"{name} {metric}: {recorded} in the record, {found} now")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise EnvironmentFault(
            f"out of memory on {device} while predicting",
            hint="use another device (--device cpu)",
        ) from error
    return Recomputed(probabilities=probabilities, differences=differences, conditions=changed)


def _check_fit(record: RunRecord, table: PreparedTable) -> None:
    job = record.job
    if table.manifest.fingerprint != job.fingerprint:
        raise DataError(
            f"{table.path}: the table has the fingerprint {table.manifest.fingerprint}, "
            f"the job {job.id} was trained on {job.fingerprint}"
        )
    if job.numerics != NUMERICS:
        raise UsageError(
            f"the job {job.id} was trained with numerics {job.numerics}, "
            f"this version has {NUMERICS}",
            hint=f"use the version that trained it: {record.environment.package_version}, commit "
            f"{record.environment.commit}",
        )


def _load(assembled: Assembled, path: Path) -> None:
    weights = load_weights(path)
    try:
        assembled.arm.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(f"{path}: not the weights of this job: {error}".splitlines()[0]) from error


def _origins(
    record: RunRecord, assembled: Assembled, table: PreparedTable, *, same: bool
) -> Iterator[str]:
    """What differs in that which the run began with."""
    order = row_order(len(table.split("train")), seed=record.job.seed, epoch=1)
    if row_order_digest(order) != record.pairing.row_order:
        yield "row order of epoch 1: not that of the record"
    # The normal deviates of another platform may differ in their last bits.
    if same and assembled.initial_weights != record.pairing.initial_weights:
        yield "initial weights: not those of the record"


def _agree(found: float | None, recorded: float | None, *, tolerance: float) -> bool:
    if found is None or recorded is None:
        return found is recorded
    return abs(found - recorded) <= tolerance * max(1.0, abs(recorded))
