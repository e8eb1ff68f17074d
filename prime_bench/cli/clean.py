"""`prime-bench clean`: list and delete files that no record needs."""

from pathlib import Path

import click

from prime_bench.base.words import counted
from prime_bench.cli import options

CLEAN_SCHEMA = 1


@click.command()
@click.option(
    "--unfinished",
    is_flag=True,
    help="Also the folders of jobs that failed or were interrupted; they then start from epoch 1.",
)
@click.option("--yes", is_flag=True, help="Delete what is listed, without a question.")
@options.runs_dir
@options.as_json
def clean(unfinished: bool, yes: bool, runs_dir: Path, as_json: bool) -> None:
    """List files that no record needs, and delete them on request.

    These are replaced records, saved states of finished jobs, and incomplete files. They are
    deleted with --yes, or after a question in a terminal. Records, their weights and the files of
    running jobs are kept.
    """
    import sys

    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line, size

    found = api.leftovers(unfinished=unfinished, runs_dir=runs_dir)
    total = size(sum(leftover.n_bytes for leftover in found))
    if not as_json:
        for leftover in found:
            print_line(f"{leftover.path}: {size(leftover.n_bytes)}, {leftover.why}")
        print_line(f"{len(found)} to remove, {total}")
        if found and not yes and sys.stdin.isatty():
            yes = click.confirm("Remove them?", err=True)
    removed = api.clean(found, runs_dir=runs_dir) if yes else []
    if as_json:
        items = [
            {
                "path": str(leftover.path),
                "bytes": leftover.n_bytes,
                "why": leftover.why,
                "removed": leftover in removed,
            }
            for leftover in found
        ]
        print_json(CLEAN_SCHEMA, {"leftovers": items})
    elif yes and found:
        left = len(found) - len(removed)
        print_line(f"{len(removed)} removed" + (f", {left} in use meanwhile" if left else ""))
    elif found:
        print_line("nothing was removed: add --yes", err=True)
    elif kept := api.leftovers(unfinished=True, runs_dir=runs_dir):
        jobs = counted(len(kept), "folder")
        print_line(f"{jobs} of failed or interrupted jobs: --unfinished names them", err=True)
