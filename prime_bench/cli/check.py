"""`prime-bench check`: check a plug-in or backbone against the rules of comparisons."""

import click

from prime_bench.base.errors import EXIT_FAILED
from prime_bench.cli import complete


@click.command()
@click.argument("name", shell_complete=complete.backbones_and_arms)
@click.pass_context
def check(ctx: click.Context, name: str) -> None:
    """Check a plug-in or backbone against the rules of comparisons.

    The rules are in docs/your-own-plugin.md. NAME is what a recipe
    can name: a bundled one, an entry point, or `module:Class` of an importable module. Prints
    `pass` or `FAIL` with the reason for each rule; exit code 1 if one is broken.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_line

    results = api.check(name)
    for result in results:
        print_line(
            f"FAIL  {result.rule}: {result.fault}" if result.fault else f"pass  {result.rule}"
        )
    broken = sum(result.fault is not None for result in results)
    print_line(f"{name}: {len(results) - broken} of {len(results)} rules kept")
    ctx.exit(EXIT_FAILED if broken else 0)
