"""`prime-bench ls`: what a recipe can name, and what a report can show."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from prime_bench.cli import options

LS_SCHEMA = 1
Value = str | int | None | list[str]
Listing = Mapping[str, Value]


@click.group(invoke_without_command=True)
@options.as_json
@click.pass_context
def ls(ctx: click.Context, as_json: bool) -> None:
    """List backbones, arms, recipes, studies, data sets, tables, figures.

    Without a command the names of all are printed. Backbones and plug-ins of installed packages
    (entry points) are listed too, and recipes and studies (*.toml) in the working folder, in
    ./recipes and in ./recipes/studies. A class of your own needs no entry point: a recipe can name
    it as `module:Class`.
    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"put --json behind: ls {ctx.invoked_subcommand} --json")
        return
    from typing import get_args

    from prime_bench import api
    from prime_bench.api.catalogue import ListedKind
    from prime_bench.base.characters import visible, wrapped
    from prime_bench.cli.output import print_json, print_line

    every = {kind: api.listing(kind) for kind in get_args(ListedKind)}
    if as_json:
        print_json(LS_SCHEMA, every)
        return
    for kind, rows in every.items():
        names = ", ".join(visible(str(row["name"])) for row in rows)
        for line in wrapped(f"{kind}: {names}", 78, rest="  "):
            print_line(line)


@ls.command()
@options.as_json
def backbones(as_json: bool) -> None:
    """List the backbones with their sites and sources.

    Top-NN and sites, the places where a plug-in may sit, are those of the default settings. Of a
    backbone from another package its class is shown.
    """
    from prime_bench import api

    rows = api.listing("backbones")
    shown = [
        {
            "backbone": row["name"],
            "Top-NN": _ends(row["top_nn"]),
            "sites": ", ".join(row["sites"]) if isinstance(row["sites"], list) else "-",
            "citation": row["cite"],
        }
        for row in rows
    ]
    _print("backbones", rows, shown, as_json=as_json)


@ls.command()
@options.as_json
def arms(as_json: bool) -> None:
    """List the arms: Dense, the plug-ins and the controls.

    Each of these names can stand in a recipe's `arms`; an arm of your own, `[arm.NAME]`, refines
    one of them. `show arm NAME` prints its settings.
    """
    from prime_bench import api

    rows = api.listing("arms")
    shown = [{"arm": row["name"], "label": row["label"], "source": row["cite"]} for row in rows]
    _print("arms", rows, shown, as_json=as_json)


@ls.command()
@options.as_json
def recipes(as_json: bool) -> None:
    """List the bundled recipes, and those in ./recipes and here.

    `show recipe NAME` prints one to copy.
    """
    from prime_bench import api

    rows = api.listing("recipes")
    shown = [{"recipe": row["name"], "kind": row["kind"], "title": row["title"]} for row in rows]
    _print("recipes", rows, shown, as_json=as_json)


@ls.command()
@options.as_json
def studies(as_json: bool) -> None:
    """List the bundled studies, and those in ./recipes/studies and here.

    `study NAME --plan` prints what one would do.
    """
    from prime_bench import api

    rows = api.listing("studies")
    shown = [
        {"study": row["name"], "recipes": row["recipes"], "title": row["title"]} for row in rows
    ]
    _print("studies", rows, shown, as_json=as_json)


@ls.command()
@options.data_dir
@options.as_json
def datasets(data_dir: Path, as_json: bool) -> None:
    """List the data sets and their prepared tables."""
    from prime_bench import api

    rows = api.listing("datasets", data_dir=data_dir)
    shown = [
        {
            "data set": row["name"],
            "prepared tables": ", ".join(map(str, row["tables"]))
            if isinstance(row["tables"], list) and row["tables"]
            else "none",
            "title": row["title"],
        }
        for row in rows
    ]
    _print("datasets", rows, shown, as_json=as_json)


@ls.command()
@options.as_json
def tables(as_json: bool) -> None:
    """List the tables that `report --table` can make."""
    from prime_bench import api

    rows = api.listing("tables")
    shown = [{"table": row["name"], "title": row["title"]} for row in rows]
    _print("tables", rows, shown, as_json=as_json)


@ls.command()
@options.as_json
def figures(as_json: bool) -> None:
    """List the figures of `report --figures`.

    A report has the figures for which there are records. The name of a file begins with that of its
    figure.
    """
    from prime_bench import api

    rows = api.listing("figures")
    shown = [{"figure": row["name"], "what it shows": row["title"]} for row in rows]
    _print("figures", rows, shown, as_json=as_json)


def _print(key: str, rows: Sequence[Listing], shown: Sequence[Listing], *, as_json: bool) -> None:
    from prime_bench.cli.output import print_json, print_text, table_text

    if as_json:
        print_json(LS_SCHEMA, {key: rows})
    elif shown:
        print_text(table_text([list(row.values()) for row in shown], header=list(shown[0])))


def _ends(paths: Value) -> str:
    """The first and the last where there are many."""
    if not isinstance(paths, list):
        return "-"
    if len(paths) > 2:
        return f"{paths[0]} ... {paths[-1]}"
    return ", ".join(paths) or "none"
