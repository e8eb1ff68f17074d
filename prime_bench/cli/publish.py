"""`prime-bench publish`: records and their report in a folder or on a hub, for others."""

from pathlib import Path

import click

from prime_bench.base.words import counted
from prime_bench.cli import complete, options


@click.command()
@click.argument("what", metavar="RECIPE|BUNDLE", shell_complete=complete.recipes_and_sources)
@options.changes
@click.option(
    "--to",
    "place",
    metavar="DIR|hf:ORG/NAME",
    required=True,
    help="A folder, or a data set repository of the Hugging Face hub; it is made where it is not.",
)
@click.option("--by", default="", metavar="NAMES", help="Who publishes, as you call yourselves.")
@click.option("--anonymous", is_flag=True, help="Leave out the names of machines and folders.")
@click.option("--private", is_flag=True, help="A new repository is private.")
@click.option("--replace", is_flag=True, help="Put it in the place of another publication.")
@click.option(
    "--message", default="", help="Message of the commit on the hub.  [the report's title]"
)
@options.runs_dir
def publish(
    what: str,
    changes: tuple[str, ...],
    place: str,
    by: str,
    anonymous: bool,
    private: bool,
    replace: bool,
    message: str,
    runs_dir: Path,
) -> None:
    """Put records, their page and a manifest where others find them.

    RECIPE stands for the records of its jobs, as for `pack`; BUNDLE is a .zip of `pack`. The same
    again changes nothing; another publication at the same place is refused without --replace.
    Readers find what was there before or all of what is new. There are no rows of data in it and no
    paths of your home; machines have the names that records have, unless --anonymous. For the hub
    log in with `hf auth login`, or set HF_TOKEN. `prime-bench report` reads the bundle.
    """
    from prime_bench.cli.output import print_line, size
    from prime_bench.report.publish import publish as publish_records
    from prime_bench.report.publish import target_of
    from prime_bench.store.runs import Runs

    done = publish_records(
        what,
        target_of(place, private=private),
        changes=changes,
        by=by,
        anonymous=anonymous,
        replace=replace,
        message=message,
        runs=Runs(runs_dir),
    )
    for fault in done.left_out:
        print_line(f"left out: {fault}", err=True)
    n_bytes = sum(file.bytes for file in done.manifest.files.values())
    at = f", commit {done.commit[:12]}" if done.commit else ""
    records = counted(len(done.manifest.records), "record")
    print_line(f"{done.change} {done.place}: {records}, {size(n_bytes)}{at}", err=True)
    if done.manifest.sealed_again:
        again = counted(len(done.manifest.sealed_again), "record")
        print_line(f"names of folders or machines left out: {again} with new digests", err=True)
