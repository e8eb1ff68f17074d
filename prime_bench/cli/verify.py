"""`prime-bench verify`: check records against the files beside them."""

from pathlib import Path

import click

from prime_bench.base.errors import EXIT_FAILED
from prime_bench.base.words import counted
from prime_bench.cli import complete, options

VERIFY_SCHEMA = 1


@click.command()
@click.argument(
    "what", metavar="[JOB|RECIPE|BUNDLE]", required=False, shell_complete=complete.jobs_and_recipes
)
@options.only
@options.changes
@options.one_device
@click.option(
    "--recompute",
    is_flag=True,
    help="Also predict with the kept weights, and compare what follows from them.",
)
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Also check the report in this folder against its records.",
)
@options.data_dir
@options.runs_dir
@options.as_json
@click.pass_context
def verify(
    ctx: click.Context,
    what: str | None,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    device: str,
    recompute: bool,
    report_folder: Path | None,
    data_dir: Path,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Check records, their files, their data and their pairs.

    JOB is the id of a job, or its first digits, four at least; RECIPE stands for its jobs; BUNDLE
    is a .zip of `pack`; without one all records are checked. Every digest is computed again, and
    whatever follows from other values of a record, from the files beside it or from its table is
    derived again. The exit code is 1 where something does not hold: a record or file that was
    changed, runs without a partner, data that were not verified.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line

    found = api.verify(
        what,
        only=only,
        changes=changes,
        device=device,
        recompute=recompute,
        report_folder=report_folder,
        data_dir=data_dir,
        runs_dir=runs_dir,
        log=lambda message: print_line(message, err=True),
    )
    n_records, findings = len(found.records), found.findings
    if as_json:
        lines = [finding.plain() for finding in findings]
        print_json(
            VERIFY_SCHEMA,
            {
                "records": n_records,
                "without_digests": found.without_digests,
                "findings": lines,
            },
        )
    else:
        for finding in findings:
            print_line(f"{finding.topic}: {finding.where}: {finding.what}")
        print_line(f"{counted(n_records, 'record')}, {counted(len(findings), 'finding')}")
    ctx.exit(EXIT_FAILED if findings else 0)
