"""manifest.json of a written report: digests of its files and of the records behind each table.

A published table follows from its records if its files are as they were written, and if every
record behind it is, byte for byte, the one that it was made from.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pydantic

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import read_json, sha256_of, write_whole
from prime_bench.base.frozen import Frozen
from prime_bench.report.tables.model import Provenance, Report
from prime_bench.store.runs import Runs

MANIFEST = "manifest.json"


class TableManifest(Frozen):
    """What one table was written as and made from."""

    files: dict[str, str]
    """SHA-256 of each file, by name."""
    records: dict[str, str]
    """SHA-256 of the record.json behind the table, by job id."""
    provenance: Provenance


class ReportManifest(Frozen):
    """What a report's manifest.json says: which files it has, and from which records."""

    manifest_schema: Literal[1] = pydantic.Field(1, alias="schema")
    title: str
    tables: dict[str, TableManifest]


def write_manifest(report: Report, folder: Path, *, files: Mapping[str, Sequence[Path]]) -> Path:
    """Write the manifest of a report into the folder of its files; return its path.

    `files` has the paths that were written for each table. Raises EnvironmentFault where the folder
    cannot be written to.
    """
    manifest = ReportManifest(
        schema=1,
        title=report.title,
        tables={
            table.name: TableManifest(
                files={path.name: sha256_of(path) for path in files[table.name]},
                records={job_id: report.record_digests[job_id] for job_id in table.jobs},
                provenance=table.provenance,
            )
            for table in report.tables
        },
    )
    path = folder / MANIFEST
    write_whole(path, json.dumps(manifest.plain(), indent=2, ensure_ascii=False) + "\n")
    return path


def report_faults(folder: Path, runs: Runs) -> list[str]:
    """Return why tables in `folder` do not follow from the records in `runs`; empty if all do.

    Raises DataError where the folder has no readable manifest.
    """
    path = folder / MANIFEST
    try:
        manifest = ReportManifest.parse(read_json(path), where="")
    except (OSError, TypeError, ValueError, UsageError) as error:
        raise DataError(
            f"{path}: cannot read the manifest: {error}",
            hint="prime-bench report --output makes it",
        ) from error
    faults = []
    for name, table in manifest.tables.items():
        for file, expected in table.files.items():
            if not (folder / file).is_file():
                faults.append(f"{name}: {folder / file} is missing")
            elif sha256_of(folder / file) != expected:
                faults.append(f"{name}: {folder / file} was changed after it was written")
        for job_id, expected in table.records.items():
            if not runs.done(job_id):
                faults.append(f"{name}: the record of {job_id} was deleted")
            elif runs.record_digest(job_id) != expected:
                faults.append(
                    f"{name}: the record of {job_id} was changed after the table was made"
                )
    return faults
