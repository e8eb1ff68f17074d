"""`prime-bench ls`: what a recipe can name, and what a report can show."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from prime_bench.cli import options

LS_SCHEMA = 1
Value = str | int | None | list[str]
Row = Mapping[str, Value]


@click.group(invoke_without_command=True)
@options.as_json
@click.pass_context
def ls(ctx: click.Context, as_json: bool) -> None:
    """List backbones, arms, recipes, data sets, tables and figures.

    Without a command the names of all are printed. Backbones and plug-ins of installed packages
    (entry points) are listed too, and recipes (*.toml) in the working folder and in ./recipes. A
    class of your own needs no entry point: a recipe can name it as `module:Class`.
    """
    if ctx.invoked_subcommand is not None:
        return
    from prime_bench.cli.output import print_json

    every = {
        "backbones": _backbones(),
        "arms": _arms(),
        "recipes": _recipes(),
        "datasets": _datasets(Path("data")),
        "tables": _tables(),
        "figures": _figures(),
    }
    if as_json:
        print_json(LS_SCHEMA, every)
        return
    for kind, rows in every.items():
        names = ", ".join(str(row["name"]) for row in rows)
        click.echo(click.wrap_text(f"{kind}: {names}", width=78, subsequent_indent="  "))


@ls.command()
@options.as_json
def backbones(as_json: bool) -> None:
    """List the backbones with their sites and sources.

    Top-NN and sites, the places where a plug-in may sit, are those of the default settings. Of a
    backbone from another package its class is shown.
    """
    rows = _backbones()
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
    rows = _arms()
    shown = [{"arm": row["name"], "label": row["label"], "source": row["cite"]} for row in rows]
    _print("arms", rows, shown, as_json=as_json)


@ls.command()
@options.as_json
def recipes(as_json: bool) -> None:
    """List the bundled recipes, and those in . and ./recipes.

    `show recipe NAME` prints one to copy.
    """
    rows = _recipes()
    shown = [{"recipe": row["name"], "kind": row["kind"], "title": row["title"]} for row in rows]
    _print("recipes", rows, shown, as_json=as_json)


@ls.command()
@options.data_dir
@options.as_json
def datasets(data_dir: Path, as_json: bool) -> None:
    """List the data sets and their prepared tables."""
    rows = _datasets(data_dir)
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
    rows = _tables()
    shown = [{"table": row["name"], "title": row["title"]} for row in rows]
    _print("tables", rows, shown, as_json=as_json)


@ls.command()
@options.as_json
def figures(as_json: bool) -> None:
    """List the figures of `report --figures`.

    A report has those for which there are records; the names of the files begin so.
    """
    rows = _figures()
    shown = [{"figure": row["name"], "what it shows": row["title"]} for row in rows]
    _print("figures", rows, shown, as_json=as_json)


def _print(key: str, rows: Sequence[Row], shown: Sequence[Row], *, as_json: bool) -> None:
    from prime_bench.cli.output import print_json, table_text

    if as_json:
        print_json(LS_SCHEMA, {key: rows})
    elif shown:
        click.echo(table_text([list(row.values()) for row in shown], header=list(shown[0])))


def _backbones() -> list[Row]:
    from prime_bench.catalog import BACKBONES, entry_point_targets

    rows: list[Row] = []
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
    # Their classes are not loaded, which may take seconds or fail.
    for name, target in sorted(entry_point_targets("backbone").items()):
        rows.append({"name": name, "label": None, "top_nn": None, "sites": None, "cite": target})
    return rows


def _arms() -> list[Row]:
    from prime_bench.catalog import PLUGINS, entry_point_targets

    rows: list[Row] = [
        {"name": name, "label": entry.label, "cite": entry.cite} for name, entry in PLUGINS.items()
    ]
    for name, target in sorted(entry_point_targets("plug-in").items()):
        rows.append({"name": name, "label": None, "cite": target})
    return rows


def _recipes() -> list[Row]:
    from prime_bench.recipe.file import recipe_files

    return [
        {"name": name, "kind": kind, "title": title, "path": str(path)}
        for name, kind, title, path in recipe_files()
    ]


def _datasets(data_dir: Path) -> list[Row]:
    from prime_bench.data.card import card_names, load_card
    from prime_bench.data.manifest import prepared_tables

    prepared: dict[str, list[str]] = {}
    for dataset, folder in prepared_tables(data_dir):
        prepared.setdefault(dataset, []).append(str(folder))
    return [
        {
            "name": card.name,
            "title": card.title,
            "kind": card.kind,
            "licence": card.licence,
            "homepage": card.homepage,
            "tables": prepared.get(card.name, []),
        }
        for card in map(load_card, card_names())
    ]


def _tables() -> list[Row]:
    from prime_bench.report.tables.definition import shipped_tables
    from prime_bench.report.tables.kinds import load_definition

    return [{"name": name, "title": load_definition(name).title} for name in shipped_tables()]


def _figures() -> list[Row]:
    from prime_bench.report.figures import FIGURES

    return [{"name": name, "title": title} for name, title in FIGURES.items()]


def _ends(paths: Value) -> str:
    """The first and the last where there are many."""
    if not isinstance(paths, list):
        return "-"
    if len(paths) > 2:
        return f"{paths[0]} ... {paths[-1]}"
    return ", ".join(paths) or "none"
