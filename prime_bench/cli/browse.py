"""`prime-bench browse`: one page over the records of many people."""

from pathlib import Path

import click

from prime_bench.base.words import counted
from prime_bench.cli import complete, options

BROWSE_SCHEMA = 1
_PAGE = Path("reports") / "browse.html"


@click.command()
@click.argument(
    "sources",
    metavar="SOURCE...",
    nargs=-1,
    required=True,
    shell_complete=complete.folders_and_bundles,
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    show_default=f"{_PAGE}; with --json none",
    help="The page, one file that needs no other.",
)
@options.as_json
def browse(sources: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Make one page over the records of many people.

    SOURCE is a folder of records, a bundle, a publication (its folder or `hf:ORG/NAME`), or a
    folder with several bundles and publications. The page has a row for each arm on a backbone
    under one choice of settings: its test scores and paired differences from Dense, what it costs,
    in which settings it differs from comparable rows, who has it, and the jobs behind it. It can be
    sorted and narrowed. A source that cannot be read is named and left out.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line, size

    page = output if as_json else output or _PAGE
    found = api.browse(*sources, output=page)
    for fault in found.left_out:
        print_line(f"left out: {fault}", err=True)
    if as_json:
        told = [
            {
                "number": number,
                "name": source.name,
                "title": source.title,
                "by": source.by,
                "page": source.page,
                "records": len(source.records),
            }
            for number, source in enumerate(found.sources, start=1)
        ]
        rows = [row.plain() for row in found.rows]
        print_json(BROWSE_SCHEMA, {"sources": told, "rows": rows, "left_out": list(found.left_out)})
    if page is not None:
        what = f"{counted(len(found.rows), 'row')} of {counted(len(found.sources), 'source')}"
        print_line(f"wrote {page}: {what}, {size(page.stat().st_size)}", err=True)
