"""manifest.json of a written report: which files, from which records, so that it can be verified.

A published table still follows from its records if its files are as they were written and every
record behind it is, byte for byte, the one that it was made from.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pydantic

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import sha256_of, write_whole
from prime_bench.base.frozen import Frozen
from prime_bench.report.tables.model import Report
from prime_bench.store.runs import Runs

MANIFEST = "manifest.json"


class TableManifest(Frozen):
    """One table."""

    files: dict[str, str]
    """Name -> SHA-256."""
    records: dict[str, str]
    """Job id -> SHA-256 of its record's file."""
    provenance: dict[str, Any]


class ReportManifest(Frozen):
    """The whole file."""

    manifest_schema: Literal[1] = pydantic.Field(1, alias="schema")
    title: str
    tables: dict[str, TableManifest]


def write_manifest(
    report: Report, folder: Path, *, files: Mapping[str, Sequence[Path]], runs: Runs
) -> Path:
    """Write it beside the files of each table; the path written. Raises EnvironmentFault."""
    manifest = ReportManifest(
        schema=1,
        title=report.title,
        tables={
            table.name: TableManifest(
                files={path.name: sha256_of(path) for path in files[table.name]},
                records={job_id: runs.record_digest(job_id) for job_id in table.jobs},
                provenance=json.loads(json.dumps(asdict(table.provenance))),
            )
            for table in report.tables
        },
    )
    path = folder / MANIFEST
    write_whole(path, json.dumps(manifest.plain(), indent=2, ensure_ascii=False) + "\n")
    return path


def report_faults(folder: Path, runs: Runs) -> list[str]:
    """Why tables in `folder` no longer follow from the records in `runs`; empty where all do.

    Raises DataError where there is no manifest that can be read.
    """
    path = folder / MANIFEST
    try:
        manifest = ReportManifest.parse(json.loads(path.read_text(encoding="utf-8")), where="")
    except (OSError, ValueError, RecursionError, UsageError) as error:
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
                faults.append(f"{name}: the record of {job_id} is gone")
            elif runs.record_digest(job_id) != expected:
                faults.append(f"{name}: the record of {job_id} is another one now")
    return faults
