"""Plans of a recipe's jobs, runs of a plan, and the state of jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prime_bench.api.recipes import (
    RECIPE_ARGUMENTS,
    Changes,
    Log,
    Only,
    StrPath,
    loaded_recipe,
    only_texts,
)
from prime_bench.base.errors import UsageError
from prime_bench.recipe.recipe import Recipe
from prime_bench.schedule.engine import Engine, Limits, Outcome
from prime_bench.schedule.estimate import Experience, PlanEstimate, estimates_of, needs_of
from prime_bench.schedule.local import LocalEngine
from prime_bench.schedule.plan import Plan, make_plan
from prime_bench.schedule.run import (
    RunSummary,
    measuring_engine,
    open_engine,
    run_plan,
    stopping_gently,
)
from prime_bench.schedule.status import Status, status_of_folder, status_of_plan
from prime_bench.store.costs import MeasuredCosts
from prime_bench.store.record import DeviceKind
from prime_bench.store.runs import LISTING_HINT, Runs

if TYPE_CHECKING:
    import polars as pl

    from prime_bench.recipe.events import WorkerEvent
    from prime_bench.schedule.details import JobDetails


def plan(
    recipe: StrPath | Recipe,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    engine: Engine | None = None,
    retrain_stale: bool = False,
    accept_source: bool = False,
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
        accept_source: Whether records of another version of a class of your own count as done. For
            an edit that changes no number, such as that of a comment.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.

    Returns:
        The plan. `Plan.counts` has the number of jobs by state, `Plan.to_run` those that `run`
        would do, `Plan.prepare_commands` what data is missing, `Plan.earlier` which records are of
        an earlier version of a class of your own; `jobs(plan)` makes a frame of it.

    Raises:
        UsageError: The recipe is faulty, `only` names what it has not, or it is of the kind
            `cost`, for which there is `cost_plan`.
        DataError: A prepared table's manifest cannot be read.
        EnvironmentFault: The device is not there.
    """
    from prime_bench.schedule.devices import find_devices

    kind = engine.device_kind if engine is not None else find_devices(device)[0].kind
    return plan_for(
        recipe,
        only=only,
        changes=changes,
        device_kind=kind,
        retrain_stale=retrain_stale,
        accept_source=accept_source,
        data_dir=data_dir,
        runs_dir=runs_dir,
    )


def plan_for(
    recipe: StrPath | Recipe,
    *,
    only: Only,
    changes: Changes,
    device_kind: DeviceKind = "cpu",
    retrain_stale: bool = False,
    accept_source: bool = False,
    data_dir: StrPath,
    runs_dir: StrPath,
) -> Plan:
    """Plan for a kind of device, without a look at this machine's."""
    loaded = loaded_recipe(recipe, changes)
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
        only=only_texts(only),
        device_kind=device_kind,
        retrain_stale=retrain_stale,
        accept_source=accept_source,
    )


def estimate(
    plan: Plan,
    *,
    device: str = "auto",
    slots: int | Literal["auto"] = "auto",
    threads: int | None = None,
    engine: Engine | None = None,
    measure: bool = False,
    runs_dir: StrPath | None = None,
    log: Log | None = None,
) -> PlanEstimate:
    """Estimate the time, memory and disk that the jobs of a plan will take.

    Times are those of similar jobs that have a record: the same data, backbone, plug-in, and where
    there are some device, threads and jobs at once. Of an arm without a record they are those of
    another one, times the ratio that was measured by a `cost` job or on other data, or else that of
    their multiply-accumulates. Where nothing of a backbone has run on the data they are unknown,
    unless `measure` is given. Each has a range, from the shortest to the longest of the records.

    Args:
        plan: A plan from `plan` or `cost_plan`.
        device: Where the jobs would run, as it was given to `plan`.
        slots: Jobs at once on each device, as for `open_engine`.
        threads: CPU threads of a job, as for `open_engine`.
        engine: An engine from `open_engine`, which counts in place of the three.
        measure: Whether to train ten seconds for each data set, backbone and arm whose pace no
            record tells.
        runs_dir: Folder of the records, by default that of the plan. Records that cannot be read
            are left out.
        log: Called with the name of each job that is trained to measure.

    Returns:
        `PlanEstimate.jobs` has an estimate by job id, `PlanEstimate.total` their sum.

    Raises:
        UsageError: `device`, `slots` or `threads` is none.
        EnvironmentFault: The device is not there.
    """
    from prime_bench.schedule.devices import find_devices
    from prime_bench.schedule.measure import measure as measure_arms

    if engine is None and plan.recipe.kind == "cost":
        engine = measuring_engine(device)
    opened = engine or open_engine(device=device, slots=slots, threads=threads)
    layout = opened.slots_for(list(needs_of(plan).values()), n_jobs=len(plan.to_run))
    folder = Path(runs_dir or plan.runs_dir)
    records, _ = Runs(folder).readable() if plan.to_run else ([], [])
    experience = Experience(records, device=opened.device, slots=layout)
    faults: list[str] = []
    if measure:
        faults = measure_arms(
            plan,
            experience,
            devices=opened.devices if isinstance(opened, LocalEngine) else find_devices(device),
            slots=layout,
            on_start=lambda planned: (log or (lambda _: None))(f"measuring {planned.job_spec}"),
        )
    found = estimates_of(
        plan, experience=experience, device=opened.device, slots=layout, folder=folder
    )
    return replace(found, not_measured=tuple(faults))


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
    from prime_bench.base.machine import cores
    from prime_bench.schedule.devices import find_devices
    from prime_bench.schedule.plan import measured_again, on_device

    here = find_devices(device)[0]
    loaded = on_device(loaded_recipe(recipe, changes), device=here.title, threads=cores())
    made = make_plan(
        loaded,
        data_dir=Path(data_dir),
        runs=Runs(Path(runs_dir)),
        only=only_texts(only),
        device_kind=here.kind,
    )
    return measured_again(made) if again else made


def costs(plan: Plan, *, runs_dir: StrPath | None = None) -> list[MeasuredCosts]:
    """Read the costs that the jobs of a plan from `cost_plan` have measured, now or earlier.

    Args:
        plan: A plan from `cost_plan`.
        runs_dir: Folder of the records, by default that of the plan.

    Returns:
        The costs of all arms of a data set and backbone, one for each job that has a record.
        `MeasuredCosts.plain()` has the numbers, with medians and ratios to Dense.
    """
    runs = Runs(Path(runs_dir or plan.runs_dir))
    sound = [planned.job_id for planned in plan.jobs if planned.state != "broken"]
    records = [runs.find(job_id) for job_id in sound if job_id is not None]
    return [MeasuredCosts.of(record, plan.recipe) for record in records if record is not None]


def run(
    recipe: StrPath | Recipe | Plan,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    slots: int | Literal["auto"] = "auto",
    threads: int | None = None,
    retries: int = 0,
    fail_fast: bool = False,
    max_hours: float | None = None,
    job_timeout_s: float | None = None,
    retrain_stale: bool = False,
    accept_source: bool = False,
    keep_predictions: bool = False,
    log_to: Literal["tensorboard"] | None = None,
    engine: Literal["local", "ray"] | Engine = "local",
    address: str = "auto",
    data_dir: StrPath = "data",
    runs_dir: StrPath | None = None,
    on_event: Callable[[WorkerEvent], None] | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
    on_stop: Callable[[], object] | None = None,
) -> RunSummary:
    """Do every job of a recipe that has no record.

    Each job runs in a child process. Ctrl-C (in a notebook: interrupt the kernel) or a SIGTERM
    lets running jobs finish their epoch and then returns; the next call continues them. A second
    one ends them at once and raises KeyboardInterrupt. Either way nothing that is finished is
    lost. While a plan from `cost_plan` runs, the first Ctrl-C already ends it and raises
    KeyboardInterrupt. (In a thread other than the main one, signals are not handled.)

    Args:
        recipe: A recipe, or a plan from `plan` or `cost_plan`.
        only: Which of its jobs; not with a plan.
        changes: Keys of the recipe to override; not with a plan.
        device: `cpu`, `cuda` (all there are), or a list such as `cuda:0,cuda:1`; `auto` is cuda
            where there is one. With a plan: as it was given to `plan`.
        slots: Jobs at once on each device, as for `open_engine`.
        threads: CPU threads of a job, as for `open_engine`.
        retries: Further tries of a job that fails.
        fail_fast: Whether to start no job after one has failed.
        max_hours: Hours after which no job is started.
        job_timeout_s: Seconds after which a job is ended; it counts as failed.
        retrain_stale: Whether jobs whose records cannot pair are done again; not with a plan.
        accept_source: Whether records of another version of a class of your own count as done, as
            for `plan`; not with a plan.
        keep_predictions: Whether each job leaves its predictions in its folder.
        log_to: `tensorboard` writes event files of TensorBoard, a folder a job, to the folder
            `tensorboard` in `runs_dir`: losses, validation scores, learning rate, rows a second,
            routing. No result depends on it.
        engine: `local`, `ray`, or an engine from `open_engine`.
        address: The Ray cluster: HOST:PORT, or `auto` for the one on this machine.
        data_dir: Folder of the prepared tables; not with a plan, which knows it.
        runs_dir: Folder of the records: by default that of the plan, or `runs`.
        on_event: Called with each event of a worker: the rows of the running epoch, a validation.
            Called in the main thread while `run` waits.
        on_outcome: Called with each job's outcome as it ends.
        on_stop: Called once when the user stops the run; from a signal handler, so be brief.

    Returns:
        What was done. A job that fails does not stop the others and raises nothing.

    Raises:
        UsageError: The recipe or an argument is faulty.
        DataError: No data set of the recipe is prepared; the hint has the commands.
        EnvironmentFault: The device or cluster is not there, `runs_dir` cannot be written, or
            `log_to` is `tensorboard` and that is not installed.
        KeyboardInterrupt: The user stopped the run twice.
    """
    from prime_bench.schedule.tensorboard import TensorBoard, check_installed

    if log_to not in (None, "tensorboard"):
        raise UsageError(f"log_to: `{log_to}` is not known", hint="it may be tensorboard")
    if log_to is not None:
        check_installed()
    if isinstance(recipe, Plan):
        if only or changes or retrain_stale or accept_source:
            raise UsageError(
                "`only`, `changes`, `retrain_stale` and `accept_source` are arguments of `plan`"
            )
        if recipe.recipe.kind == "cost" and engine == "local":
            engine = measuring_engine(device)
    if isinstance(engine, str):
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
            accept_source=accept_source,
            data_dir=data_dir,
            runs_dir=runs_dir or "runs",
        )
    runs = Runs(Path(runs_dir or made.runs_dir))
    with contextlib.ExitStack() as stack:
        board = None if log_to is None else stack.enter_context(TensorBoard(made, runs))

        def event(found: WorkerEvent) -> None:
            if board is not None:
                board.event(found)
            if on_event is not None:
                on_event(found)

        def outcome(found: Outcome) -> None:
            if board is not None:
                board.close(found.request.job.id)
            if on_outcome is not None:
                on_outcome(found)

        # A measurement of costs has no state to continue from: Ctrl-C ends it at once.
        gently = None if made.recipe.kind == "cost" else engine
        signals = stack.enter_context(stopping_gently(gently, on_stop))
        summary = run_plan(
            made,
            engine,
            runs=runs,
            limits=Limits(
                retries=retries,
                fail_fast=fail_fast,
                max_s=None if max_hours is None else max_hours * 3600,
            ),
            keep_predictions=keep_predictions,
            on_event=event,
            on_outcome=outcome,
        )
    fault = None if board is None else board.fault
    return replace(summary, stopped=bool(signals), log_fault=fault)


def status(
    recipe: StrPath | Recipe | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    device: str = "auto",
    accept_source: bool = False,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
) -> Status:
    """Tell how far jobs are; also while another process runs them.

    Args:
        recipe: A recipe; None for every job that has a folder in `runs_dir`.
        only: Which jobs of the recipe.
        changes: Keys of the recipe to override.
        device: Where the jobs are meant to run, as for `plan`.
        accept_source: Whether records of another version of a class of your own count, as for
            `plan`.
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
            raise UsageError(f"{RECIPE_ARGUMENTS}: name one")
        if accept_source:
            raise UsageError("accept_source (--accept-source) goes with a recipe: name one")
        return status_of_folder(runs)
    made = plan(
        recipe,
        only=only,
        changes=changes,
        device=device,
        accept_source=accept_source,
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
        runs_dir: Folder of the records, or a bundle, which has no history.jsonl and no log.

    Returns:
        Its settings and where they are from, record, history, environment, failure, end of the log.

    Raises:
        UsageError: No job's id, or more than one, begins so.
        DataError: The record is broken, or the bundle is none.
    """
    from prime_bench.report.bundle import RUNS, unpacked
    from prime_bench.schedule.details import job_details

    place = Path(runs_dir)
    if place.suffix != ".zip":
        runs = Runs(place)
        return job_details(full_job_id(job, runs), runs, data_dir=Path(data_dir))
    with unpacked(place) as runs:
        job_id = full_job_id(job, runs)
        details = job_details(job_id, runs, data_dir=Path(data_dir))
    return replace(details, folder=place / RUNS / job_id)


def full_job_id(job: str, runs: Runs) -> str:
    """The whole id. Raises UsageError and DataError."""
    job_id = runs.find_job(job)
    if job_id is None:
        raise UsageError(
            f"{job}: no job in {runs.shown} has an id that begins so", hint=LISTING_HINT
        )
    return job_id


def jobs(of: Plan | Status) -> pl.DataFrame:
    """Make a frame of a plan or a status, a row a job, in the order in which jobs run.

    The columns are the keys that `prime-bench plan --json` and `prime-bench status --json` print.
    """
    import polars as pl

    return pl.DataFrame([job.plain() for job in of.jobs], infer_schema_length=None)
