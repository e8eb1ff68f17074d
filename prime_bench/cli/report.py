"""`prime-bench report`: the main table from records."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from prime_bench.cli import options

if TYPE_CHECKING:
    from prime_bench.report.table import Report

REPORT_NAME = "main"


@click.command()
@click.argument("recipe", required=False)
@click.option(
    "--format",
    type=click.Choice(["markdown", "latex", "html", "json", "csv"]),
    default="markdown",
    show_default=True,
    help="JSON has every number in full precision, pair by pair.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write into this folder, with a full-precision CSV, instead of printing.",
)
@options.only
@options.changes
@options.runs_dir
def report(
    recipe: str | None,
    format: Literal["markdown", "latex", "html", "json", "csv"],
    output: Path | None,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    runs_dir: Path,
) -> None:
    """Print the main table of RECIPE's jobs, or of everything that has records.

    RECIPE is a file or the name of a bundled recipe; give the same --set as for `run`. Cells
    without a record are shown as missing.
    """
    from prime_bench.report.render import render, write_report

    made = load_report(recipe, only=only, changes=changes, runs_dir=runs_dir)
    if output is None:
        click.echo(render(made, format), nl=False)
        return
    for path in write_report(made, output, name=REPORT_NAME, format=format):
        click.echo(f"wrote {path}", err=True)


def load_report(
    recipe: str | None, *, only: tuple[str, ...], changes: tuple[str, ...], runs_dir: Path
) -> "Report":
    """Read the records and make the report. Raises DataError where there is nothing to show."""
    from prime_bench.base.errors import DataError, UsageError
    from prime_bench.data.variant import resolve
    from prime_bench.recipe.load import load_recipe
    from prime_bench.report.definition import load_definition
    from prime_bench.report.document import make_report
    from prime_bench.report.evidence import RecipeCells, gather, narrowed
    from prime_bench.store.runs import Runs

    definitions = {REPORT_NAME: load_definition(REPORT_NAME)}
    if recipe is None:
        if changes:
            raise UsageError("--set changes a recipe: name one, or leave --set out")
        records = Runs(runs_dir).records()
        if not records:
            hint = "make some: prime-bench run RECIPE"
            raise DataError(f"{runs_dir}: no records here", hint=hint)
        return make_report(gather(narrowed(records, only)), definitions=definitions)
    loaded = load_recipe(recipe, changes=changes)
    words = " ".join([recipe, *(f"--set {change}" for change in changes)])
    cells = RecipeCells(
        name=words,
        title=loaded.title,
        trials=loaded.trials(only=only),
        variants={
            name: resolve(name, keys, where=f"{loaded.name}: dataset.{name}").digest
            for name, keys in loaded.datasets.items()
        },
        notes=loaded.report.notes,
        family=loaded.report.family,
    )
    records = Runs(runs_dir).records()
    made = make_report(gather(records, cells=cells), definitions=definitions)
    if not any(table.jobs for table in made.tables):
        there = f", though {len(records)} of other jobs" if records else ""
        raise DataError(
            f"{runs_dir}: no record of {recipe} here{there}",
            hint=f"make some: prime-bench run {words}",
        )
    return made
