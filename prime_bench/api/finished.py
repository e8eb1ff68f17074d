"""Predictions of finished jobs, and checks of their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prime_bench.api.execution import plan_for
from prime_bench.api.recipes import (
    RECIPE_ARGUMENTS,
    Changes,
    Log,
    Only,
    StrPath,
    change_texts,
)
from prime_bench.base.errors import DataError, UsageError
from prime_bench.store.predictions import Prediction, PredictionProgress
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

if TYPE_CHECKING:
    from prime_bench.store.verification import Discrepancy


def _ids_of(what: str, runs: Runs, *, only: Only, changes: Changes, data_dir: StrPath) -> list[str]:
    """The id of the one job that `what` begins, else those of the recipe's jobs, in its order.

    Jobs whose data are not prepared have none. Raises UsageError and DataError.
    """
    job_id = runs.find_job(what)
    if job_id is None:
        made = plan_for(what, only=only, changes=changes, data_dir=data_dir, runs_dir=runs.folder)
        return [planned.job_id for planned in made.jobs if planned.job_id is not None]
    if only or changes:
        raise UsageError(f"{RECIPE_ARGUMENTS}, not with a job")
    return [job_id]


def predict(
    what: str,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
    on_progress: Callable[[PredictionProgress], None] | None = None,
    on_prediction: Callable[[Prediction], None] | None = None,
) -> list[Prediction]:
    """Write predictions.npz into the folders of finished jobs, from the weights that they kept.

    Args:
        what: The id of a job or its first digits, four at least; or a recipe.
        only: Which jobs of the recipe.
        changes: Keys of the recipe to override, as they were given to `run`.
        device: `cpu`, `cuda` or `cuda:INDEX`; `auto` is cuda where there is one.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.
        on_progress: Called as rows are predicted.
        on_prediction: Called after each job.

    Returns:
        A result a job. `predictions(job)` reads the file.

    Raises:
        UsageError: The recipe or the device's name is faulty, or a job is of other numerics.
        DataError: There is no record, or the table or the weights are not there.
        EnvironmentFault: The device is not there, or its memory is too small.
    """
    from prime_bench.recipe.job import check_device

    check_device(device)
    runs = Runs(Path(runs_dir))
    ids = _ids_of(what, runs, only=only, changes=changes, data_dir=data_dir)
    found = [record for record in map(runs.find, ids) if isinstance(record, RunRecord)]
    if not found:
        raise DataError(
            f"{what}: no training run has a record in {runs.folder}",
            hint="train it first, with `prime-bench run`",
        )

    from prime_bench.training.recompute import write_predictions

    made = []
    for prediction in write_predictions(
        found, runs, data_dir=Path(data_dir), device=device, on_progress=on_progress
    ):
        made.append(prediction)
        if on_prediction is not None:
            on_prediction(prediction)
    return made


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify` has checked and found."""

    records: list[RunRecord | ProbeRecord]
    findings: list[Discrepancy]
    """What does not hold; empty where all does."""


def verify(
    what: str | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    recompute: bool = False,
    report_folder: StrPath | None = None,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
    log: Log | None = None,
) -> Verification:
    """Check records, the files beside them, their data, and which runs cannot be compared.

    Args:
        what: The id of a job or its first digits, four at least; or a recipe; None for all.
        only: Which jobs of the recipe.
        changes: Keys of the recipe to override, as they were given to `run`.
        device: Where `recompute` predicts.
        recompute: Whether to predict with the kept weights and compare the metrics too.
        report_folder: A folder that `ReportView.write` has filled, to check against its records.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.
        log: Called with what could not be checked, such as a table that is not here.

    Raises:
        UsageError: The recipe is faulty, or `only` or `changes` are given without one.
        DataError: There is no record.
    """
    from prime_bench.data.stages import no_log
    from prime_bench.data.table import check_tables
    from prime_bench.report.manifest import report_faults
    from prime_bench.store.verification import Discrepancy, check_pairs, check_records

    if what is None and (only or changes):
        raise UsageError(f"{RECIPE_ARGUMENTS}: name one")
    runs, data = Runs(Path(runs_dir)), Path(data_dir)
    one_job = what is not None and runs.find_job(what) is not None
    found, faults = runs.readable()
    findings = [Discrepancy(topic="record", where=str(runs.folder), what=fault) for fault in faults]
    others = len(found)
    if what is not None:
        wanted = set(_ids_of(what, runs, only=only, changes=changes, data_dir=data))
        found = [record for record in found if record.job_id in wanted]
    if not found and not findings:
        raise _nothing_to_verify(what, runs, one_job=one_job, changes=changes, others=others)
    findings += check_records(found, runs)
    fingerprints = {record.job.fingerprint for record in found}
    findings += [
        Discrepancy(topic="data", where=str(folder), what=fault)
        for folder, fault in check_tables(fingerprints, data_dir=data, log=log or no_log)
    ]
    trained = [record for record in found if isinstance(record, RunRecord)]
    if not one_job:
        findings += check_pairs(trained)
    if recompute:
        from prime_bench.training.recompute import check_metrics

        findings += check_metrics(trained, runs, data_dir=data, device=device)
    if report_folder is not None:
        where = str(report_folder)
        findings += [
            Discrepancy(topic="report", where=where, what=fault)
            for fault in report_faults(Path(report_folder), runs)
        ]
    return Verification(records=found, findings=findings)


def _nothing_to_verify(
    what: str | None, runs: Runs, *, one_job: bool, changes: Changes, others: int
) -> DataError:
    from prime_bench.report.request import no_record_hint

    if what is None:
        return DataError(f"{runs.folder}: no record here", hint="make some: prime-bench run quick")
    if one_job:
        hint = f"it has not finished: prime-bench show job {what}"
    else:
        hint = no_record_hint(what, changes=change_texts(changes), others=others)
    there = f", though {others} of other jobs" if others else ""
    return DataError(f"{runs.folder}: no record of {what} here{there}", hint=hint)
