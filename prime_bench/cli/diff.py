"""`prime-bench diff`: what two recipes ask for differently."""

from typing import TYPE_CHECKING, Any

import click

from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.recipe.expand import Recipe

DIFF_SCHEMA = 1


@click.command()
@click.argument("left", metavar="RECIPE", shell_complete=complete.recipes)
@click.argument("right", metavar="RECIPE", shell_complete=complete.recipes)
@options.as_json
def diff(left: str, right: str, as_json: bool) -> None:
    """Show where the settings of two recipes differ.

    Each RECIPE is a file or the name of a bundled recipe; all defaults are filled in. The last line
    says how many jobs they share: those are done once. The exit code is 0 whether they differ or
    not.
    """
    from prime_bench.cli.output import print_json
    from prime_bench.recipe.differences import differing_keys, resolved, value_text
    from prime_bench.recipe.file import load_recipe

    recipes = [load_recipe(left), load_recipe(right)]
    found = differing_keys(*(resolved(recipe, _datasets(recipe)) for recipe in recipes))
    jobs = [_jobs(recipe) for recipe in recipes]
    counts = {
        "left": len(jobs[0] - jobs[1]),
        "right": len(jobs[1] - jobs[0]),
        "both": len(jobs[0] & jobs[1]),
    }
    if as_json:
        lines = [{"key": d.key, "left": d.left, "right": d.right} for d in found]
        print_json(DIFF_SCHEMA, {"recipes": [left, right], "keys": lines, "jobs": counts})
        return
    for difference in found:
        left_text, right_text = value_text(difference.left), value_text(difference.right)
        click.echo(f"{difference.key}\n  - {left_text}\n  + {right_text}")
    click.echo(
        f"{len(found)} keys differ; jobs: {counts['both']} of both, {counts['left']} of {left} "
        f"alone, {counts['right']} of {right} alone"
    )


def _datasets(recipe: "Recipe") -> dict[str, dict[str, Any]]:
    """The resolved settings of the recipe's data sets. Raises UsageError."""
    from prime_bench.schedule.plan import variants_of

    return {
        name: {"card": variant.name, **variant.settings.plain()}
        for name, variant in variants_of(recipe).items()
    }


def _jobs(recipe: "Recipe") -> set[str]:
    """What tells the recipe's jobs from others, whether their data are prepared or not."""
    from prime_bench.schedule.plan import variants_of

    variants = variants_of(recipe)
    return {trial.bind(variants[trial.dataset].digest).id for trial in recipe.trials()}
