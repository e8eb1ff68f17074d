"""manifest.json of a written report: digests of its files and of the records behind each table.

A published table follows from its records if its files are as they were written, and if every
record behind it is, byte for byte, the one that it was made from.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    figures: dict[str, str] = {}
    """SHA-256 of each file of a figure, by name."""

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 of each file of tables and figures, by name."""
        found = dict(self.figures)
        for table in self.tables.values():
            found |= table.files
        return found


def write_manifest(
    report: Report,
    folder: Path,
    *,
    files: Mapping[str, Sequence[Path]],
    figures: Sequence[Path],
) -> Path:
    """Write the manifest of a report into the folder of its files; return its path.

    `files` has the paths that were written for each table, `figures` those of figures. Raises
    EnvironmentFault where the folder cannot be written to.
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
        figures={path.name: sha256_of(path) for path in figures},
    )
    path = folder / MANIFEST
    write_whole(path, json.dumps(manifest.plain(), indent=2, ensure_ascii=False) + "\n")
    return path


def earlier_files(folder: Path, *, written: Collection[Path]) -> list[Path]:
    """Return the files that the manifest in `folder` lists and that are not among `written`: those
    of an earlier report, which would pass for files of this one. What was changed since is not
    among them. To be called before the new manifest is written.
    """
    try:
        before = ReportManifest.parse(read_json(folder / MANIFEST), where="").files
    except (OSError, TypeError, ValueError, UsageError):
        return []
    left = [folder / name for name in before if Path(name).name == name]
    return [
        path
        for path in sorted(set(left) - set(written))
        if path.is_file() and sha256_of(path) == before[path.name]
    ]


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
    faults = [*_faults_of_files("figures", manifest.figures, folder)]
    for name, table in manifest.tables.items():
        faults += _faults_of_files(name, table.files, folder)
        for job_id, expected in table.records.items():
            if not runs.done(job_id):
                faults.append(f"{name}: the record of {job_id} was deleted")
            elif runs.record_digest(job_id) != expected:
                faults.append(
                    f"{name}: the record of {job_id} was changed after the table was made"
                )
    return faults


def _faults_of_files(what: str, files: Mapping[str, str], folder: Path) -> Iterator[str]:
    for file, expected in files.items():
        if not (folder / file).is_file():
            yield f"{what}: {folder / file} is missing"
        elif sha256_of(folder / file) != expected:
            yield f"{what}: {folder / file} was changed after it was written"
