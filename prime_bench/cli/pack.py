"""`prime-bench pack`: a recipe's records in one file, from which anyone makes its tables again."""

from pathlib import Path

import click

from prime_bench.cli import complete, options


@click.command()
@click.argument("recipe", shell_complete=complete.recipes)
@options.changes
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The bundle, a .zip.",
)
@options.accept_source
@options.runs_dir
def pack(
    recipe: str, changes: tuple[str, ...], output: Path, accept_source: bool, runs_dir: Path
) -> None:
    """Pack the records of a recipe's jobs into one file.

    The bundle has records, configurations and environments, but neither weights nor data.
    `prime-bench report BUNDLE` makes the tables from it, without torch. The same records give the
    same bytes.
    """
    from prime_bench.cli.output import print_line
    from prime_bench.report.request import pack as pack_records
    from prime_bench.store.runs import Runs

    job_ids, unreadable = pack_records(
        recipe, output, changes=changes, runs=Runs(runs_dir), accept_source=accept_source
    )
    for fault in unreadable:
        print_line(f"left out: {fault}", err=True)
    print_line(
        f"wrote {output}: {len(job_ids)} records, {output.stat().st_size / 1e6:.1f} MB", err=True
    )
