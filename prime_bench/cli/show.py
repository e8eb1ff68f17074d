"""`prime-bench show`: one backbone, arm, recipe, prepared table or job in full."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prime_bench.base.characters import visible
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.api import KeyFacts

SHOW_SCHEMA = 1
_WIDTH = 80
"""Columns of the table of keys."""


@click.group()
def show() -> None:
    """Show a backbone, arm, recipe, prepared table or job in full."""


@show.command()
@click.argument("name", shell_complete=complete.backbones)
@click.option(
    "--data",
    metavar="TABLE",
    shell_complete=complete.prepared_tables,
    help="Count parameters for this prepared table: its folder, or the name of a data set for all "
    "of its tables in the data folder.",
)
@options.data_dir
@options.as_json
def backbone(name: str, data: str | None, data_dir: Path, as_json: bool) -> None:
    """Show a backbone's settings, sites and Top-NN.

    NAME is one that `ls backbones` lists, or `module:Class` of your own. With --data, parameters
    and multiply-accumulates a row are those of the default settings.
    """
    from dataclasses import asdict

    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line, print_text, table_text

    facts = api.backbone_facts(name, table=data, data_dir=data_dir)
    if as_json:
        print_json(SHOW_SCHEMA, asdict(facts))
        return
    print_text(f"{visible(name)}: {visible(facts.cite)}\n")
    _print_keys(facts.keys)
    print_line("")
    print_line(f"Top-NN: {', '.join(facts.top_nn) or 'none'}")
    print_line(f"sites: {', '.join(facts.sites)}")
    if facts.tables:
        header = ["table", "fields", "d", "parameters", "multiply-accumulates a row"]
        cells = [
            [
                row.path,
                f"{row.fields:,}",
                f"{row.input_width:,}",
                f"{row.parameters:,}",
                f"{row.macs:,}",
            ]
            for row in facts.tables
        ]
        print_text("\n" + table_text(cells, header=header))


@show.command()
@click.argument("name", shell_complete=complete.arms)
@options.as_json
def arm(name: str, as_json: bool) -> None:
    """Show the settings of an arm, with their defaults.

    NAME is one that `ls arms` lists, or `module:Class` of your own. A recipe sets them in
    `[arm.NAME]`, or in `[arm.ANOTHER]` with `plugin = "NAME"`.
    """
    from dataclasses import asdict

    from prime_bench import api
    from prime_bench.cli.output import print_json, print_text

    facts = api.arm_facts(name)
    if as_json:
        print_json(SHOW_SCHEMA, asdict(facts))
        return
    print_text(f"{visible(name)}: {visible(facts.label)} ({visible(facts.cite)})\n")
    _print_keys(facts.keys)


@show.command()
@click.argument("name", shell_complete=complete.recipes)
@options.as_json
def recipe(name: str, as_json: bool) -> None:
    """Print the text of a recipe, to copy and change.

    NAME is one that `ls recipes` lists, or a file: `prime-bench show recipe quick > mine.toml`. Of
    a bundle it is the recipe that was packed.
    """
    from prime_bench.cli.output import print_document, print_json
    from prime_bench.recipe.file import find_recipe, load_recipe, recipe_content

    if Path(name).suffix == ".zip":
        _packed_recipe(Path(name), as_json=as_json)
        return
    path = find_recipe(name)
    if not as_json:
        print_document(recipe_content(path).decode("utf-8-sig"))
        return
    loaded = load_recipe(path)
    content = {
        "name": loaded.name,
        "title": loaded.title,
        "kind": loaded.kind,
        "path": str(path),
        "datasets": list(loaded.datasets),
        "backbones": list(loaded.backbones),
        "arms": [each.name for each in loaded.arms],
        "seeds": loaded.seeds,
        "text": recipe_content(path).decode("utf-8-sig"),
    }
    print_json(SHOW_SCHEMA, content)


def _packed_recipe(path: Path, *, as_json: bool) -> None:
    from prime_bench.cli.output import print_document, print_json
    from prime_bench.report.bundle import read_bundle

    bundle = read_bundle(path)
    text, jobs = bundle.recipe.decode("utf-8-sig", "replace"), bundle.jobs
    if not as_json:
        print_document(text)
        return
    content = {
        "name": jobs.name,
        "title": jobs.title,
        "kind": jobs.kind,
        "path": str(path),
        "datasets": list(jobs.variants),
        "backbones": list(dict.fromkeys(asked.job.backbone for asked in jobs.jobs)),
        "arms": list(dict.fromkeys(arm for asked in jobs.jobs for arm in asked.arms)),
        "seeds": list(dict.fromkeys(asked.job.seed for asked in jobs.jobs)),
        "text": text,
    }
    print_json(SHOW_SCHEMA, content)


@show.command()
@click.argument("table", metavar="TABLE", shell_complete=complete.prepared_tables)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one page with pictures instead of printing.",
)
@options.data_dir
@options.as_json
def dataset(table: str, html: Path | None, data_dir: Path, as_json: bool) -> None:
    """Show what a prepared table holds.

    TABLE is its folder, or the name of a data set for all of its tables in the data folder. Shows
    rows and click rates of its splits, ids of its fields, values without an id, missing values, and
    the memory that each backbone needs under its default settings.
    """
    from prime_bench import api
    from prime_bench.base.errors import UsageError
    from prime_bench.base.files import write_whole
    from prime_bench.cli import show_dataset
    from prime_bench.cli.output import print_json, print_line, print_text

    if html is not None and as_json:
        raise UsageError("--html and --json: one of them")
    found = api.table_facts(table, data_dir=data_dir)
    if len(found) > 1:
        print_line(f"{table}: has {len(found)} prepared tables; a folder names one", err=True)
    tables = [facts.plain() for facts in found]
    if html is not None:
        write_whole(html, show_dataset.page(tables))
        print_line(html)
    elif as_json:
        print_json(SHOW_SCHEMA, {"tables": tables})
    else:
        print_text("\n\n\n".join(map(show_dataset.text, tables)))


@show.command()
@click.argument("job", metavar="JOB", shell_complete=complete.jobs)
@options.data_dir
@click.option(
    "--runs-dir",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    envvar="PRIME_BENCH_RUNS",
    show_default=True,
    show_envvar=True,
    help="Folder of the records, or a bundle.",
)
@options.as_json
def job(job: str, data_dir: Path, runs_dir: Path, as_json: bool) -> None:
    """Show a job's settings, history, environment and log.

    Of each setting it says whether the recipe, `--set` or a default has it. JOB is the id of a job,
    or its first digits, four at least. The job may have finished, failed, or run at this moment.
    """
    from prime_bench import api
    from prime_bench.cli import show_job
    from prime_bench.cli.output import print_json, print_text

    details = api.job(job, data_dir=data_dir, runs_dir=runs_dir)
    if as_json:
        print_json(SHOW_SCHEMA, details.plain())
    else:
        print_text(show_job.text(details))


def _print_keys(keys: "Sequence[KeyFacts]") -> None:
    from prime_bench.cli.output import print_line, print_text, table_text

    if not keys:
        print_line("no settings")
        return
    rows = [[key.name, json.dumps(key.default), _described(key)] for key in keys]
    print_text(table_text(rows, header=("key", "default", "meaning"), n_words=3, width=_WIDTH))


def _described(key: "KeyFacts") -> str:
    return f"{key.doc} One of {', '.join(map(str, key.choices))}." if key.choices else key.doc
