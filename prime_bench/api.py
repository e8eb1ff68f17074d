"""The Python interface: prepare data, plan and run a recipe, read its records, report on them.

The command line calls these functions, so a notebook does all that it does:

    from prime_bench import api

    api.prepare("synthetic", settings={"rows": 20_000})
    api.run("quick", changes={"training.max_epochs": 2})
    api.records("quick", changes={"training.max_epochs": 2})   # a polars frame, a row a run
    api.report("quick", changes={"training.max_epochs": 2})    # tables, shown by a notebook

Arguments that several functions share:

`recipe`
    The path of a recipe's file or the name of a bundled one (`quick`, `main13`, ...). `plan` and
    `run` also take a `Recipe` that `load_recipe` has read.
`only`
    Which data sets, backbones, arms and seeds of the recipe: `{"backbone": "DNN", "seed": [1, 2]}`,
    or as the command line has it, `["backbone=DNN", "seed=1", "seed=2"]`.
`changes`
    Keys of the recipe to override: `{"training.max_epochs": 1}`, or `["training.max_epochs=1"]` as
    with `--set`. They make other jobs, so give the same ones to `plan`, `run`, `records`, `report`.
`data_dir`, `runs_dir`
    Folders of the prepared tables and of the records; `data` and `runs` below the working folder.
`log`
    Called with one-line messages for the user. Nothing is printed unless `log=print`.

Errors that the user can correct are subclasses of `prime_bench.base.errors.UserError`, each with a
`message` and a `hint`: `UsageError` (wrong arguments, a faulty recipe), `DataError` (missing or
unfit data or records) and `EnvironmentFault` (disk, permission, device, network). A job that fails
raises nothing: `RunSummary.failed` has it.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from prime_bench.base.errors import DataError, UsageError, UserError, did_you_mean
from prime_bench.recipe.expand import Recipe
from prime_bench.recipe.file import find_recipe
from prime_bench.recipe.file import load_recipe as _load_recipe
from prime_bench.schedule.engine import Limits, Outcome
from prime_bench.schedule.plan import Plan, make_plan, table_specs_of
from prime_bench.schedule.run import (
    Engine,
    RunSummary,
    measuring_engine,
    open_engine,
    run_plan,
    stopping_gently,
)
from prime_bench.schedule.status import Status, status_of_folder, status_of_plan
from prime_bench.store.record import DeviceKind, ProbeRecord, RunRecord
from prime_bench.store.runs import LISTING_HINT, PREDICTIONS, Runs

if TYPE_CHECKING:
    import polars as pl

    from prime_bench.data.manifest import Manifest, TableSpec
    from prime_bench.data.stages import StageProgress
    from prime_bench.recipe.differences import KeyDifference
    from prime_bench.recipe.events import WorkerEvent
    from prime_bench.report.quantities.matches import MatchRow
    from prime_bench.report.view import ReportView
    from prime_bench.schedule.details import JobDetails
    from prime_bench.store.verification import Discrepancy

StrPath = str | os.PathLike[str]
Only = Mapping[str, object] | Sequence[str]
"""What narrows a recipe: a mapping, or texts such as `backbone=DNN`."""
Changes = Mapping[str, object] | Sequence[str]
"""What overrides keys of a recipe: a mapping, or texts such as `training.max_epochs=1`."""
Log = Callable[[str], None]

__all__ = [
    "Engine",
    "Prediction",
    "PredictionProgress",
    "Preparation",
    "RecipeDiff",
    "RunSummary",
    "TwoSides",
    "Verification",
    "compare",
    "cost_plan",
    "diff",
    "histories",
    "job",
    "jobs",
    "load_recipe",
    "open_engine",
    "pack",
    "plan",
    "predict",
    "predictions",
    "prepare",
    "prepare_recipe",
    "records",
    "report",
    "run",
    "status",
    "verify",
]


def _silent(_message: str) -> None:
    """Print nothing."""


# --- Recipes --------------------------------------------------------------------------------------


def load_recipe(recipe: StrPath, *, changes: Changes = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        recipe: Path of a recipe's file, or the name of a bundled one.
        changes: Keys to override.

    Returns:
        The recipe: data sets, backbones, arms and seeds with all defaults filled in.

    Raises:
        UsageError: The recipe does not exist or is faulty; the message names every fault with its
            file, line and key.
    """
    return _load_recipe(Path(recipe), changes=_change_texts(changes))


def _loaded(recipe: StrPath | Recipe, changes: Changes) -> Recipe:
    if not isinstance(recipe, Recipe):
        return load_recipe(recipe, changes=changes)
    if changes:
        raise UsageError("`changes` are for `load_recipe`, which has already read this recipe")
    return recipe


def _change_texts(changes: Changes) -> list[str]:
    """Each change as `key.key=value`, the value in TOML."""
    if isinstance(changes, str):
        raise UsageError(f"changes: a list of texts or a mapping is wanted, got `{changes}`")
    if isinstance(changes, Mapping):
        # A JSON number, text, boolean or list of them is valid TOML too.
        return [f"{key}={json.dumps(value)}" for key, value in changes.items()]
    return list(changes)


def _only_texts(only: Only) -> list[str]:
    """Each restriction as `key=value`."""
    if isinstance(only, str):
        raise UsageError(f"only: a list of texts or a mapping is wanted, got `{only}`")
    if not isinstance(only, Mapping):
        return list(only)
    texts = []
    for key, value in only.items():
        several = isinstance(value, Sequence | set | range) and not isinstance(value, str)
        values = cast("Sequence[object]", value) if several else [value]
        texts += [f"{key}={item}" for item in values]
    return texts


# --- Data -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A prepared table, as `prepare` has made or found it."""

    dataset: str
    """Name of the data set in the recipe; without a recipe the name of its card."""
    folder: Path
    manifest: Manifest
    """Its settings, row counts, digests and notes."""
    made: bool
    """Whether it was made now; False where it was there already."""


def prepare(
    dataset: str | TableSpec,
    *,
    settings: Mapping[str, Any] | None = None,
    source: StrPath | None = None,
    allow_unverified: bool = False,
    keep_download: bool = False,
    data_dir: StrPath = "data",
    on_progress: Callable[[StageProgress], None] | None = None,
    log: Log = _silent,
) -> Preparation:
    """Make the prepared table of a data set, or find that it is there.

    Args:
        dataset: Name of a data set: `avazu`, `criteo`, `avazu-raw` or `synthetic`.
        settings: Data settings that differ from the card's defaults, such as `{"rows": 20_000}`.
        source: Raw data: a file, folder or archive. None for generated data, and to download.
        allow_unverified: Whether to accept files that are not the published ones.
        keep_download: Whether to keep a downloaded archive after the table is verified.
        data_dir: Folder of the prepared tables.
        on_progress: Called now and then with the stage, and how much of it is done.
        log: Called with messages for the user.

    Returns:
        The table's folder and manifest.

    Raises:
        UsageError: There is no such data set or setting, or an argument does not apply to it.
        DataError: The files are missing, damaged or not the published ones.
        EnvironmentFault: The disk or the network fails. After any error, or Ctrl-C, there is no
            new table, and an old one stays.
    """
    from prime_bench.data.manifest import resolve
    from prime_bench.data.prepare import prepare as make
    from prime_bench.data.stages import no_progress

    spec = resolve(dataset, dict(settings or {})) if isinstance(dataset, str) else dataset
    _check_source(spec, source, unverified=allow_unverified, keep_download=keep_download)
    folder = Path(data_dir)
    before = _manifest_there(spec, folder)
    manifest = make(
        spec,
        data_dir=folder,
        source=None if source is None else Path(source),
        allow_unverified=allow_unverified,
        keep_download=keep_download,
        on_progress=on_progress or no_progress,
        log=log,
    )
    return Preparation(
        dataset=spec.name,
        folder=spec.folder(folder),
        manifest=manifest,
        made=manifest != before,
    )


def prepare_recipe(
    recipe: StrPath | Recipe,
    *,
    sources: Mapping[str, StrPath] | None = None,
    changes: Changes = (),
    allow_unverified: bool = False,
    keep_download: bool = False,
    data_dir: StrPath = "data",
    on_progress: Callable[[str, StageProgress], None] | None = None,
    on_table: Callable[[Preparation], None] | None = None,
    on_error: Callable[[str, UserError], None] | None = None,
    log: Log = _silent,
) -> list[Preparation]:
    """Make the prepared table of every data set of a recipe, under the recipe's settings.

    Args:
        recipe: A recipe.
        sources: Raw data by the name of the data set; the others are downloaded or generated.
        changes: Keys of the recipe to override.
        allow_unverified: Whether to accept files that are not the published ones.
        keep_download: Whether to keep downloaded archives after their tables are verified.
        data_dir: Folder of the prepared tables.
        on_progress: Called now and then with the data set's name and how far it is.
        on_table: Called with each table as soon as it is there.
        on_error: Called with the data set's name and its error, in place of raising it. The
            other data sets are prepared in either case.
        log: Called with messages for the user.

    Returns:
        The tables, in the order of the recipe.

    Raises:
        UsageError: The recipe is faulty, or `sources` does not fit it.
        UserError: The first error of a data set, unless there is `on_error`.
    """
    specs = table_specs_of(_loaded(recipe, changes))
    paths = {name: Path(path) for name, path in (sources or {}).items()}
    for name in paths:
        if name not in specs:
            raise UsageError(
                f"the recipe has no dataset `{name}`{did_you_mean(name, specs)}",
                hint=f"it has: {', '.join(specs)}",
            )
        if specs[name].card.kind == "generated":
            raise UsageError(f"{name} is generated and reads no files")
    tables: list[Preparation] = []
    errors: list[UserError] = []
    for name, spec in specs.items():
        try:
            made = prepare(
                spec,
                source=paths.get(name),
                allow_unverified=allow_unverified and bool(spec.card.files),
                keep_download=keep_download and _downloads(spec, paths.get(name)),
                data_dir=data_dir,
                on_progress=_named(on_progress, name),
                log=log,
            )
        except UserError as error:
            errors.append(error)
            if on_error is not None:
                on_error(name, error)
            continue
        tables.append(replace(made, dataset=name))
        if on_table is not None:
            on_table(tables[-1])
    if errors and on_error is None:
        raise errors[0]
    return tables


def _named(
    on_progress: Callable[[str, StageProgress], None] | None, name: str
) -> Callable[[StageProgress], None] | None:
    return None if on_progress is None else lambda progress: on_progress(name, progress)


def _downloads(spec: TableSpec, source: object) -> bool:
    """Whether `prepare` may download the raw data."""
    return source is None and bool(spec.card.archives)


def _check_source(
    spec: TableSpec, source: object, *, unverified: bool, keep_download: bool
) -> None:
    """Raise UsageError for an argument that has no effect on this data set."""
    if spec.card.kind == "generated" and source is not None:
        raise UsageError(f"--from: {spec.name} is generated and reads no files")
    if unverified and not spec.card.files:
        raise UsageError(f"--allow-unverified: no digests are published for {spec.name}")
    if keep_download and not _downloads(spec, source):
        raise UsageError("--keep-download: nothing is downloaded")


def _manifest_there(spec: TableSpec, data_dir: Path) -> Manifest | None:
    try:
        return spec.manifest(data_dir)
    except DataError:
        return None


# --- Plans and runs -------------------------------------------------------------------------------


def plan(
    recipe: StrPath | Recipe,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    engine: Engine | None = None,
    retrain_stale: bool = False,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
) -> Plan:
    """List the jobs of a recipe, their states, and why each would run; nothing is run.

    Args:
        recipe: A recipe.
        only: Which of its jobs.
        changes: Keys of the recipe to override.
        device: Where the jobs would run. Its kind tells which records could not pair.
        engine: An engine from `open_engine`, whose devices count in place of `device`.
        retrain_stale: Whether jobs whose records cannot pair are to be done again.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.

    Returns:
        The plan. `Plan.counts` has the number of jobs by state, `Plan.to_run` those that `run`
        would do, `Plan.prepare_commands` what data is missing; `jobs(plan)` makes a frame of it.

    Raises:
        UsageError: The recipe is faulty, `only` names what it has not, or it is of the kind
            `cost`, for which there is `cost_plan`.
        DataError: A prepared table's manifest cannot be read.
        EnvironmentFault: The device is not there.
    """
    from prime_bench.schedule.devices import find_devices

    kind = engine.device_kind if engine is not None else find_devices(device)[0].kind
    return _plan(
        recipe,
        only=only,
        changes=changes,
        device_kind=kind,
        retrain_stale=retrain_stale,
        data_dir=data_dir,
        runs_dir=runs_dir,
    )


def _plan(
    recipe: StrPath | Recipe,
    *,
    only: Only,
    changes: Changes,
    device_kind: DeviceKind = "cpu",
    retrain_stale: bool = False,
    data_dir: StrPath,
    runs_dir: StrPath,
) -> Plan:
    """Plan for a kind of device, without a look at this machine's."""
    loaded = _loaded(recipe, changes)
    if loaded.kind == "cost":
        name = loaded.name if isinstance(recipe, Recipe) else recipe
        raise UsageError(
            f"{name}: what its jobs are depends on the device that they measure",
            hint="measure it with `prime-bench profile`",
        )
    return make_plan(
        loaded,
        data_dir=Path(data_dir),
        runs=Runs(Path(runs_dir)),
        only=_only_texts(only),
        device_kind=device_kind,
        retrain_stale=retrain_stale,
    )


def cost_plan(
    recipe: StrPath | Recipe,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    again: bool = False,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
) -> Plan:
    """List the jobs of a recipe of the kind `cost`, which measures what arms cost on this machine.

    Pass the plan to `run` with the same `device`, and let nothing else run meanwhile.

    Args:
        recipe: A recipe whose `kind` is `cost`, such as the bundled `cost`.
        only: Which of its jobs.
        changes: Keys of the recipe to override.
        device: The device to measure; of a list the first.
        again: Whether to measure again what has a record; the old record is kept aside.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.

    Raises:
        UsageError: The recipe is faulty or of another kind.
        EnvironmentFault: The device is not there.
    """
    from prime_bench.schedule.devices import cores, find_devices, vendors_name
    from prime_bench.schedule.plan import measured_again, on_device

    here = find_devices(device)[0]
    loaded = on_device(_loaded(recipe, changes), device=vendors_name(here), threads=cores())
    made = make_plan(
        loaded,
        data_dir=Path(data_dir),
        runs=Runs(Path(runs_dir)),
        only=_only_texts(only),
        device_kind=here.kind,
    )
    return measured_again(made) if again else made


def run(
    recipe: StrPath | Recipe | Plan,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    slots: int = 1,
    threads: int | None = None,
    retries: int = 0,
    fail_fast: bool = False,
    max_hours: float | None = None,
    job_timeout_s: float | None = None,
    retrain_stale: bool = False,
    keep_predictions: bool = False,
    engine: Literal["local", "ray"] | Engine = "local",
    address: str = "auto",
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
    on_event: Callable[[WorkerEvent], None] | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
    on_stop: Callable[[], object] | None = None,
) -> RunSummary:
    """Do every job of a recipe that has no record.

    Each job runs in a child process. Ctrl-C (in a notebook: interrupt the kernel) or a SIGTERM
    lets running jobs go on to the end of their epoch and then returns; the next call continues
    them. A second one ends them at once and raises KeyboardInterrupt. Either way nothing that is
    finished is lost. Of a plan from `cost_plan` the first one does so. (In a thread other than
    the main one, signals are not handled.)

    Args:
        recipe: A recipe, or a plan from `plan` or `cost_plan`.
        only: Which of its jobs; not with a plan.
        changes: Keys of the recipe to override; not with a plan.
        device: `cpu`, `cuda` (all there are), or a list such as `cuda:0,cuda:1`; `auto` is cuda
            where there is one. With a plan: as it was given to `plan`.
        slots: Jobs at once on each device.
        threads: CPU threads of a job. None: the slots share the cores.
        retries: Further tries of a job that fails.
        fail_fast: Whether to start no job after one has failed.
        max_hours: Hours after which no job is started.
        job_timeout_s: Seconds after which a job is ended; it counts as failed.
        retrain_stale: Whether jobs whose records cannot pair are done again; not with a plan.
        keep_predictions: Whether each job leaves its predictions in its folder.
        engine: `local`, `ray`, or an engine from `open_engine`.
        address: Of the Ray cluster: HOST:PORT, or `auto` for the one on this machine.
        data_dir: Folder of the prepared tables; not with a plan, which knows it.
        runs_dir: Folder of the records.
        on_event: Called with each event of a worker: the rows of the running epoch, a validation.
            Called in the main thread while `run` waits.
        on_outcome: Called with each job's outcome as it ends.
        on_stop: Called once when the user stops the run; from a signal handler, so be brief.

    Returns:
        What was done. A job that fails does not stop the others and raises nothing.

    Raises:
        UsageError: The recipe or an argument is faulty.
        DataError: No data set of the recipe is prepared; the hint has the commands.
        EnvironmentFault: The device or cluster is not there, or `runs_dir` cannot be written.
        KeyboardInterrupt: The user stopped the run twice.
    """
    if isinstance(recipe, Plan):
        if only or changes or retrain_stale:
            raise UsageError("`only`, `changes` and `retrain_stale` are arguments of `plan`")
        if recipe.recipe.kind == "cost" and engine == "local":
            engine = measuring_engine(device)
    if not isinstance(engine, Engine):
        engine = open_engine(
            engine,
            device=device,
            slots=slots,
            threads=threads,
            job_timeout_s=job_timeout_s,
            address=address,
        )
    made = recipe
    if not isinstance(made, Plan):
        made = plan(
            made,
            only=only,
            changes=changes,
            engine=engine,
            retrain_stale=retrain_stale,
            data_dir=data_dir,
            runs_dir=runs_dir,
        )
    with stopping_gently(
        # A measurement of costs has no state to continue from: Ctrl-C ends it at once.
        None if made.recipe.kind == "cost" else engine.backend,
        on_stop,
    ) as signals:
        counts = run_plan(
            made,
            engine.backend,
            runs=Runs(Path(runs_dir)),
            threads=engine.threads,
            limits=Limits(
                retries=retries,
                fail_fast=fail_fast,
                max_s=None if max_hours is None else max_hours * 3600,
            ),
            keep_predictions=keep_predictions,
            on_event=on_event or (lambda _event: None),
            on_outcome=on_outcome or (lambda _outcome: None),
        )
    return RunSummary.of(made, counts, stopped=bool(signals))


def status(
    recipe: StrPath | Recipe | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
) -> Status:
    """Tell how far jobs are; also while another process runs them.

    Args:
        recipe: A recipe; None for every job that has a folder in `runs_dir`.
        only: Which jobs of the recipe.
        changes: Keys of the recipe to override.
        device: Where the jobs are meant to run, as for `plan`.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.

    Returns:
        The status of each job: state, epoch, rows a second, best validation AUC, time left.
        `jobs(status)` makes a frame of it.

    Raises:
        UsageError: The recipe is faulty, or `only` or `changes` are given without a recipe.
    """
    runs = Runs(Path(runs_dir))
    if recipe is None:
        if only or changes:
            raise UsageError("--only and --set go with a recipe: name one")
        return status_of_folder(runs)
    made = plan(
        recipe,
        only=only,
        changes=changes,
        device=device,
        data_dir=data_dir,
        runs_dir=runs_dir,
    )
    return status_of_plan(made, runs)


def job(job: str, *, data_dir: StrPath = "data", runs_dir: StrPath = "runs") -> JobDetails:
    """Read everything that the folder of a job has.

    Args:
        job: The id of a job, or its first digits, four at least. It may have finished, failed, or
            run at this moment.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.

    Returns:
        Its settings and where they are from, record, history, environment, failure, end of the log.

    Raises:
        UsageError: No job's id, or more than one, begins so.
        DataError: The record is broken.
    """
    from prime_bench.schedule.details import job_details

    runs = Runs(Path(runs_dir))
    return job_details(_job_id(job, runs), runs, data_dir=Path(data_dir))


def _job_id(job: str, runs: Runs) -> str:
    """The whole id. Raises UsageError and DataError."""
    job_id = runs.find_job(job)
    if job_id is None:
        raise UsageError(
            f"{job}: no job in {runs.folder} has an id that begins so", hint=LISTING_HINT
        )
    return job_id


def jobs(of: Plan | Status) -> pl.DataFrame:
    """Make a frame of a plan or a status, a row a job, in the order in which jobs run.

    The columns are the keys that `prime-bench plan --json` and `prime-bench status --json` print.
    """
    import polars as pl

    return pl.DataFrame([job.plain() for job in of.jobs], infer_schema_length=None)


# --- Records --------------------------------------------------------------------------------------


def records(
    recipe: StrPath | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    runs_dir: StrPath = "runs",
) -> pl.DataFrame:
    """Read the records of training runs into a frame, a row a run.

    Args:
        recipe: A recipe: the runs that its report is made from, whether the data are here or not.
            Or a bundle that `pack` has written. None: every training run in `runs_dir`.
        only: Which data sets, backbones, arms and seeds.
        changes: Keys of the recipe to override, as they were given to `run`.
        runs_dir: Folder of the records.

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
        UserWarning: A record cannot be read and is left out.
    """
    from prime_bench.store.frames import runs_frame

    return runs_frame(_runs_of(recipe, only=only, changes=changes, runs_dir=runs_dir))


def histories(
    recipe: StrPath | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    runs_dir: StrPath = "runs",
) -> pl.DataFrame:
    """Read the learning curves of the runs that `records` has, a row a validation.

    Args:
        recipe: As in `records`.
        only: Which data sets, backbones, arms and seeds.
        changes: Keys of the recipe to override, as they were given to `run`.
        runs_dir: Folder of the records.

    Returns:
        The first columns of `records`, up to the settings that differ; then `epoch` (from 1),
        `step`, `learning_rate`, `train_loss`, `valid_auc`, `valid_logloss`, `improved`, `best`
        (whether its weights were kept) and `wall_s` since the run's first step.

    Raises:
        UsageError: The recipe is faulty, or `only` names what there is not.
        DataError: The bundle cannot be read.
    """
    from prime_bench.store.frames import histories_frame

    return histories_frame(_runs_of(recipe, only=only, changes=changes, runs_dir=runs_dir))


def _runs_of(
    recipe: StrPath | None, *, only: Only, changes: Changes, runs_dir: StrPath
) -> list[RunRecord]:
    from prime_bench.report.selection import ReportRequest, open_source

    request = ReportRequest(
        recipe=None if recipe is None else str(recipe),
        only=_only_texts(only),
        changes=_change_texts(changes),
    )
    with open_source(request.recipe, Path(runs_dir)) as source:
        for fault in source.unreadable:
            warnings.warn(f"left out: {fault}", stacklevel=3)
        return request.runs(source)


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
    return predictions_frame(runs.path(_job_id(job, runs)))


# --- Reports --------------------------------------------------------------------------------------


def report(
    recipe: StrPath | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    tables: Sequence[str] = (),
    level: Literal["simple", "full"] = "simple",
    against: Literal["paper"] | None = None,
    check: StrPath | None = None,
    mixed: bool = False,
    runs_dir: StrPath = "runs",
) -> ReportView:
    """Make the tables of a recipe's jobs, or of everything that has records.

    Args:
        recipe: A recipe, or a bundle that `pack` has written. None: everything in `runs_dir`; with
            `against="paper"` each of the paper's tables from its own bundled recipe.
        only: Which data sets, backbones, arms and seeds.
        changes: Keys of the recipe to override, as they were given to `run`.
        tables: Names of tables to make in place of the recipe's own.
        level: `full` adds statistics over backbones, of each cell, and every pair.
        against: `paper` puts a comparison with every printed number and claim of the paper first.
        check: A TOML file with numbers to compare with; `ReportView.agrees` has the result.
        mixed: Whether to compare runs that differ in more than the arm; captions say so.
        runs_dir: Folder of the records.

    Returns:
        The report. A notebook shows its tables; `.tables` has them as frames, `.figures` as
        matplotlib figures, `.render(format)` as text, and `.write(folder)` writes files.

    Raises:
        UsageError: The recipe is faulty, or there is no such table.
        DataError: There is no record, or the bundle or `check` cannot be read.
    """
    from prime_bench.report.selection import ReportRequest, open_source
    from prime_bench.report.view import ReportView, compared_with

    request = ReportRequest(
        recipe=None if recipe is None else str(recipe),
        tables=tables,
        level=level,
        only=_only_texts(only),
        changes=_change_texts(changes),
        mixed=mixed,
    )
    folder = Path(runs_dir)
    with open_source(request.recipe, folder) as source:
        if recipe is None and against:
            made, records = request.paper_report(source), None
        else:
            made, records = request.report(source)
    made, agrees = compared_with(
        made, against=against, check=None if check is None else Path(check)
    )
    return ReportView(
        report=made,
        agrees=agrees,
        _records=records,
        _recipe=None if recipe is None else Path(recipe),
        _runs_dir=folder,
    )


def pack(
    recipe: StrPath,
    output: StrPath,
    *,
    changes: Changes = (),
    runs_dir: StrPath = "runs",
) -> list[str]:
    """Write the records of a recipe's jobs into a bundle, without weights and data.

    `report` and `records` read it. The same records give the same bytes.

    Args:
        recipe: A recipe.
        output: The bundle; its name ends in `.zip`.
        changes: Keys of the recipe to override, as they were given to `run`.
        runs_dir: Folder of the records.

    Returns:
        The ids of the packed jobs.

    Raises:
        UsageError: The recipe is faulty, or `output` is not named so.
        DataError: There is no record.

    Warns:
        UserWarning: A record cannot be read and is left out.
    """
    from prime_bench.report import selection

    job_ids, unreadable = selection.pack(
        str(recipe), Path(output), changes=_change_texts(changes), runs=Runs(Path(runs_dir))
    )
    for fault in unreadable:
        warnings.warn(f"left out: {fault}", stacklevel=2)
    return job_ids


# --- Comparisons ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TwoSides:
    """Two sides that `compare` has compared."""

    rows: list[MatchRow]
    """A row for each data set and backbone: scores of both sides, their paired differences, and
    the settings that differ."""
    alone: list[str]
    """What has no partner on the other side, a line each."""


def compare(
    left: str,
    right: str,
    *,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
    log: Log = _silent,
) -> TwoSides:
    """Compare two arms, two recipes or two folders of records, seed by seed.

    Args:
        left: An arm or plug-in that has records in `runs_dir`, a recipe, or a folder of records.
        right: One of the same kind. Differences are `right` over `left`; positive favours `right`.
        data_dir: Folder of the prepared tables, for recipes.
        runs_dir: Folder of the records, for arms and recipes.
        log: Called with each record that cannot be read.

    Raises:
        UsageError: A side is nothing of these, or the two are not of one kind.
        DataError: No run of one side has a partner on the other.
    """
    from prime_bench.report.quantities.matches import match_arms, match_sets, rows_of

    kinds = [_kind_of(side) for side in (left, right)]
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"{left} is a {kinds[0]} and {right} a {kinds[1]}",
            hint="give two arms, two recipes or two folders",
        )
    alone: list[str] = []
    if kinds[0] == "folder":
        sides = [_readable(Path(side), log=log) for side in (left, right)]
        matches, alone = match_sets(*sides)
    elif kinds[0] == "recipe":
        sides = [
            _planned_runs(side, data_dir=data_dir, runs_dir=runs_dir, log=log)
            for side in (left, right)
        ]
        matches, alone = match_sets(*sides)
    else:
        found = _readable(Path(runs_dir), log=log)
        known = sorted({name for run in found for name in (run.arm, run.job.plugin)})
        for side in (left, right):
            if side not in known:
                raise UsageError(
                    f"{side}: no folder, no recipe, and no arm of a record in {runs_dir}",
                    hint=f"arms: {', '.join(known) or 'none'}",
                )
        matches = match_arms(found, left, right)
    if not matches:
        raise DataError(
            f"no run of {left} has one of {right} to compare with",
            hint="`prime-bench status` lists what there is",
        )
    return TwoSides(rows=rows_of(matches), alone=alone)


def _kind_of(side: str) -> Literal["folder", "recipe", "arm"]:
    if Path(side).is_dir():
        return "folder"
    try:
        find_recipe(side)
    except UsageError:
        if Path(side).suffix == ".toml":
            raise
        return "arm"
    return "recipe"


def _readable(folder: Path, *, log: Log) -> list[RunRecord]:
    """The training runs in a folder; a record that cannot be read is named and left out."""
    found, faults = Runs(folder).readable()
    for fault in faults:
        log(f"left out: {fault}")
    return [record for record in found if isinstance(record, RunRecord)]


def _planned_runs(
    recipe: str, *, data_dir: StrPath, runs_dir: StrPath, log: Log
) -> list[RunRecord]:
    """The training runs of a recipe's jobs."""
    made = _plan(recipe, only=(), changes=(), data_dir=data_dir, runs_dir=runs_dir)
    for why in made.broken:
        log(f"left out: {why}")
    return [planned.record for planned in made.jobs if isinstance(planned.record, RunRecord)]


@dataclass(frozen=True, kw_only=True)
class RecipeDiff:
    """Where two recipes differ."""

    keys: list[KeyDifference]
    """Keys with different values, all defaults filled in."""
    n_left: int
    """Jobs of the left recipe alone."""
    n_right: int
    """Jobs of the right recipe alone."""
    n_both: int
    """Jobs that both have; they are done once."""


def diff(left: StrPath | Recipe, right: StrPath | Recipe) -> RecipeDiff:
    """Find the settings in which two recipes differ, and how many jobs they share.

    Args:
        left: A recipe.
        right: Another one.

    Raises:
        UsageError: A recipe is faulty.
    """
    from prime_bench.recipe.differences import differing_keys, resolved

    tables, ids = [], []
    for recipe in (_loaded(left, ()), _loaded(right, ())):
        specs = table_specs_of(recipe)
        datasets = {
            name: {"card": spec.name, **spec.settings.plain()} for name, spec in specs.items()
        }
        tables.append(resolved(recipe, datasets))
        # Jobs of one table differ as those of its settings do, whether it is prepared or not.
        ids.append(
            {job_spec.bind(specs[job_spec.dataset].digest).id for job_spec in recipe.job_specs()}
        )
    return RecipeDiff(
        keys=differing_keys(*tables),
        n_left=len(ids[0] - ids[1]),
        n_right=len(ids[1] - ids[0]),
        n_both=len(ids[0] & ids[1]),
    )


# --- Finished jobs --------------------------------------------------------------------------------


def _ids_of(what: str, runs: Runs, *, only: Only, changes: Changes, data_dir: StrPath) -> list[str]:
    """The id of the one job that `what` begins, else those of the recipe's jobs, in its order.

    Jobs whose data are not prepared have none. Raises UsageError and DataError.
    """
    job_id = runs.find_job(what)
    if job_id is None:
        made = _plan(what, only=only, changes=changes, data_dir=data_dir, runs_dir=runs.folder)
        return [planned.job_id for planned in made.jobs if planned.job_id is not None]
    if only or changes:
        raise UsageError("--only and --set go with a recipe, not with a job")
    return [job_id]


@dataclass(frozen=True, kw_only=True)
class PredictionProgress:
    """How far `predict` is."""

    record: RunRecord
    """Of the job that predicts now."""
    number: int
    """Of the job, from 1."""
    n_jobs: int
    rows: int
    """Rows that are predicted."""
    n_rows: int


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The predictions of a finished job."""

    record: RunRecord
    path: Path
    """predictions.npz in the job's folder."""
    differences: list[str]
    """How the predictions miss the recorded metrics, a line each; the file is not written then."""
    conditions: list[str]
    """What is not as it was when the job ran: device, threads, versions."""

    @property
    def written(self) -> bool:
        """Whether the predictions give the record's metrics, and the file is there."""
        return not self.differences


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
    from prime_bench.data.manifest import table_with
    from prime_bench.data.table import PreparedTable
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

    from prime_bench.training.device import resolve_device
    from prime_bench.training.evaluation import SCORED_SPLITS, save_predictions
    from prime_bench.training.recompute import recompute

    made = []
    for number, record in enumerate(found, start=1):
        folder = table_with(record.job.fingerprint, data_dir=Path(data_dir))
        table = PreparedTable.open(folder)
        labels = {name: table.split(name).labels for name in SCORED_SPLITS}
        done = PredictionProgress(
            record=record,
            number=number,
            n_jobs=len(found),
            rows=0,
            n_rows=sum(map(len, labels.values())),
        )
        weights = recompute(
            record,
            runs.path(record.job_id),
            table,
            device=resolve_device(device),
            on_rows=_counting(done, on_progress),
        )
        path = runs.path(record.job_id) / PREDICTIONS
        if not weights.differences:
            save_predictions(path, weights.probabilities, labels)
        made.append(
            Prediction(
                record=record,
                path=path,
                differences=weights.differences,
                conditions=weights.conditions,
            )
        )
        if on_prediction is not None:
            on_prediction(made[-1])
    return made


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
    log: Log = _silent,
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
    from prime_bench.report.manifest import report_faults
    from prime_bench.store.verification import Discrepancy

    if what is None and (only or changes):
        raise UsageError("--only and --set go with a recipe: name one")
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
    findings += _discrepancies(found, runs, data_dir=data, one_job=one_job, log=log)
    if recompute:
        findings += _recomputed(found, runs, data_dir=data, device=device)
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
    from prime_bench.report.selection import no_record_hint

    if what is None:
        return DataError(f"{runs.folder}: no record here", hint="make some: prime-bench run quick")
    if one_job:
        hint = f"it has not finished: prime-bench show job {what}"
    else:
        hint = no_record_hint(what, changes=_change_texts(changes), others=others)
    there = f", though {others} of other jobs" if others else ""
    return DataError(f"{runs.folder}: no record of {what} here{there}", hint=hint)


def _discrepancies(
    found: Sequence[RunRecord | ProbeRecord],
    runs: Runs,
    *,
    data_dir: Path,
    one_job: bool,
    log: Log,
) -> Iterator[Discrepancy]:
    from prime_bench.store.verification import check_data, check_files, check_pairs

    trained = [record for record in found if isinstance(record, RunRecord)]
    for record in trained:
        yield from check_files(record, runs)
    yield from check_data(found)
    fingerprints = {record.job.fingerprint for record in found}
    yield from _table_discrepancies(fingerprints, data_dir=data_dir, log=log)
    if not one_job:
        yield from check_pairs(trained)


def _table_discrepancies(
    fingerprints: set[str], *, data_dir: Path, log: Log
) -> Iterator[Discrepancy]:
    """Read the prepared tables that are here; a record may outlive its data."""
    from prime_bench.data.manifest import table_with
    from prime_bench.data.table import PreparedTable
    from prime_bench.store.verification import Discrepancy

    for fingerprint in sorted(fingerprints):
        try:
            folder = table_with(fingerprint, data_dir=data_dir)
        except DataError:
            log(f"not checked: no table {fingerprint[:8]} in {data_dir}")
            continue
        try:
            PreparedTable.open(folder).check_contents()
        except DataError as error:
            yield Discrepancy(topic="data", where=str(folder), what=error.message)


def _recomputed(
    found: Sequence[RunRecord | ProbeRecord], runs: Runs, *, data_dir: Path, device: str
) -> Iterator[Discrepancy]:
    """Predict with the weights of every training run."""
    from prime_bench.data.manifest import table_with
    from prime_bench.data.table import PreparedTable
    from prime_bench.store.verification import Discrepancy
    from prime_bench.training.device import resolve_device
    from prime_bench.training.recompute import recompute

    chosen = resolve_device(device)
    for record in found:
        if not isinstance(record, RunRecord):
            continue
        folder = runs.path(record.job_id)
        try:
            table = PreparedTable.open(table_with(record.job.fingerprint, data_dir=data_dir))
            weights = recompute(record, folder, table, device=chosen)
        except (DataError, UsageError) as error:
            yield Discrepancy(topic="metrics", where=str(folder), what=error.message)
            continue
        for difference in weights.differences:
            yield Discrepancy(topic="metrics", where=str(folder), what=difference)
