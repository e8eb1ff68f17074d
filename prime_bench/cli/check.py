"""`prime-bench check`: hold a plug-in or backbone to the rules of all."""

import subprocess
import sys

import click


@click.command()
@click.argument("name")
@click.pass_context
def check(ctx: click.Context, name: str) -> None:
    """Check that the plug-in or backbone NAME keeps the rules that every comparison rests on.

    NAME is what a recipe may name: one of ours, an entry point, or `module:Class` of an installed
    package. Prints `pass` or `FAIL` with the reason for each rule; exit code 1 if one is broken.
    """
    # In a process of its own: the command line loads no torch, and somebody's code may do anything.
    done = subprocess.run([sys.executable, "-m", "prime_bench.contract", name], check=False)
    ctx.exit(done.returncode)
