"""`prime-bench diff`: what two recipes ask for differently."""

import click

from prime_bench.base.words import counted
from prime_bench.cli import complete, options

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
    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line
    from prime_bench.recipe.differences import value_text

    found = api.diff(left, right)
    if as_json:
        lines = [{"key": d.key, "left": d.left, "right": d.right} for d in found.keys]
        jobs = {"left": found.n_left, "right": found.n_right, "both": found.n_both}
        print_json(DIFF_SCHEMA, {"recipes": [left, right], "keys": lines, "jobs": jobs})
        return
    for difference in found.keys:
        left_text, right_text = value_text(difference.left), value_text(difference.right)
        for line in (difference.key, f"  - {left_text}", f"  + {right_text}"):
            print_line(line)
    print_line(
        f"differences: {counted(len(found.keys), 'key')}; jobs: {found.n_both} of both, "
        f"{found.n_left} of {left} alone, {found.n_right} of {right} alone"
    )
