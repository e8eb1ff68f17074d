"""`prime-bench pack`: a recipe's records in one file, from which anyone makes its tables again."""

from pathlib import Path

import click

from prime_bench.base.words import counted
from prime_bench.cli import complete, options


@click.command()
@click.argument(
    "given",
    metavar="[RECIPE] [BUNDLE|FOLDER]...",
    nargs=-1,
    required=True,
    shell_complete=complete.recipes_and_sources,
)
@options.only
@options.changes
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The bundle, a .zip.",
)
@options.accept_source
@options.runs_dirs
@click.pass_context
def pack(
    ctx: click.Context,
    given: tuple[str, ...],
    only: tuple[str, ...],
    changes: tuple[str, ...],
    output: Path,
    accept_source: bool,
    runs_dirs: tuple[Path, ...],
) -> None:
    """Pack the records of a recipe's jobs into one file.

    The bundle has records, configurations and environments, but neither weights nor data.
    `prime-bench report BUNDLE` makes the tables from it, without torch. The same records give the
    same bytes. With bundles or folders their records are packed together, as `report` puts them
    together; without RECIPE the bundles tell it.
    """
    from prime_bench.cli.output import print_line, size
    from prime_bench.cli.sources import recipe_and_places
    from prime_bench.report.request import pack as pack_records
    from prime_bench.report.sources import read_sources

    recipe, places = recipe_and_places(ctx, given, runs_dirs)
    job_ids, unreadable = pack_records(
        recipe,
        output,
        changes=changes,
        only=only,
        runs=read_sources(places),
        accept_source=accept_source,
    )
    for fault in unreadable:
        print_line(f"left out: {fault}", err=True)
    records = counted(len(job_ids), "record")
    print_line(f"wrote {output}: {records}, {size(output.stat().st_size)}", err=True)
