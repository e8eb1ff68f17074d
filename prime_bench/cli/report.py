"""`prime-bench report`: tables and figures from records, or from a bundle of them."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from prime_bench.base.errors import EXIT_FAILED
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.report.formats.render import Format
    from prime_bench.report.view import ReportView


N_FAULTS = 20
"""How many numbers that do not agree with `--check` are named on stderr."""


@click.command()
@click.argument(
    "given",
    metavar="[RECIPE] [BUNDLE|FOLDER]...",
    nargs=-1,
    shell_complete=complete.recipes_and_sources,
)
@options.only
@options.changes
@click.option(
    "--format",
    type=click.Choice(["text", "markdown", "latex", "html", "json", "csv"]),
    show_default="text, or markdown with --output",
    help="All have the same digits; JSON and CSV have full precision beside them.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME",
    shell_complete=complete.report_tables,
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
    type=click.Choice(["paper", "bars"]),
    help="Compare with the paper's printed numbers and claims, or Dense with BARS's public runs.",
)
@click.option(
    "--check",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Compare with the numbers in this TOML file; exit 1 where one differs or has no cell.",
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="With --check: numbers that have no cell in the report are named and pass.",
)
@click.option("--figures", is_flag=True, help="With --output: write figures too.")
@click.option(
    "--arms",
    metavar="NAME[,NAME...]",
    shell_complete=complete.arms,
    help="Draw figures of these arms; without it, of the recipe's first beside Dense.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Show gauc, ne, pcoc, ece, ece_all, auc or logloss in place of AUC and LogLoss; may be"
    " repeated, and the first counts where one is shown.",
)
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
@options.accept_source
@options.runs_dirs
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.pass_context
def report(
    ctx: click.Context,
    given: tuple[str, ...],
    only: tuple[str, ...],
    changes: tuple[str, ...],
    format: "Format | None",
    tables: tuple[str, ...],
    level: Literal["simple", "full"],
    against: Literal["paper", "bars"] | None,
    check: Path | None,
    allow_missing: bool,
    figures: bool,
    arms: str | None,
    metrics: tuple[str, ...],
    mixed: bool,
    output: Path | None,
    accept_source: bool,
    runs_dirs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Print tables from records, or write them with figures.

    RECIPE is a file or the name of a bundled recipe; give the same --set as for `run`. BUNDLE is a
    .zip that `pack` made, FOLDER a folder of records; without them the records are those of
    --runs-dir. Records of several are put together: a job that several have counts once, as the
    first of them has it, and notes name the jobs whose results differ. Without RECIPE the bundles
    tell it; without a bundle, too, the main table of all records is made. Cells without a record
    are shown as missing. `--against paper` alone takes each of the paper's tables from its own
    bundled recipe.
    """
    from prime_bench import api
    from prime_bench.base.errors import UsageError
    from prime_bench.cli.output import print_document, print_line, print_styled
    from prime_bench.cli.sources import recipe_and_places

    if figures and output is None:
        raise UsageError("--figures writes files: name their folder with --output")
    if allow_missing and check is None:
        raise UsageError("--allow-missing goes with --check FILE")
    if arms is not None and not figures and format != "html":
        raise UsageError("--arms chooses what figures show: give --figures or --format html")
    recipe, places = recipe_and_places(ctx, given, runs_dirs)
    made = api.report(
        recipe,
        only=only,
        changes=changes,
        tables=tables,
        level=level,
        against=against,
        check=check,
        allow_missing=allow_missing,
        mixed=mixed,
        accept_source=accept_source,
        arms=[name.strip() for name in arms.split(",")] if arms else (),
        metrics=metrics,
        runs_dir=places,
    )
    format = "json" if as_json else format
    if output is not None:
        for path in made.write(
            output,
            format=format or "markdown",
            figures=figures,
            log=lambda line: print_line(line, err=True),
        ):
            print_line(f"wrote {path}", err=True)
    elif format is None or format == "text":
        print_styled(_text(made))
    else:
        print_document(made.render(format))
    if made.check is not None:
        # CSV has no notes, and with --output no table is printed.
        faults = made.check.faults
        for fault in faults[:N_FAULTS]:
            print_line(fault, err=True)
        if len(faults) > N_FAULTS:
            print_line(f"... and {len(faults) - N_FAULTS} more: see the table `check`", err=True)
        print_line(made.check, err=True)
    if not made.agrees:
        ctx.exit(EXIT_FAILED)


def _text(made: "ReportView") -> str:
    """Plain text as wide as the terminal, or 80 letters; bold cells are marked in a terminal."""
    from prime_bench.cli.output import has_style
    from prime_bench.report.formats import text

    width = shutil.get_terminal_size().columns
    return text.render(made.report, width=width, bold=has_style())
