"""`prime-bench pack`: a recipe's records in one file, from which anyone makes its tables again."""

from pathlib import Path

import click

from prime_bench.cli import options


@click.command()
@click.argument("recipe")
@options.changes
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The bundle, a .zip.",
)
@options.runs_dir
def pack(recipe: str, changes: tuple[str, ...], output: Path, runs_dir: Path) -> None:
    """Pack the records of RECIPE's jobs: with configurations and environments, no weights, no data.

    `prime-bench report BUNDLE` makes the tables from it, without torch. The same records give the
    same bytes.
    """
    from prime_bench.base.errors import UsageError
    from prime_bench.cli.evidence import Asked, cells_of, source_of
    from prime_bench.recipe.file import find_recipe
    from prime_bench.report.bundle import write_bundle
    from prime_bench.store.runs import Runs

    if output.suffix != ".zip":
        raise UsageError(f"--output {output}: a bundle's name ends in .zip")
    source = source_of(Runs(runs_dir))
    asked = Asked(recipe=recipe, changes=changes)
    asked.report(source)  # says what to do where there is no record
    _, cells = cells_of(recipe, source, only=(), changes=changes)
    job_ids = {record.job_id for record in asked.evidence(source).records()}
    write_bundle(
        output,
        runs=source.runs,
        job_ids=job_ids,
        recipe=find_recipe(recipe),
        changes=changes,
        variants=cells.variants,
    )
    for fault in source.unreadable:
        click.echo(f"left out: {fault}", err=True)
    click.echo(
        f"wrote {output}: {len(job_ids)} records, {output.stat().st_size / 1e6:.1f} MB", err=True
    )
