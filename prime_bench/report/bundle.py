"""A bundle: all that a referee needs to make a recipe's tables again, in one zip.

    bundle.json               recipe's name and changes, digests of data settings and of records
    recipe.toml               the recipe as it was
    runs/<job id>/            record.json, config.json, environment.json; no weights, no data

The same records give the same bytes: entries are sorted and carry no time.
"""

import contextlib
import io
import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import pydantic

from prime_bench import __version__
from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import write_whole
from prime_bench.base.frozen import Frozen
from prime_bench.store.runs import CONFIG, ENVIRONMENT, RECORD, Runs, is_job_id

CONTENTS, RECIPE, RUNS = "bundle.json", "recipe.toml", "runs"
FILES = (RECORD, CONFIG, ENVIRONMENT)
"""What is taken of a job's folder."""
LARGEST_ENTRY_BYTES = 64 << 20
_OLDEST = (1980, 1, 1, 0, 0, 0)
_QUOTED = 100
"""Characters of a strange name that a message repeats."""
_ADVICE = "prime-bench pack RECIPE -o FILE makes a bundle"
# What zipfile and json raise for content that is damaged, encrypted or packed in another way.
_FAULTS = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, UsageError)


class BundleContents(Frozen):
    """bundle.json."""

    bundle_schema: Literal[1] = pydantic.Field(1, alias="schema")
    recipe: str
    """Name of the recipe when it was packed, a label."""
    changes: list[str]
    """Its `--set`."""
    variants: dict[str, str]
    """Data set -> digest of its settings."""
    package_version: str
    records: dict[str, str]
    """Job id -> SHA-256 of its record's file."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """An opened bundle."""

    path: Path
    runs: Runs
    recipe: Path
    contents: BundleContents


def write_bundle(
    path: Path,
    *,
    runs: Runs,
    job_ids: Iterable[str],
    recipe: Path,
    changes: Sequence[str],
    variants: Mapping[str, str],
) -> BundleContents:
    """Write the bundle of these jobs, whole. Raises EnvironmentFault."""
    ids = sorted(set(job_ids))
    contents = BundleContents(
        schema=1,
        recipe=recipe.stem,
        changes=list(changes),
        variants=dict(sorted(variants.items())),
        package_version=__version__,
        records={job_id: runs.record_digest(job_id) for job_id in ids},
    )
    entries = {
        CONTENTS: (json.dumps(contents.plain(), indent=2) + "\n").encode(),
        RECIPE: recipe.read_bytes(),
    }
    for job_id in ids:
        for name in FILES:
            file = runs.path(job_id) / name
            if file.is_file():
                entries[f"{RUNS}/{job_id}/{name}"] = file.read_bytes()
    write_whole(path, _zipped(entries))
    return contents


@contextlib.contextmanager
def open_bundle(path: Path) -> Iterator[Bundle]:
    """Unpack into a folder that goes with the block. Raises DataError for what is no bundle."""
    with tempfile.TemporaryDirectory(prefix="prime-bench-") as folder:
        contents = _unpack(path, Path(folder))
        runs = Runs(Path(folder) / RUNS)
        if stray := sorted({*runs.job_ids()} - {*contents.records}):
            raise DataError(f"{path}: {CONTENTS} does not list the job {stray[0]}", hint=_ADVICE)
        for job_id, expected in contents.records.items():
            if not runs.done(job_id) or runs.record_digest(job_id) != expected:
                said = f"{path}: the record of {job_id} is not the one that was packed"
                raise DataError(said, hint=_ADVICE)
        yield Bundle(path=path, runs=runs, recipe=Path(folder) / RECIPE, contents=contents)


def _zipped(entries: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, date_time=_OLDEST)
            entry.create_system = 3  # Unix, wherever it is packed
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, entries[name])
    return buffer.getvalue()


def _unpack(path: Path, folder: Path) -> BundleContents:
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not _expected(entry):
                    raise _refused(path, f"it holds {entry.filename[:_QUOTED]!r}")
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
        for name in (CONTENTS, RECIPE):
            if not (folder / name).is_file():
                raise _refused(path, f"it has no {name}")
        table = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        if not isinstance(table, dict):
            raise _refused(path, f"{CONTENTS} holds no table")
        return BundleContents.parse(table, where=CONTENTS)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    except _FAULTS as error:
        raise _refused(path, str(error)) from error


def _refused(path: Path, why: str) -> DataError:
    return DataError(f"{path}: not a bundle: {why}", hint=_ADVICE)


def _expected(entry: zipfile.ZipInfo) -> bool:
    """Whether a bundle may have such an entry: known names alone, so none leads elsewhere."""
    parts = PurePosixPath(entry.filename).parts
    known = parts in ((CONTENTS,), (RECIPE,)) or (
        len(parts) == 3 and parts[0] == RUNS and is_job_id(parts[1]) and parts[2] in FILES
    )
    return known and entry.file_size <= LARGEST_ENTRY_BYTES
