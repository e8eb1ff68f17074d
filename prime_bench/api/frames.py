"""Records, learning curves and predictions as polars frames."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from prime_bench.api.execution import full_job_id
from prime_bench.api.recipes import (
    Changes,
    Only,
    Places,
    StrPath,
    change_texts,
    only_texts,
    places_of,
)
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

if TYPE_CHECKING:
    import polars as pl


def records(
    recipe: StrPath | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    accept_source: bool = False,
    runs_dir: Places = "runs",
) -> pl.DataFrame:
    """Read the records of training runs into a frame, a row a run.

    Args:
        recipe: A recipe: the runs that its report is made from, whether the data are here or not.
            Or a bundle that `pack` has written. None: every training run in `runs_dir`.
        only: Which data sets, backbones, arms and seeds.
        changes: Keys of the recipe to override, as they were given to `run`.
        accept_source: Whether records of another version of a class of your own count as the
            recipe's; without a recipe every version is there.
        runs_dir: Folder of the records, or a list of folders and bundles, as for `report`.

    Returns:
        Columns `dataset`, `backbone`, `arm`, `seed`, `job_id`; a column for each setting that is
        not the same in all rows (`training.batch_size`, `backbone.hidden_units`, `arm.rank`; a
        list is written as JSON, and a row without such a setting has null); then `valid_auc`,
        `valid_logloss`, `test_auc`, `test_logloss`, `epochs`, `best_epoch`, `stopped`
        (`patience` or `max_epochs`), `wall_s`, `degenerate` (why the run is no sound measurement,
        else null), `parameters` and `plugin_parameters`, `device`, `numerics` and `started`. The
        frame has no rows where there is no record.

        Settings of a backbone are compared with those of the same backbone, settings of an arm
        with those of the same plug-in. Where tables of one data set differ, `data_variant` tells
        them apart.

    Raises:
        UsageError: The recipe is faulty, or `only` names what there is not.
        DataError: The bundle cannot be read.

    Warns:
        UserWarning: A record cannot be read and is left out, or those of an earlier version of a
            class of your own are.
    """
    from prime_bench.store.frames import runs_frame

    return runs_frame(
        _runs_of(recipe, only, changes, accept_source=accept_source, runs_dir=runs_dir)
    )


def histories(
    recipe: StrPath | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    accept_source: bool = False,
    runs_dir: Places = "runs",
) -> pl.DataFrame:
    """Read the learning curves of the runs that `records` has, a row a validation.

    Args:
        recipe: As in `records`.
        only: Which data sets, backbones, arms and seeds.
        changes: Keys of the recipe to override, as they were given to `run`.
        accept_source: Whether records of another version of a class of your own count as the
            recipe's; without a recipe every version is there.
        runs_dir: Folder of the records, or a list of folders and bundles, as for `report`.

    Returns:
        The first columns of `records`, up to the settings that differ; then `epoch` (from 1),
        `step`, `learning_rate`, `train_loss`, `valid_auc`, `valid_logloss`, `improved`, `best`
        (whether its weights were kept) and `wall_s` since the run's first step.

    Raises:
        UsageError: The recipe is faulty, or `only` names what there is not.
        DataError: The bundle cannot be read.
    """
    from prime_bench.store.frames import histories_frame

    return histories_frame(
        _runs_of(recipe, only, changes, accept_source=accept_source, runs_dir=runs_dir)
    )


def _runs_of(
    recipe: StrPath | None,
    only: Only,
    changes: Changes,
    *,
    accept_source: bool,
    runs_dir: Places,
) -> list[RunRecord]:
    from prime_bench.report.request import ReportRequest, read_source
    from prime_bench.report.sources import conflict_text
    from prime_bench.store.source_versions import exist_text

    request = ReportRequest(
        recipe=None if recipe is None else str(recipe),
        only=only_texts(only),
        changes=change_texts(changes),
        accept_source=accept_source,
    )
    source = read_source(request.recipe, places_of(runs_dir))
    for fault in source.unreadable:
        warnings.warn(f"left out: {fault}", stacklevel=3)
    for conflict in source.conflicts:
        warnings.warn(conflict_text(conflict), stacklevel=3)
    found, earlier = request.runs(source)
    for text in exist_text(earlier, then="(accept_source=True) shows them"):
        warnings.warn(text, stacklevel=3)
    return found


def predictions(job: str, *, runs_dir: StrPath = "runs") -> pl.DataFrame:
    """Read predictions.npz, which `run(keep_predictions=True)` or `predict` has written.

    Args:
        job: The id of a job, or its first digits, four at least.
        runs_dir: Folder of the records.

    Returns:
        A row for each row of the table's splits `valid` and `test`, in their order: `split`,
        `label` (0 or 1) and `probability` (float32).

    Raises:
        UsageError: No job's id, or more than one, begins so.
        DataError: The job has no predictions, or the file cannot be read.
    """
    from prime_bench.store.frames import predictions_frame

    runs = Runs(Path(runs_dir))
    return predictions_frame(runs.path(full_job_id(job, runs)))
