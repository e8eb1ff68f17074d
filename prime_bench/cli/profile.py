"""`prime-bench profile`: what the arms of a recipe cost on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prime_bench.base.errors import EXIT_FAILED, EXIT_INTERRUPTED
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.schedule.plan import Plan

PROFILE_SCHEMA = 1


@click.command()
@click.argument("recipe", shell_complete=complete.recipes)
@options.only
@options.changes
@options.device
@options.compiled
@click.option(
    "--again", is_flag=True, help="Measure what has a record once more; it is kept aside."
)
@options.dry_run
@options.data_dir
@options.runs_dir
@options.as_json
@click.pass_context
def profile(
    ctx: click.Context,
    recipe: str,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    device: str,
    compiled: bool,
    again: bool,
    dry_run: bool,
    data_dir: Path,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Measure time, memory and parameters of a recipe's arms.

    The kind of RECIPE is `cost`. The paper's protocol: all arms of a backbone take turns in one
    process, and ratios to Dense are paired within a repetition. Times are CUDA events on a GPU and
    the wall clock on a CPU; memory is what torch allocated on a GPU, and on a CPU how much a
    process of its own grew.

    One device is used, the first of `--device`, and every core. Let nothing else run: what shares
    the machine is measured too. What has a record of the same device is not measured again.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_line, print_text
    from prime_bench.cli.plan import print_plan, summary
    from prime_bench.cli.progress import RunProgress

    made = api.cost_plan(
        recipe,
        only=only,
        changes=options.with_compile(changes, compiled),
        device=device,
        again=again,
        data_dir=data_dir,
        runs_dir=runs_dir,
    )
    if dry_run:
        found = api.estimate(made, device=device, runs_dir=runs_dir)
        print_plan(made, found, as_json=as_json)
        return
    with RunProgress(made) as progress:
        done = api.run(
            made,
            device=device,
            runs_dir=runs_dir,
            on_event=progress.event,
            on_outcome=progress.outcome,
        )
    _print(made, runs_dir=runs_dir, as_json=as_json)
    for outcome in done.failed:
        job, why = outcome.request.job, outcome.why
        folder = runs_dir / job.id
        print_line(f"failed: {outcome.request.dataset} {job.backbone}: {why} ({folder})", err=True)
    if made.prepare_commands or made.broken:
        print_text(summary(made), err=True)
    if done.stopped:
        ctx.exit(EXIT_INTERRUPTED)
    ctx.exit(0 if done.ok else EXIT_FAILED)


def _print(made: "Plan", *, runs_dir: Path, as_json: bool) -> None:
    """What the plan's jobs have found, on this run or an earlier one."""
    from prime_bench import api
    from prime_bench.cli.costs import tables
    from prime_bench.cli.output import print_json, print_text

    measured = api.costs(made, runs_dir=runs_dir)
    if as_json:
        content = {
            "recipe": made.recipe.name,
            "title": made.recipe.title,
            "costs": [item.plain() for item in measured],
        }
        print_json(PROFILE_SCHEMA, content)
    elif measured:
        print_text(tables(measured))
