"""Predictions of finished jobs, and checks of their records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
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
from prime_bench.api.tables import file_paths
from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.words import counted
from prime_bench.recipe.file import find_recipe
from prime_bench.store.predictions import Prediction, PredictionProgress, RowPredictions
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import LISTING_HINT, PREDICTIONS, Runs

if TYPE_CHECKING:
    import numpy as np

    from prime_bench.data.stages import OnProgress
    from prime_bench.store.verification import Discrepancy, JobFiles, ManifestFacts


def _ids_of(what: str, runs: Runs, *, only: Only, changes: Changes, data_dir: StrPath) -> list[str]:
    """The id of the one job that `what` begins, else those of the recipe's jobs, in its order.

    Jobs whose data are not prepared have none. Raises UsageError and DataError.
    """
    job_id = runs.find_job(what)
    if job_id is None:
        try:
            find_recipe(what)
        except UsageError as error:
            if Path(what).name != what or Path(what).suffix:
                raise
            no_job = f"{what}: no job in {runs.folder} has an id that begins so"
            raise UsageError(f"{error.message}\n{no_job}", hint=error.hint) from None
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
        raise _no_training_run(what, runs)

    from prime_bench.training.recompute import write_predictions

    made = []
    for prediction in write_predictions(
        found, runs, data_dir=Path(data_dir), device=device, on_progress=on_progress
    ):
        made.append(prediction)
        if on_prediction is not None:
            on_prediction(prediction)
    return made


def predict_rows(
    job: str,
    source: StrPath | Sequence[StrPath],
    *,
    device: str = "auto",
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
    on_block: Callable[[np.ndarray], None] | None = None,
    on_progress: OnProgress | None = None,
    log: Log | None = None,
) -> RowPredictions:
    """Predict rows of raw files with the weights that a finished job has kept.

    The files are read by the card of the job's table, as `prepare` reads a log, and encoded with
    its vocabularies and the constants of its numeric rules. They need no label, nor columns that
    only say how a log is split.

    Args:
        job: The id of a job, or its first digits, four at least.
        source: A file, folder, archive or pattern, or several.
        device: `cpu`, `cuda` or `cuda:INDEX`; `auto` is cuda where there is one.
        data_dir: Folder of the prepared tables. Of the job's table the vocabularies are read.
        runs_dir: Folder of the records.
        on_block: Called with the probabilities (n,) float32 of the next rows. With it none are
            kept, so that memory does not grow with the number of rows.
        on_progress: Called as the files are read.
        log: Called with the columns that a file has and the card has not.

    Returns:
        The probabilities, unless there is `on_block`, and how many values of each field are not in
        its vocabulary.

    Raises:
        UsageError: `job` is no job, or of other numerics.
        DataError: There is no record, no table or no weights; or a file is missing or, at the line
            that is named, not as the card says.
        EnvironmentFault: The device is not there, or its memory is too small.
    """
    import numpy as np

    from prime_bench.data.manifest import table_with
    from prime_bench.data.new_rows import NewRows
    from prime_bench.data.stages import no_log, no_progress
    from prime_bench.data.table import PreparedTable
    from prime_bench.recipe.job import check_device

    check_device(device)
    runs = Runs(Path(runs_dir))
    job_id = runs.find_job(job)
    if job_id is None:
        raise UsageError(f"{job}: rows of a file are predicted by one job", hint=LISTING_HINT)
    record = runs.find(job_id)
    if not isinstance(record, RunRecord):
        raise _no_training_run(job, runs)
    table = PreparedTable.open(table_with(record.job.fingerprint, data_dir=Path(data_dir)))
    rows = NewRows(
        table,
        file_paths(source),
        on_progress=on_progress or no_progress,
        log=log or no_log,
    )

    from prime_bench.training.device import resolve_device
    from prime_bench.training.recompute import RowPredictor

    predictor = RowPredictor(
        record=record, folder=runs.path(job_id), table=table, device=resolve_device(device)
    )
    kept: list[np.ndarray] = []
    for block in predictor.predict(rows.blocks(n_rows=predictor.block_rows)):
        (on_block or kept.append)(block)
    return RowPredictions(
        record=record,
        rows=rows.rows,
        unknown=rows.unknown,
        conditions=predictor.conditions,
        probabilities=None if on_block else np.concatenate(kept),
    )


def _no_training_run(what: str, runs: Runs) -> DataError:
    return DataError(
        f"{what}: no training run has a record in {runs.folder}",
        hint="train it first, with `prime-bench run`",
    )


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify` has checked and found."""

    records: list[RunRecord | ProbeRecord]
    findings: list[Discrepancy]
    """What does not hold; empty where all does."""
    without_digests: int = 0
    """Records of versions that wrote no digests into them."""


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

    What follows from a record's own values, from the files beside it, from its settings and from
    its table is derived again and compared, and so are the digests that it was written with.

    Args:
        what: The id of a job or its first digits, four at least; a recipe; a bundle (`*.zip`); None
            for all.
        only: Which jobs of the recipe.
        changes: Keys of the recipe to override, as they were given to `run`.
        device: Where `recompute` predicts.
        recompute: Whether to predict with the kept weights too, and compare what follows: the
            scores of both splits, why a run is degenerate, kept predictions.
        report_folder: A folder that `ReportView.write` has filled, to check against its records.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.
        log: Called with what could not be checked, such as a table that is not here.

    Raises:
        UsageError: The recipe is faulty, or `only` or `changes` are given without one.
        DataError: There is no record, or the bundle is none.
    """
    from prime_bench.data.stages import no_log
    from prime_bench.data.table import check_tables
    from prime_bench.report.manifest import report_faults
    from prime_bench.store import verification

    if what is None and (only or changes):
        raise UsageError(f"{RECIPE_ARGUMENTS}: name one")
    say = log or no_log
    runs, data = Runs(Path(runs_dir)), Path(data_dir)
    if packed := what is not None and Path(what).suffix == ".zip":
        given = {"--only": only, "--set": changes, "--recompute": recompute}
        if unfit := [name for name, value in given.items() if value]:
            raise UsageError(
                f"{what}: a bundle has no {unfit[0]}: all its records are checked, and it has no"
                " weights"
            )
        sources = _packed_sources(Path(what))
    else:
        sources = _sources(what, runs, only=only, changes=changes, data_dir=data)
    found = [record for record, _ in sources.files]
    findings = [
        verification.Discrepancy(topic="record", where=str(sources.path), what=fault)
        for fault in sources.unreadable
    ]
    tables = _tables_of({record.job.fingerprint for record in found}, data_dir=data)
    for record, files in sources.files:
        findings += verification.check_record(record, files, tables[record.job.fingerprint])
    findings += verification.check_data(found)
    findings += [
        verification.Discrepancy(topic="data", where=str(folder), what=fault)
        for folder, fault in check_tables(tables, data_dir=data, log=say)
    ]
    trained = [record for record in found if isinstance(record, RunRecord)]
    if not sources.one_job:
        findings += verification.check_pairs(trained)
    kept = [run for run in trained if (runs.path(run.job_id) / PREDICTIONS).is_file()]
    if not packed and (recompute or kept):
        # Predictions are read with torch's help, which takes seconds to load.
        from prime_bench.training.recompute import check_metrics, check_predictions

        findings += check_predictions(kept, runs, data_dir=data)
        if recompute:
            findings += check_metrics(trained, runs, data_dir=data, device=device)
    if report_folder is not None:
        where = str(report_folder)
        findings += [
            verification.Discrepancy(topic="report", where=where, what=fault)
            for fault in report_faults(Path(report_folder), runs)
        ]
    bare = verification.without_digests(found)
    if bare:
        say(
            f"{bare} of {counted(len(found), 'record')} of a version that wrote no digests into "
            "them: an edit of what nothing else tells is not found there"
        )
    return Verification(records=found, findings=findings, without_digests=bare)


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """The records to verify, with the files beside them."""

    path: Path
    """The folder or the bundle."""
    files: list[tuple[RunRecord | ProbeRecord, JobFiles]]
    unreadable: list[str]
    one_job: bool = False
    """Whether a job was named, and not a recipe or all."""


def _sources(
    what: str | None, runs: Runs, *, only: Only, changes: Changes, data_dir: Path
) -> _Sources:
    from prime_bench.store.verification import FolderFiles

    one_job = what is not None and runs.find_job(what) is not None
    found, faults = runs.readable()
    others = len(found)
    if what is not None:
        wanted = set(_ids_of(what, runs, only=only, changes=changes, data_dir=data_dir))
        found = [record for record in found if record.job_id in wanted]
    if not found and not faults:
        raise _nothing_to_verify(what, runs, one_job=one_job, changes=changes, others=others)
    files = [(record, FolderFiles.of(record, runs)) for record in found]
    return _Sources(path=runs.folder, files=[*files], unreadable=faults, one_job=one_job)


def _packed_sources(path: Path) -> _Sources:
    from prime_bench.report.bundle import read_bundle

    bundle = read_bundle(path)
    files = [(record, bundle.files_of(record.job_id)) for record in bundle.records]
    return _Sources(path=path, files=[*files], unreadable=bundle.unreadable)


def _tables_of(fingerprints: set[str], *, data_dir: Path) -> dict[str, list[ManifestFacts]]:
    """What the manifests below `data_dir` say of the tables with these fingerprints."""
    from prime_bench.data.manifest import SCHEMA_NAME, SPLIT_NAMES, Manifest, prepared_tables
    from prime_bench.data.schema import Schema
    from prime_bench.store.verification import ManifestFacts

    found: dict[str, list[ManifestFacts]] = {fingerprint: [] for fingerprint in fingerprints}
    for _, folder in prepared_tables(data_dir):
        manifest = Manifest.read(folder)
        if manifest.fingerprint in found:
            # A schema that cannot be read is a finding of its own, by `check_tables`.
            with contextlib.suppress(DataError):
                facts = ManifestFacts(
                    where=str(folder),
                    variant=manifest.variant,
                    verified=manifest.verified,
                    notes=manifest.notes,
                    card=manifest.own_card,
                    rows={name: getattr(manifest.rows, name) for name in SPLIT_NAMES},
                    shape=Schema.read(folder / SCHEMA_NAME).shape,
                )
                found[manifest.fingerprint].append(facts)
    return found


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
