"""`prime-bench check`: hold a plug-in or backbone to the rules of all."""

import subprocess
import sys

import click

from prime_bench.cli import complete


@click.command()
@click.argument("name", shell_complete=complete.backbones_and_arms)
@click.pass_context
def check(ctx: click.Context, name: str) -> None:
    """Check that a plug-in or backbone keeps the rules.

    Every comparison relies on these rules (docs/your-own-plugin.md has them). NAME is what a recipe
    can name: a bundled one, an entry point, or `module:Class` of an importable module. Prints
    `pass` or `FAIL` with the reason for each rule; exit code 1 if one is broken.
    """
    # In a process of its own: the command line loads no torch, and somebody's code may do anything.
    done = subprocess.run([sys.executable, "-m", "prime_bench.contract", name], check=False)
    ctx.exit(done.returncode)
