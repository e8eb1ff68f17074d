"""`prime-bench show`: one thing that a recipe can name, in full."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prime_bench.cli import options

if TYPE_CHECKING:
    from prime_bench.settings.interface import BackboneSettings

SHOW_SCHEMA = 1


@click.group()
def show() -> None:
    """Show one thing that a recipe can name, in full."""


@show.command()
@click.argument("name")
@click.option(
    "--data",
    metavar="TABLE",
    help="Count parameters for this prepared table: its folder, or the name of a data set for all "
    "of its tables in the data folder.",
)
@options.data_dir
@options.as_json
def backbone(name: str, data: str | None, data_dir: Path, as_json: bool) -> None:
    """Show the settings of the backbone NAME, its sites and its Top-NN.

    Parameters and multiply-accumulates a row are those of the default settings.
    """
    from prime_bench.catalog import find_backbone
    from prime_bench.cli.output import print_json

    entry = find_backbone(name)
    settings = entry.settings()
    content = {
        "name": name,
        "label": entry.label,
        "cite": entry.cite,
        "top_nn": list(settings.top_nn),
        "sites": list(settings.sites),
        "keys": _keys(settings),
        "tables": _tables(settings, data, data_dir=data_dir) if data is not None else [],
    }
    if as_json:
        print_json(SHOW_SCHEMA, content)
    else:
        _print(content)


@show.command()
@click.argument("table", metavar="TABLE")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one page with pictures instead of printing.",
)
@options.data_dir
@options.as_json
def dataset(table: str, html: Path | None, data_dir: Path, as_json: bool) -> None:
    """Show what a prepared table holds: TABLE is its folder or the name of a data set.

    Rows and click rates of its splits, ids of its fields, values without an id, missing values, and
    the memory that each backbone needs under its default settings. Of a data set's name all tables
    in the data folder are shown.
    """
    from prime_bench.base.errors import UsageError
    from prime_bench.base.files import write_whole
    from prime_bench.cli import show_dataset
    from prime_bench.cli.output import print_json
    from prime_bench.data.manifest import find_tables

    if html is not None and as_json:
        raise UsageError("--html and --json: one of them")
    found = find_tables(table, data_dir=data_dir)
    if len(found) > 1:
        click.echo(f"{table}: has {len(found)} prepared tables; a folder names one", err=True)
    tables = [show_dataset.facts(folder) for folder in found]
    if html is not None:
        write_whole(html, show_dataset.page(tables))
        click.echo(html)
    elif as_json:
        print_json(SHOW_SCHEMA, {"tables": tables})
    else:
        click.echo("\n\n\n".join(map(show_dataset.text, tables)))


@show.command()
@click.argument("job", metavar="JOB")
@options.data_dir
@options.runs_dir
@options.as_json
def job(job: str, data_dir: Path, runs_dir: Path, as_json: bool) -> None:
    """Show a job: its settings and where each is from, its history, environment and log.

    JOB is the id of a job, or its first digits, four at least; it need not be done.
    """
    from prime_bench.base.errors import UsageError
    from prime_bench.cli import show_job
    from prime_bench.cli.output import print_json
    from prime_bench.store.runs import LISTING_HINT, Runs

    runs = Runs(runs_dir)
    job_id = runs.find_job(job)
    if job_id is None:
        raise UsageError(
            f"{job}: no job in {runs_dir} has an id that begins so",
            hint=LISTING_HINT,
        )
    facts = show_job.facts(job_id, runs, data_dir=data_dir)
    if as_json:
        print_json(SHOW_SCHEMA, facts)
    else:
        click.echo(show_job.text(facts))


def _keys(settings: "BackboneSettings") -> list[dict[str, Any]]:
    from typing import Literal, get_args, get_origin

    defaults = settings.plain()
    return [
        {
            "name": name,
            "default": defaults[name],
            "choices": list(get_args(field.annotation))
            if get_origin(field.annotation) is Literal
            else None,
            "doc": " ".join((field.description or "").split()),
        }
        for name, field in type(settings).model_fields.items()
    ]


def _tables(settings: "BackboneSettings", data: str, *, data_dir: Path) -> list[dict[str, Any]]:
    from prime_bench.data.manifest import find_tables
    from prime_bench.data.table import PreparedTable

    counts = []
    for folder in find_tables(data, data_dir=data_dir):
        table = PreparedTable.open(folder)
        shape = table.schema.shape
        counts.append(
            {
                "path": str(folder),
                "dataset": table.manifest.dataset,
                "fingerprint": table.manifest.fingerprint,
                "fields": shape.n_fields,
                "input_width": settings.input_width(shape),
                "embedding_rows": shape.embedding_rows,
                "parameters": settings.parameters(shape),
                "macs": settings.macs(shape),
            }
        )
    return counts


def _print(content: dict[str, Any]) -> None:
    from prime_bench.cli.output import table_text

    click.echo(f"{content['name']}: {content['cite']}\n")
    keys = [[key["name"], _value(key["default"]), _described(key)] for key in content["keys"]]
    click.echo(table_text(keys, header=["key", "default", "what"]))
    click.echo(f"\nTop-NN: {', '.join(content['top_nn']) or 'none'}")
    click.echo(f"sites: {', '.join(content['sites'])}")
    if content["tables"]:
        header = ["table", "fields", "d", "parameters", "multiply-accumulates a row"]
        rows = [
            [row["path"], row["fields"], row["input_width"], row["parameters"], row["macs"]]
            for row in content["tables"]
        ]
        cells = [[path, *(f"{number:,}" for number in numbers)] for path, *numbers in rows]
        click.echo("\n" + table_text(cells, header=header))


def _value(value: Any) -> str:
    """As a recipe writes it."""
    import json

    return json.dumps(value)


def _described(key: dict[str, Any]) -> str:
    choices = key["choices"]
    return f"{key['doc']} One of {', '.join(choices)}." if choices else str(key["doc"])
