"""Options that several commands share."""

from pathlib import Path

import click

data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    envvar="PRIME_BENCH_DATA",
    show_default=True,
    show_envvar=True,
    help="Folder of the prepared tables.",
)
runs_dir = click.option(
    "--runs-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    envvar="PRIME_BENCH_RUNS",
    show_default=True,
    show_envvar=True,
    help="Folder of the records.",
)
only = click.option(
    "--only",
    multiple=True,
    metavar="KEY=VALUE",
    help="Narrow to a dataset, backbone, arm or seed; may be repeated.",
)
changes = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the recipe, such as training.max_epochs=1; it makes other jobs.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
