"""`prime-bench run`: do every job of a recipe that has no record."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from prime_bench.base.errors import EXIT_FAILED, EXIT_INTERRUPTED
from prime_bench.base.words import job_name
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.schedule.run import RunSummary

_STOPPING = b"\nstopping: running jobs finish their epoch; Ctrl-C again ends them now\n"


@click.command()
@click.argument("recipe", shell_complete=complete.recipes)
@options.only
@options.changes
@options.where_jobs_run
@options.retries
@options.fail_fast
@options.max_hours
@options.retrain
@options.accept_source
@click.option(
    "--keep-predictions",
    is_flag=True,
    help="Leave predictions.npz in each job's folder, as `prime-bench predict` does later.",
)
@options.compiled
@click.option(
    "--log",
    "log_to",
    type=click.Choice(["tensorboard"]),
    help="Write event files of TensorBoard, a folder a job, to the folder `tensorboard` in the "
    "folder of runs. No result depends on it.",
)
@options.dry_run
@options.data_dir
@options.runs_dir
@click.pass_context
def run(
    ctx: click.Context,
    /,
    recipe: str,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    retries: int,
    fail_fast: bool,
    max_hours: float | None,
    retrain: str | None,
    accept_source: bool,
    keep_predictions: bool,
    compiled: bool,
    log_to: Literal["tensorboard"] | None,
    dry_run: bool,
    data_dir: Path,
    runs_dir: Path,
    **where: Any,
) -> None:
    """Do every job of a recipe that has no record.

    RECIPE is a file or the name of a bundled recipe. Ctrl-C lets running jobs finish their epoch,
    a second one ends them at once; the same command then continues the run.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_line
    from prime_bench.cli.plan import print_plan
    from prime_bench.cli.progress import RunProgress

    opened = api.open_engine(**where)
    made = api.plan(
        recipe,
        only=only,
        changes=options.with_compile(changes, compiled),
        engine=opened,
        retrain_stale=retrain == "stale",
        accept_source=accept_source,
        data_dir=data_dir,
        runs_dir=runs_dir,
    )
    if dry_run:
        print_plan(made, api.estimate(made, engine=opened, runs_dir=runs_dir))
        return
    for text in made.earlier:
        print_line(f"source: {text}", err=True)
    with RunProgress(made) as progress:
        summary = api.run(
            made,
            engine=opened,
            retries=retries,
            fail_fast=fail_fast,
            max_hours=max_hours,
            keep_predictions=keep_predictions,
            log_to=log_to,
            runs_dir=runs_dir,
            on_event=progress.event,
            on_outcome=progress.outcome,
            on_stop=tell_stopping,
        )
    print_line(f"{recipe}: {summary}")
    print_failures(summary, runs_dir=runs_dir)
    if summary.log_fault is not None:
        print_line(summary.log_fault, err=True)
    if summary.stopped:
        ctx.exit(EXIT_INTERRUPTED)
    ctx.exit(0 if summary.ok else EXIT_FAILED)


def tell_stopping() -> None:
    """Say on stderr that the run is being stopped; called while a signal is handled."""
    # Not through Python's stderr, in whose middle the signal may have come.
    os.write(2, _STOPPING)


def print_failures(summary: "RunSummary", *, runs_dir: Path) -> None:
    """Print a line for each job without a record on stderr, and what to do."""
    from prime_bench.cli.output import print_line, print_text
    from prime_bench.cli.plan import summary as plan_summary

    for outcome in (*summary.failed, *summary.not_run):
        request, job = outcome.request, outcome.request.job
        name = job_name(request.dataset, job.backbone, request.arm, job.seed)
        print_line(f"{outcome.state}: {name}: {outcome.why} ({runs_dir / job.id})", err=True)
    if summary.interrupted or summary.not_started:
        print_line("the same command continues this run", err=True)
    if summary.plan.prepare_commands or summary.plan.broken or summary.plan.unfit:
        print_text(plan_summary(summary.plan), err=True)
