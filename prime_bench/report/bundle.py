"""A bundle: a zip from which a recipe's report can be made again without data or torch.

    bundle.json               name and changes of the recipe, digests of data settings and records
    recipe.toml               the recipe as it was
    runs/<job id>/            record.json, config.json, environment.json; no weights, no data

The same records give the same bytes: entries are sorted and have no time.
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
"""Files of a job that a bundle has."""
MAX_ENTRY_BYTES = 64 << 20
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""
_MAX_NAME_LETTERS = 100
"""Letters of an unexpected name that a message repeats."""
_HINT = "prime-bench pack RECIPE -o FILE makes a bundle"
# What zipfile, json and pydantic raise for content that is damaged, encrypted or of another form.
_UNREADABLE = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, UsageError)


class BundleContents(Frozen):
    """bundle.json: which recipe and which records a bundle has, with their digests."""

    bundle_schema: Literal[1] = pydantic.Field(1, alias="schema")
    recipe: str
    """Name of the recipe, used as a label."""
    changes: list[str]
    """Settings changed by `--set`."""
    variants: dict[str, str]
    """Digest of the settings of each data set."""
    package_version: str
    """Version of this package that wrote the bundle."""
    records: dict[str, str]
    """SHA-256 of each job's record.json, by job id."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle, unpacked into a temporary folder while it is read."""

    path: Path
    """The zip."""
    runs: Runs
    recipe: Path
    """The recipe in the unpacked folder."""
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
    """Pack the records of these jobs.

    Args:
        path: The zip to write. It is complete or not there.
        runs: Where the records are.
        job_ids: Jobs to pack; every one must have a record.
        recipe: File of the recipe that asks for these jobs.
        changes: Settings that `--set` changes in it.
        variants: Digest of the settings of each data set.

    Raises EnvironmentFault where the file cannot be written.
    """
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
    """Unpack a bundle into a temporary folder, which is deleted at the end of the block.

    Raises DataError for a file that is not a bundle or whose records were changed.
    """
    with tempfile.TemporaryDirectory(prefix="prime-bench-") as folder:
        contents = _unpack(path, Path(folder))
        runs = Runs(Path(folder) / RUNS)
        if stray := sorted({*runs.job_ids()} - {*contents.records}):
            raise DataError(f"{path}: {CONTENTS} does not list the job {stray[0]}", hint=_HINT)
        for job_id, expected in contents.records.items():
            if not runs.done(job_id) or runs.record_digest(job_id) != expected:
                message = f"{path}: the record of {job_id} is not the one that was packed"
                raise DataError(message, hint=_HINT)
        yield Bundle(path=path, runs=runs, recipe=Path(folder) / RECIPE, contents=contents)


def _zipped(entries: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, date_time=_ZIP_EPOCH)
            entry.create_system = 3  # Unix, wherever it is packed
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, entries[name])
    return buffer.getvalue()


def _unpack(path: Path, folder: Path) -> BundleContents:
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not _is_allowed(entry):
                    raise _not_a_bundle(
                        path, f"unexpected entry {entry.filename[:_MAX_NAME_LETTERS]!r}"
                    )
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
        for name in (CONTENTS, RECIPE):
            if not (folder / name).is_file():
                raise _not_a_bundle(path, f"it has no {name}")
        table = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        if not isinstance(table, dict):
            raise _not_a_bundle(path, f"{CONTENTS} is not a JSON object")
        return BundleContents.parse(table, where=CONTENTS)
    except OSError as error:
        raise _not_a_bundle(path, error.strerror or str(error)) from error
    except _UNREADABLE as error:
        raise _not_a_bundle(path, str(error)) from error


def _not_a_bundle(path: Path, why: str) -> DataError:
    return DataError(f"{path}: not a bundle: {why}", hint=_HINT)


def _is_allowed(entry: zipfile.ZipInfo) -> bool:
    """Whether a bundle may have the entry: known names alone, so that none leaves the folder."""
    parts = PurePosixPath(entry.filename).parts
    known = parts in ((CONTENTS,), (RECIPE,)) or (
        len(parts) == 3 and parts[0] == RUNS and is_job_id(parts[1]) and parts[2] in FILES
    )
    return known and entry.file_size <= MAX_ENTRY_BYTES
