"""`prime-bench run`: train every job of a recipe that has no record."""

import os
from pathlib import Path

import click

from prime_bench.cli import options

EXIT_SOME_FAILED = 1


@click.command()
@click.argument("recipe")
@options.only
@options.changes
@click.option("--dry-run", is_flag=True, help="Print the plan and do nothing.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="`cpu`, `cuda` or `cuda:INDEX`; `auto` is cuda where there is one.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Jobs at once, each in a process of its own; they share the cores.",
)
@options.data_dir
@options.runs_dir
@click.pass_context
def run(
    ctx: click.Context,
    recipe: str,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    dry_run: bool,
    device: str,
    slots: int,
    data_dir: Path,
    runs_dir: Path,
) -> None:
    """Train every job of RECIPE, a file or the name of a bundled recipe, that has no record."""
    from prime_bench.cli.plan import load_plan, print_plan, summary
    from prime_bench.cli.progress import Progress
    from prime_bench.recipe.job import check_device
    from prime_bench.schedule.local import LocalBackend
    from prime_bench.schedule.run import run_plan
    from prime_bench.store.runs import Runs

    check_device(device)
    made = load_plan(recipe, only=only, changes=changes, data_dir=data_dir, runs_dir=runs_dir)
    if dry_run:
        print_plan(made)
        return
    with Progress(made) as progress:
        tally = run_plan(
            made,
            LocalBackend(slots=slots),
            data_dir=data_dir,
            runs=Runs(runs_dir),
            device=device,
            threads=_threads(slots),
            on_event=progress.event,
            on_outcome=progress.outcome,
        )
    before = made.counts.get("done", 0)
    click.echo(
        f"{recipe}: {tally.done} jobs done, {before} had a record, {len(tally.failed)} failed"
        + (f", {tally.skipped} left to another process" if tally.skipped else "")
    )
    for outcome in tally.failed:
        folder = runs_dir / outcome.request.job.id
        request = outcome.request
        click.echo(
            f"failed: {request.dataset} {request.job.backbone} {request.arm} "
            f"seed {request.job.seed}: {outcome.error} ({folder})",
            err=True,
        )
    if made.prepare_commands:
        click.echo(summary(made), err=True)
    ctx.exit(EXIT_SOME_FAILED if tally.failed else 0)


def _threads(slots: int) -> int | None:
    """Cores a job; None for a job that has the machine to itself, where torch knows best."""
    if slots == 1:
        return None
    # Not every system can say which of the cores this process may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) // slots)
