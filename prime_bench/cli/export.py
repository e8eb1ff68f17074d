"""`prime-bench export`: a prepared table as files of another program."""

import json
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

    TABLE is its folder, or the name of a data set with one prepared table. Ids do not
    change. DIR gets feature_map.json, feature_vocab.json and a parquet file for each split; its
    name is the dataset_id of FuxiCTR's configuration. Prints the entry of dataset_config.yaml.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_line, print_text

    written = api.export_fuxictr(
        table, folder, data_dir=data_dir, log=lambda message: print_line(message, err=True)
    )
    # JSON texts are YAML, whatever a path has in it.
    paths = {f"{split}_data": written / f"{split}.parquet" for split in ("train", "valid", "test")}
    keys = {"data_root": written.parent, "data_format": "parquet", **paths}
    lines = [f"    {key}: {json.dumps(str(value))}" for key, value in keys.items()]
    print_text("\n".join([f"{json.dumps(written.name)}:", *lines]))
    print_line(
        f"{written}: dataset_id {written.name}, data_root {written.parent}; the lines above are "
        "its entry in FuxiCTR's dataset_config.yaml",
        err=True,
    )
