"""`prime-bench ls`: what a recipe can name."""

from typing import Any

import click

from prime_bench.cli import options

LS_SCHEMA = 1


@click.group()
def ls() -> None:
    """List what a recipe can name."""


@ls.command()
@options.as_json
def backbones(as_json: bool) -> None:
    """List the backbones: their Top-NN, the sites where a plug-in may sit, and where they are from.

    Top-NN and sites are those of the default settings.
    """
    from prime_bench.catalog import BACKBONES
    from prime_bench.cli.output import print_json, table_text

    rows: list[dict[str, Any]] = []
    for name, entry in sorted(BACKBONES.items()):
        settings = entry.settings()
        rows.append(
            {
                "name": name,
                "label": entry.label,
                "top_nn": list(settings.top_nn),
                "sites": list(settings.sites),
                "cite": entry.cite,
            }
        )
    if as_json:
        print_json(LS_SCHEMA, {"backbones": rows})
        return
    cells = [
        [row["name"], _short(row["top_nn"]), ", ".join(row["sites"]), row["cite"]] for row in rows
    ]
    header = ["backbone", "Top-NN", "sites", "citation"]
    click.echo(table_text(cells, header=header))


def _short(paths: list[str]) -> str:
    """The first and the last where there are many."""
    if len(paths) > 2:
        return f"{paths[0]} ... {paths[-1]}"
    return ", ".join(paths) or "none"
