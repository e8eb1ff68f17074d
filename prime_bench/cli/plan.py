"""`prime-bench plan`: what a recipe's jobs are and in which state."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prime_bench.cli import options

if TYPE_CHECKING:
    from prime_bench.schedule.plan import Plan

PLAN_SCHEMA = 1


@click.command()
@click.argument("recipe")
@options.only
@options.changes
@options.data_dir
@options.runs_dir
@options.as_json
def plan(
    recipe: str,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    data_dir: Path,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """List the jobs of RECIPE, a file or the name of a bundled recipe, and why each would run."""
    made = load_plan(recipe, only=only, changes=changes, data_dir=data_dir, runs_dir=runs_dir)
    print_plan(made, as_json=as_json)


def load_plan(
    recipe: str,
    *,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    data_dir: Path,
    runs_dir: Path,
) -> "Plan":
    """Read the recipe and look at data and records."""
    from prime_bench.recipe.load import load_recipe
    from prime_bench.schedule.plan import make_plan
    from prime_bench.store.runs import Runs

    loaded = load_recipe(recipe, changes=changes)
    return make_plan(loaded, data_dir=data_dir, runs=Runs(runs_dir), only=only)


def print_plan(made: "Plan", *, as_json: bool = False) -> None:
    """The plan as a table, or as one JSON object with the jobs under "jobs"."""
    import json

    from tabulate import tabulate

    from prime_bench.recipe.budget import added_text
    from prime_bench.schedule.budgets import added_budgets

    if as_json:
        content = {
            "schema": PLAN_SCHEMA,
            "recipe": made.recipe.name,
            "title": made.recipe.title,
            "counts": made.counts,
            "prepare": made.prepare_commands,
            "jobs": [planned.plain() for planned in made.jobs],
        }
        click.echo(json.dumps(content, indent=2))
        return
    header = ["job", "dataset", "backbone", "arm", "seed", "state", "why"]
    rows = [
        [
            planned.job.id if planned.job else "-",
            planned.trial.dataset,
            planned.trial.backbone,
            planned.trial.arm.name,
            planned.trial.seed,
            planned.state,
            planned.why,
        ]
        for planned in made.jobs
    ]
    click.echo(tabulate(rows, headers=header, tablefmt="plain", disable_numparse=True))
    click.echo(f"\n{made.recipe.title}\n{summary(made)}")
    for dataset, arms in added_budgets(made).items():
        parts = "; ".join(f"{arm} {added_text(budgets)}" for arm, budgets in arms.items())
        click.echo(f"{dataset}: parameters, and multiply-accumulates a row, added: {parts}")


def summary(made: "Plan") -> str:
    """One line of counts, then what to prepare."""
    counts = ", ".join(f"{number} {state}" for state, number in made.counts.items())
    lines = [f"{len(made.jobs)} jobs: {counts}"]
    lines += [f"to prepare: {command}" for command in made.prepare_commands]
    return "\n".join(lines)
