"""`prime-bench export`: what others read."""

from pathlib import Path

import click

from prime_bench.cli import complete, options


@click.group()
def export() -> None:
    """Write a prepared table for another program."""


@export.command()
@click.argument("table", metavar="TABLE", shell_complete=complete.prepared_tables)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A new or empty folder.",
)
@options.data_dir
def fuxictr(table: str, folder: Path, data_dir: Path) -> None:
    """Write a prepared table as FuxiCTR 2.3.10 reads it.

    TABLE is its folder, or the name of a data set with one prepared table. The ids stay what they
    are. DIR gets feature_map.json, feature_vocab.json and a parquet file a split; its name is the
    dataset_id of FuxiCTR's configuration.
    """
    from prime_bench.base.errors import UsageError
    from prime_bench.data.fuxictr_files import export_table
    from prime_bench.data.manifest import find_tables
    from prime_bench.data.table import PreparedTable

    found = find_tables(table, data_dir=data_dir)
    if len(found) > 1:
        raise UsageError(
            f"{table}: has {len(found)} prepared tables; name one by its folder",
            hint=", ".join(str(path) for path in found),
        )
    # Not `..` but a name is the dataset_id.
    folder = folder.resolve()
    export_table(
        PreparedTable.open(found[0]), folder, log=lambda message: click.echo(message, err=True)
    )
    click.echo(f"{folder}: dataset_id {folder.name}, data_root {folder.parent}")
