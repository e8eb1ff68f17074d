"""`prime-bench report`: tables and figures from records, or from a bundle of them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from prime_bench.cli import codes, options

if TYPE_CHECKING:
    from prime_bench.cli.evidence import Source
    from prime_bench.report.figures.save import NamedFigure
    from prime_bench.report.formats.render import Format
    from prime_bench.report.quantities.records import Evidence
    from prime_bench.report.tables.model import Report


@click.command()
@click.argument("recipe", required=False)
@options.only
@options.changes
@click.option(
    "--format",
    type=click.Choice(["markdown", "latex", "html", "json", "csv"]),
    default="markdown",
    show_default=True,
    help="All have the same digits; JSON and CSV have full precision beside them.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME",
    help="Show this table instead of the recipe's own; may be repeated.",
)
@click.option(
    "--level",
    type=click.Choice(["simple", "full"]),
    default="simple",
    show_default=True,
    help="full adds statistics over architectures, of each cell, and every pair.",
)
@click.option(
    "--against",
    type=click.Choice(["paper"]),
    help="Hold every printed number, and the abstract's claims, against these records.",
)
@click.option(
    "--check",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Compare with the numbers in this TOML file; exit 1 where one differs.",
)
@click.option("--figures", is_flag=True, help="With --output: write figures too.")
@click.option(
    "--allow-mixed",
    "mixed",
    is_flag=True,
    help="Compare runs that differ in more than the arm; captions say so.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write into this folder, with a CSV of each table and a manifest, instead of printing.",
)
@options.runs_dir
@click.pass_context
def report(
    ctx: click.Context,
    recipe: str | None,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    format: "Format",
    tables: tuple[str, ...],
    level: Literal["simple", "full"],
    against: str | None,
    check: Path | None,
    figures: bool,
    mixed: bool,
    output: Path | None,
    runs_dir: Path,
) -> None:
    """Print the tables of RECIPE's jobs, or the main table of everything that has records.

    RECIPE is a file, the name of a bundled recipe, or a bundle that `pack` made; give the same
    --set as for `run`. Cells without a record are shown as missing. `--against paper` without
    RECIPE takes each of the paper's tables from its own bundled recipe.
    """
    from prime_bench.base.errors import UsageError
    from prime_bench.cli.evidence import Asked, opened
    from prime_bench.report.formats.render import render

    if figures and output is None:
        raise UsageError("--figures writes files: name their folder with --output")
    asked = Asked(
        recipe=recipe, tables=tables, level=level, only=only, changes=changes, mixed=mixed
    )
    with opened(recipe, runs_dir) as source:
        if recipe is None and against:
            made, evidence = asked.paper(source), None
        else:
            made, evidence = asked.report(source)
        drawn = _drawn(evidence) if evidence and (figures or format == "html") else []
        made, agrees = _held_against(made, against=against, check=check)
        if output is None:
            click.echo(render(_with_figures(made, drawn), format), nl=False)
        else:
            _write(_with_figures(made, drawn), output, source, format=format)
            if figures:
                _write_figures(drawn, output)
    if not agrees:
        ctx.exit(codes.FAILED)


def _held_against(
    made: "Report", *, against: str | None, check: Path | None
) -> tuple["Report", bool]:
    """The report with the tables of the comparison first; whether all checked numbers agree."""
    from prime_bench.report.tables.comparison import claims_table, expected_table
    from prime_bench.report.tables.expected import load_bars, load_paper, read_expected

    first, agrees = [], True
    if against:
        paper = load_paper()
        first += [claims_table(made, paper), expected_table(made, paper, name="paper")[0]]
        bars, _ = expected_table(made, load_bars(), name="bars")
        first += [bars] if bars.blocks else []
    if check:
        table, agrees = expected_table(made, read_expected(check), name="check")
        first.append(table)
    return replace(made, tables=(*first, *made.tables)), agrees


def _drawn(evidence: "Evidence") -> list["NamedFigure"]:
    from prime_bench.report.figures.gallery import figures_of

    return figures_of(evidence, baseline="dense")


def _with_figures(made: "Report", drawn: list["NamedFigure"]) -> "Report":
    """The report with figures for a format that shows them."""
    if not drawn:
        return made
    from prime_bench.report.figures.save import inline_svg
    from prime_bench.report.tables.model import Picture

    pictures = [Picture(name=item.name, title=item.title, svg=inline_svg(item)) for item in drawn]
    return replace(made, figures=tuple(pictures))


def _write(made: "Report", folder: Path, source: "Source", *, format: "Format") -> None:
    from prime_bench.report.formats.render import write_report
    from prime_bench.report.manifest import write_manifest

    files = write_report(made, folder, format=format)
    manifest = write_manifest(made, folder, files=files, runs=source.runs)
    for path in dict.fromkeys([*(path for paths in files.values() for path in paths), manifest]):
        click.echo(f"wrote {path}", err=True)


def _write_figures(drawn: list["NamedFigure"], folder: Path) -> None:
    from prime_bench.report.figures.save import write_figures

    for path in write_figures(drawn, folder):
        click.echo(f"wrote {path}", err=True)
