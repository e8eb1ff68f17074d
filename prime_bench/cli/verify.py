"""`prime-bench verify`: do records still say what is beside them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prime_bench.cli import codes, options

if TYPE_CHECKING:
    from prime_bench.store.record import ProbeRecord, RunRecord
    from prime_bench.store.runs import Runs
    from prime_bench.store.verification import Discrepancy

VERIFY_SCHEMA = 1


@click.command()
@click.argument("what", metavar="[JOB|RECIPE]", required=False)
@options.only
@options.changes
@options.one_device
@click.option(
    "--recompute",
    "again",
    is_flag=True,
    help="Also predict with the kept weights, and compare the metrics.",
)
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Also hold the report in this folder against its records.",
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
    again: bool,
    report_folder: Path | None,
    data_dir: Path,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Check records, their files and data, and which runs cannot be compared.

    JOB is the id of a job, or its first digits, four at least; RECIPE stands for its jobs; without
    either all records are checked. Every digest is computed again. The exit code is 1 where
    something does not hold: a record or file that was changed, runs without a partner, data that
    were not verified.
    """
    from prime_bench.cli.output import counted, print_json
    from prime_bench.report.manifest import report_faults
    from prime_bench.store.runs import Runs
    from prime_bench.store.verification import Discrepancy

    runs = Runs(runs_dir)
    records, findings = _records(what, only=only, changes=changes, data_dir=data_dir, runs=runs)
    findings += _findings(records, runs, data_dir=data_dir, one_job=_is_job(what, runs))
    if again:
        findings += _recomputed(records, runs, data_dir=data_dir, device=device)
    if report_folder is not None:
        where = str(report_folder)
        faults = report_faults(report_folder, runs)
        findings += [Discrepancy(topic="report", where=where, what=fault) for fault in faults]
    if as_json:
        lines = [finding.plain() for finding in findings]
        print_json(VERIFY_SCHEMA, {"records": len(records), "findings": lines})
    else:
        for finding in findings:
            click.echo(f"{finding.topic}: {finding.where}: {finding.what}")
        click.echo(f"{counted(len(records), 'record')}, {counted(len(findings), 'finding')}")
    ctx.exit(codes.FAILED if findings else 0)


def _is_job(what: str | None, runs: "Runs") -> bool:
    from prime_bench.cli.jobs import find_job

    return what is not None and find_job(what, runs) is not None


def _records(
    what: str | None,
    *,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    data_dir: Path,
    runs: "Runs",
) -> "tuple[list[RunRecord | ProbeRecord], list[Discrepancy]]":
    """The records that are meant, and what is wrong with those that cannot be read.

    Raises DataError where there is none of either.
    """
    from prime_bench.base.errors import DataError, UsageError
    from prime_bench.cli.evidence import no_record_hint
    from prime_bench.cli.jobs import ids_meant
    from prime_bench.store.verification import Discrepancy

    if what is None and (only or changes):
        raise UsageError("--only and --set go with a recipe: name one")
    records, faults = runs.readable()
    findings = [Discrepancy(topic="record", where=str(runs.folder), what=fault) for fault in faults]
    others = len(records)
    if what is not None:
        wanted = set(ids_meant(what, runs, only=only, changes=changes, data_dir=data_dir))
        records = [record for record in records if record.job_id in wanted]
    if not records and not findings:
        if what is None:
            raise DataError(
                f"{runs.folder}: no record here", hint="make some: prime-bench run quick"
            )
        if _is_job(what, runs):
            hint = f"it has not finished: prime-bench show job {what}"
        else:
            hint = no_record_hint(what, changes=changes, others=others)
        there = f", though {others} of other jobs" if others else ""
        raise DataError(f"{runs.folder}: no record of {what} here{there}", hint=hint)
    return records, findings


def _findings(
    records: "list[RunRecord | ProbeRecord]", runs: "Runs", *, data_dir: Path, one_job: bool
) -> "Iterator[Discrepancy]":
    from prime_bench.store.record import RunRecord
    from prime_bench.store.verification import check_data, check_files, check_pairs

    trained = [record for record in records if isinstance(record, RunRecord)]
    for record in trained:
        yield from check_files(record, runs)
    yield from check_data(records)
    yield from _tables({record.job.fingerprint for record in records}, data_dir=data_dir)
    if not one_job:
        yield from check_pairs(trained)


def _tables(fingerprints: set[str], *, data_dir: Path) -> "Iterator[Discrepancy]":
    """Read the prepared tables that are here; a record may outlive its data."""
    from prime_bench.base.errors import DataError
    from prime_bench.cli.tables import table_of
    from prime_bench.data.table import PreparedTable
    from prime_bench.store.verification import Discrepancy

    for fingerprint in sorted(fingerprints):
        try:
            folder = table_of(fingerprint, data_dir=data_dir)
        except DataError:
            click.echo(f"not checked: no table {fingerprint[:8]} in {data_dir}", err=True)
            continue
        try:
            PreparedTable.open(folder).check_contents()
        except DataError as error:
            yield Discrepancy(topic="data", where=str(folder), what=error.message)


def _recomputed(
    records: "list[RunRecord | ProbeRecord]", runs: "Runs", *, data_dir: Path, device: str
) -> "Iterator[Discrepancy]":
    """Predict with the weights of every training run."""
    from prime_bench.base.errors import DataError, UsageError
    from prime_bench.cli.tables import table_of
    from prime_bench.data.table import PreparedTable
    from prime_bench.store.record import RunRecord
    from prime_bench.store.verification import Discrepancy
    from prime_bench.training.device import resolve_device
    from prime_bench.training.recompute import recompute

    chosen = resolve_device(device)
    for record in records:
        if not isinstance(record, RunRecord):
            continue
        folder = runs.path(record.job_id)
        try:
            table = PreparedTable.open(table_of(record.job.fingerprint, data_dir=data_dir))
            found = recompute(record, folder, table, device=chosen)
        except (DataError, UsageError) as error:
            yield Discrepancy(topic="metrics", where=str(folder), what=error.message)
            continue
        for difference in found.differences:
            yield Discrepancy(topic="metrics", where=str(folder), what=difference)
