"""Predicting again with the weights of a finished job, and comparing the scores with its record."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prime_bench.assemble import Assembled, build_arm
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.files import sha256_of
from prime_bench.base.identity import NUMERICS
from prime_bench.data.manifest import table_with
from prime_bench.data.table import PreparedTable, Split, checked_table
from prime_bench.findings import ALL_METRICS, Metric, Score
from prime_bench.store.predictions import Prediction, PredictionProgress, read_predictions
from prime_bench.store.record import RunRecord, not_finite
from prime_bench.store.runs import CHECKPOINT, PREDICTIONS, Runs
from prime_bench.store.verification import TOLERANCE, Discrepancy, agree
from prime_bench.training.batches import Rows, row_order, row_order_digest
from prime_bench.training.checkpoint import load_weights
from prime_bench.training.device import fix_arithmetic, is_out_of_memory, resolve_device
from prime_bench.training.environment import conditions, environment, unlike
from prime_bench.training.evaluation import (
    SCORED_SPLITS,
    degeneracy,
    full_score,
    predict,
    save_predictions,
)
from prime_bench.training.graph import capture_on
from prime_bench.training.metrics import UndefinedMetric

_BLOCK_ROWS = 1 << 17
"""About how many rows of another log are held at once."""


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """The predictions of a job's weights, and how they differ from its record."""

    probabilities: dict[str, Tensor]
    """Split (`valid`, `test`) -> probabilities (N,) on the device."""
    differences: list[str]
    """Every difference from the record, one a line."""
    conditions: list[str]
    """Device, threads and versions that differ from those of the run, in words. If there are none,
    numbers must be the same; else they may differ by `TOLERANCE`, and initial weights are not
    compared."""


def recompute(
    record: RunRecord,
    folder: Path,
    table: PreparedTable,
    *,
    device: torch.device,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Recomputed:
    """Load the weights in the job's `folder`, predict the valid and test split, and compare the
    scores, the budget and the reasons for which the run is degenerate with the record. Sets torch's
    number of threads to that of the record.

    Args:
        on_rows: Called after each batch with its number of rows.

    Raises:
        DataError: The table or the weights are not those of the job.
        UsageError: The code is not that of the job.
        EnvironmentFault: Memory does not suffice.
    """
    assembled = _trained_arm(record, folder, table)
    changed = unlike(conditions(record.environment), conditions(environment(device)))
    probabilities: dict[str, Tensor] = {}
    scores: dict[str, Score] = {}
    differences = list(_initial_differences(record, assembled, table, same=not changed))
    try:
        assembled.arm.to(device)
        for name in SCORED_SPLITS:
            split = table.split(name)
            rows = Rows(split, device=device)
            probabilities[name] = predict(
                assembled.arm,
                rows,
                batch_size=record.job.training.batch_size,
                capture=capture_on(device),
                on_rows=on_rows,
            )
            now = scores[name] = full_score(
                rows.labels,
                probabilities[name],
                groups=split.groups,
                column=table.manifest.gauc_by,
            )
            for metric, found, recorded in _both(now, record.result.scores[name]):
                if not agree(found, recorded, tolerance=TOLERANCE if changed else 0.0):
                    differences.append(f"{name} {metric}: {recorded} in the record, {found} now")
    except (MemoryError, RuntimeError) as error:
        raise _memory_fault(error, device) from error
    faults = [*not_finite(record.history), degeneracy(probabilities, scores)]
    found_fault = "; ".join(fault for fault in faults if fault) or None
    # A constant that differs in its last bits is printed otherwise.
    same_words = found_fault == record.result.degenerate
    if not same_words and not (changed and None not in (found_fault, record.result.degenerate)):
        differences.append(
            f"degenerate: {record.result.degenerate} in the record, {found_fault} now"
        )
    return Recomputed(probabilities=probabilities, differences=differences, conditions=changed)


@dataclass(frozen=True, kw_only=True)
class RowPredictor:
    """Predicts rows of another log with the weights that a finished job has kept."""

    record: RunRecord
    folder: Path
    """Folder of the job."""
    table: PreparedTable
    """The table on which the job was trained; the rows are encoded by its vocabularies."""
    device: torch.device

    def predict(self, blocks: Iterable[Split]) -> Iterator[np.ndarray]:
        """Yield the probabilities (n,) float32 of the rows of each block.

        Each block but the last has `block_rows` rows, so that all rows are in the batches in which
        the job predicts a split with them: the bits are the same. Sets torch's number of threads
        to that of the record. Raises what `recompute` does.
        """
        weights = self.folder / CHECKPOINT
        arm = _trained_arm(self.record, self.folder, self.table).arm
        if self.record.weights not in (None, sha256_of(weights)):
            raise DataError(
                f"{weights}: is not the file that the job wrote",
                hint="let `prime-bench verify` say what else has changed",
            )
        batch_size = self.record.job.training.batch_size
        try:
            arm.to(self.device)
            for block in blocks:
                rows = Rows(block, device=self.device)
                capture = capture_on(self.device)
                found = predict(arm, rows, batch_size=batch_size, capture=capture)
                yield found.float().cpu().numpy()
        except (MemoryError, RuntimeError) as error:
            raise _memory_fault(error, self.device) from error

    @property
    def block_rows(self) -> int:
        """Rows of a block: a whole number of batches."""
        batch_size = self.record.job.training.batch_size
        return max(_BLOCK_ROWS // batch_size, 1) * batch_size

    @property
    def conditions(self) -> list[str]:
        """Device, threads and versions that differ from those of the run, in words. The bits may be
        others then.
        """
        return unlike(conditions(self.record.environment), conditions(environment(self.device)))


def _memory_fault(error: Exception, device: torch.device) -> Exception:
    """What to raise for an error while predicting: itself, unless memory did not suffice."""
    if not is_out_of_memory(error):
        return error
    return EnvironmentFault(
        f"out of memory on {device} while predicting",
        hint="use another device (--device cpu)",
    )


def _trained_arm(record: RunRecord, folder: Path, table: PreparedTable) -> Assembled:
    """The arm with the weights in the job's `folder`, on the CPU. Sets torch's arithmetic to that
    of the run.
    """
    _check_fit(record, table)
    fix_arithmetic(threads=record.environment.threads, matmul=record.job.training.matmul)
    assembled = build_arm(record.job.resolve(), table.schema)
    _load(assembled, folder / CHECKPOINT)
    return assembled


def write_predictions(
    records: Sequence[RunRecord],
    runs: Runs,
    *,
    data_dir: Path,
    device: str,
    on_progress: Callable[[PredictionProgress], None] | None = None,
) -> Iterator[Prediction]:
    """Predict with the weights of each job, and write predictions.npz into its folder.

    The file is not written where the predictions do not give the recorded metrics.

    Args:
        records: The records of the jobs.
        runs: The folder of the records.
        data_dir: Folder of the prepared tables.
        device: `cpu`, `cuda`, `cuda:INDEX` or `auto`.
        on_progress: Called as rows are predicted.

    Yields:
        A result a job.

    Raises:
        UsageError: The code is not that of a job.
        DataError: The table or the weights of a job are not there.
        EnvironmentFault: The device is not there, or its memory is too small.
    """
    chosen = resolve_device(device)
    for number, record in enumerate(records, start=1):
        folder = runs.path(record.job_id)
        table = checked_table(table_with(record.job.fingerprint, data_dir=data_dir))
        labels = {name: table.split(name).labels for name in SCORED_SPLITS}
        start = PredictionProgress(
            record=record,
            number=number,
            n_jobs=len(records),
            rows=0,
            n_rows=sum(map(len, labels.values())),
        )
        on_rows = _counting(start, on_progress)
        weights = recompute(record, folder, table, device=chosen, on_rows=on_rows)
        path = folder / PREDICTIONS
        if not weights.differences and not _is_kept(record, path):
            save_predictions(path, weights.probabilities, labels)
        yield Prediction(
            record=record,
            path=path,
            differences=weights.differences,
            conditions=weights.conditions,
        )


def check_metrics(
    records: Iterable[RunRecord], runs: Runs, *, data_dir: Path, device: str
) -> Iterator[Discrepancy]:
    """Predict with the weights of each training run, and yield how its metrics differ.

    Raises UsageError for the name of a device, and EnvironmentFault if it is not there.
    """
    chosen = resolve_device(device)
    for record in records:
        folder = runs.path(record.job_id)
        try:
            table = checked_table(table_with(record.job.fingerprint, data_dir=data_dir))
            weights = recompute(record, folder, table, device=chosen)
        except (DataError, UsageError) as error:
            yield Discrepancy(topic="metrics", where=str(folder), what=error.message)
            continue
        for difference in weights.differences:
            yield Discrepancy(topic="metrics", where=str(folder), what=difference)


def check_predictions(
    records: Iterable[RunRecord], runs: Runs, *, data_dir: Path
) -> Iterator[Discrepancy]:
    """Score the predictions.npz of each record, and yield how it differs from the record.

    Other devices than that of the run may have written the file, so metrics may differ by
    `TOLERANCE`. The groups of a group AUC are those of the prepared table below `data_dir`; where
    it is not there, or is not as it was prepared, the group AUC is not checked.
    """
    for record in records:
        folder = runs.path(record.job_id)
        path = folder / PREDICTIONS
        groups = _groups(record, data_dir)
        try:
            found = {
                name: full_score(labels, torch.from_numpy(p), groups=groups.get((name, len(p))))
                for name, (labels, p) in read_predictions(folder).items()
            }
        except (DataError, UndefinedMetric) as error:
            what = error.message if isinstance(error, DataError) else str(error)
            yield Discrepancy(topic="files", where=str(path), what=what)
            continue
        for name, now in found.items():
            for metric, value, recorded in _both(now, record.result.scores[name]):
                checked = metric != "gauc" or now.groups is not None
                if checked and not agree(value, recorded, tolerance=TOLERANCE):
                    what = f"{name} {metric}: {recorded} in the record, {value} by this file"
                    yield Discrepancy(topic="metrics", where=str(path), what=what)


def _groups(record: RunRecord, data_dir: Path) -> dict[tuple[str, int], np.ndarray]:
    """The groups of a split's rows, by its name and number of rows; empty where the record has no
    group AUC, and where the table cannot be read, which is for other checks to say.
    """
    if all(score.groups is None for score in record.result.scores.values()):
        return {}
    try:
        table = checked_table(table_with(record.job.fingerprint, data_dir=data_dir))
        found = [(name, table.split(name).groups) for name in SCORED_SPLITS]
    except DataError:
        return {}
    return {(name, len(groups)): groups for name, groups in found if groups is not None}


def _both(now: Score, then: Score) -> Iterator[tuple[Metric, float | None, float | None]]:
    """Each metric as it is now and as it was recorded; AUC and LogLoss alone where the record is of
    a version that had no others.
    """
    for metric in ALL_METRICS:
        recorded = getattr(then, metric)
        if metric in ("auc", "logloss") or recorded is not None or then.deciles is not None:
            yield metric, getattr(now, metric), recorded


def _is_kept(record: RunRecord, path: Path) -> bool:
    """Whether the file holds the predictions that the run itself kept, to the last bit."""
    kept = None if record.digests is None else record.digests.files.get(PREDICTIONS)
    return kept is not None and path.is_file() and sha256_of(path) == kept


def _counting(
    start: PredictionProgress, on_progress: Callable[[PredictionProgress], None] | None
) -> Callable[[int], None]:
    """A callback that takes the number of further rows."""
    rows = 0

    def count(more: int) -> None:
        nonlocal rows
        rows += more
        if on_progress is not None:
            on_progress(replace(start, rows=rows))

    return count


def _check_fit(record: RunRecord, table: PreparedTable) -> None:
    """Raise DataError for another table than the job's, UsageError for other numerics."""
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


def _initial_differences(
    record: RunRecord, assembled: Assembled, table: PreparedTable, *, same: bool
) -> Iterator[str]:
    """Differences in the parameters, the row order and the initial weights."""
    built = sum(p.numel() for p in assembled.arm.parameters() if p.requires_grad)
    budget = record.budget
    if built != budget.backbone_parameters + budget.plugin_parameters:
        yield f"budget: {budget} in the record, {built} parameters built"
    order = row_order(len(table.split("train")), seed=record.job.seed, epoch=1)
    if row_order_digest(order) != record.pairing.row_order:
        yield "row order of epoch 1: not that of the record"
    # Normal random numbers of another platform may differ in their last bits.
    if same and assembled.initial_weights != record.pairing.initial_weights:
        yield "initial weights: not those of the record"
