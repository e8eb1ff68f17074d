"""A bundle: a zip from which a recipe's report can be made again without data or torch.

    bundle.json               jobs of the recipe as plain values, digests of the records
    recipe.toml               the recipe as it was
    runs/<job id>/            record.json, config.json, environment.json; no weights, no data

The same records give the same bytes: entries are sorted and have no time. A bundle is read in
memory, `bundle.json` first and then the records that it lists. What names a class in it is text:
nothing is imported, and neither cards nor plug-ins are needed. A zip that was unpacked and packed
again by hand is read as well, with its folder around the files or without.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import pydantic

from prime_bench import __version__
from prime_bench.base.archives import UNREADABLE, read_member, shown, zip_members
from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import (
    NotReadable,
    environment_fault,
    open_file,
)
from prime_bench.base.frozen import Frozen
from prime_bench.base.temporary import temporary_folder
from prime_bench.recipe.file import parse_recipe
from prime_bench.report.quantities.records import RecipeJobs, as_asked, jobs_of
from prime_bench.store.record import Record
from prime_bench.store.runs import CONFIG, ENVIRONMENT, RECORD, Runs, is_job_id, parse_record
from prime_bench.store.verification import PackedFiles

CONTENTS, RECIPE, RUNS = "bundle.json", "recipe.toml", "runs"
FILES = (RECORD, CONFIG, ENVIRONMENT)
"""Files of a job that a bundle has."""
MOST_MEMBERS = 60_000
"""Members of a bundle: 20,000 jobs."""
MOST_BYTES = 256 << 20
"""Bytes of all members, unpacked; also of the zip. The paper's 260 jobs have about 5 MB."""
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""
_HINT = "prime-bench pack RECIPE -o FILE makes a bundle"


class OldBundleContents(Frozen):
    """bundle.json of version 0.1.0, whose jobs are found by reading `recipe.toml`."""

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


class BundleContents(Frozen):
    """bundle.json: the jobs of a recipe, and which records a bundle has, with their digests."""

    bundle_schema: Literal[2] = pydantic.Field(2, alias="schema")
    recipe: RecipeJobs
    """The jobs of the recipe, and what its report says of them."""
    package_version: str
    """Version of this package that wrote the bundle."""
    records: dict[str, str]
    """SHA-256 of each job's record.json, by job id."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The content of a bundle."""

    path: Path
    """The zip."""
    jobs: RecipeJobs
    """The jobs of the recipe that was packed."""
    records: list[Record]
    unreadable: list[str]
    """A message for each record that is no record."""
    digests: Mapping[str, str]
    """SHA-256 of each job's record.json, by job id."""
    files: Mapping[str, Mapping[str, bytes]]
    """The files beside each record by name, by job id."""
    contents: Mapping[str, bytes]
    """Content of each job's record.json, by job id."""
    recipe: bytes
    """Content of recipe.toml."""

    def files_of(self, job_id: str) -> PackedFiles:
        """The files of a job."""
        return PackedFiles(self.path / RUNS / job_id, self.files[job_id])


def bundle_of(
    files: Mapping[str, Mapping[str, bytes]], *, recipe: bytes, jobs: RecipeJobs, where: Path
) -> tuple[BundleContents, bytes]:
    """Return what bundle.json says, and the bundle's content.

    Args:
        files: The files of each job by name, by job id.
        recipe: Content of recipe.toml.
        jobs: All jobs of the recipe.
        where: What a message names.

    Raises DataError if there are more records than a bundle may have.
    """
    members = {
        f"{RUNS}/{job_id}/{name}": content
        for job_id, own in files.items()
        for name, content in own.items()
    }
    digests = {job_id: hashlib.sha256(own[RECORD]).hexdigest() for job_id, own in files.items()}
    contents = BundleContents(schema=2, recipe=jobs, package_version=__version__, records=digests)
    members[RECIPE] = recipe
    members[CONTENTS] = (json.dumps(contents.plain(), indent=1) + "\n").encode()
    if fault := _excess(len(members), sum(map(len, members.values()))):
        raise DataError(f"{where}: {fault}", hint="pack a recipe with fewer jobs")
    return contents, _zipped(members)


def read_bundle(path: Path, content: bytes | None = None) -> Bundle:
    """Read a bundle, in memory.

    Args:
        path: The zip, or what messages call it.
        content: Its content, where it is in no file.

    Raises DataError for a file that is not a bundle, or whose records were changed.
    """
    try:
        with open_file(path) if content is None else io.BytesIO(content) as file:
            n_bytes = os.fstat(file.fileno()).st_size if content is None else len(content)
            if fault := _excess(0, n_bytes):
                raise _not_a_bundle(path, fault)
            with zipfile.ZipFile(file) as archive:
                return _read(_Members(archive, path=path))
    except FileNotFoundError as error:
        raise _not_a_bundle(path, "no such file") from error
    except NotReadable as error:
        raise _not_a_bundle(path, str(error.strerror)) from error
    except OSError as error:
        # zipfile seeks to whatever place a damaged archive names.
        if error.errno != errno.EINVAL and (trouble := environment_fault(error, path)):
            raise trouble from error
        raise _not_a_bundle(path, error.strerror or str(error)) from error
    except (*UNREADABLE, UsageError) as error:
        raise _not_a_bundle(path, str(error)) from error


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Runs]:
    """A folder of runs with the files of a bundle, for the time of the context.

    Raises DataError as `read_bundle`.
    """
    bundle = read_bundle(path)
    with temporary_folder() as folder:
        for job_id, files in bundle.files.items():
            own = folder / job_id
            own.mkdir()
            for name, content in {RECORD: bundle.contents[job_id], **files}.items():
                (own / name).write_bytes(content)
        yield Runs(folder, shown=path)


class _Members:
    """The members of a bundle by the names that `bundle_of` gives them, all of them known."""

    def __init__(self, archive: zipfile.ZipFile, *, path: Path) -> None:
        self.path = path
        self._archive = archive
        found = zip_members(archive, where=path)
        if fault := _excess(len(found), sum(entry.file_size for entry in found.values())):
            raise _not_a_bundle(path, fault)
        folder = _folder_of(found, path=path)
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for name, entry in found.items():
            parts = PurePosixPath(name).parts
            if parts[: len(folder)] != folder or not _is_known(parts[len(folder) :]):
                raise _not_a_bundle(path, f"unexpected entry {shown(name)}")
            self._entries["/".join(parts[len(folder) :])] = entry
        self._left_bytes = MOST_BYTES

    def read(self, name: str) -> bytes:
        """The content of a member. Raises DataError where there is no such member."""
        if name not in self._entries:
            raise _not_a_bundle(self.path, f"it has no {name}")
        content = read_member(self._archive, self._entries[name], most_bytes=self._left_bytes)
        self._left_bytes -= len(content)
        return content

    @property
    def job_ids(self) -> set[str]:
        """Ids of the jobs that have a file in the bundle."""
        parts = (name.split("/") for name in self._entries)
        return {part[1] for part in parts if len(part) == 3}

    def __contains__(self, name: str) -> bool:
        return name in self._entries


def _read(members: _Members) -> Bundle:
    path = members.path
    table = json.loads(members.read(CONTENTS))
    if not isinstance(table, dict):
        raise _not_a_bundle(path, f"{CONTENTS} is not a JSON object")
    recipe = members.read(RECIPE)
    contents: BundleContents | OldBundleContents
    if table.get("schema") == 1:
        contents = OldBundleContents.parse(table, where=CONTENTS)
        jobs = _old_jobs(contents, recipe, path=path)
    else:
        contents = BundleContents.parse(table, where=CONTENTS)
        jobs = contents.recipe
    if stray := sorted(members.job_ids - contents.records.keys()):
        raise DataError(f"{path}: {CONTENTS} does not list the job {stray[0]}", hint=_HINT)
    records, unreadable, files, kept = [], [], {}, {}
    for job_id, expected in contents.records.items():
        name = f"{RUNS}/{job_id}/{RECORD}"
        content = members.read(name) if name in members else b""
        if hashlib.sha256(content).hexdigest() != expected:
            raise DataError(
                f"{path}: the record of {shown(job_id)} is not the one that was packed: {name} has "
                f"not the SHA-256 that {CONTENTS} lists",
                hint="the bundle was changed after `pack`: get it again from whoever made it",
            )
        kept[job_id] = content
        files[job_id] = {
            file: members.read(f"{RUNS}/{job_id}/{file}")
            for file in FILES
            if file != RECORD and f"{RUNS}/{job_id}/{file}" in members
        }
        try:
            records.append(parse_record(content, job_id=job_id, file=path / name))
        except DataError as error:
            unreadable.append(error.message)
    return Bundle(
        path=path,
        jobs=jobs,
        records=records,
        unreadable=unreadable,
        digests=contents.records,
        files=files,
        contents=kept,
        recipe=recipe,
    )


def _old_jobs(contents: OldBundleContents, recipe: bytes, *, path: Path) -> RecipeJobs:
    """The jobs that the recipe of an old bundle asks for."""
    try:
        loaded = parse_recipe(
            recipe, path=Path(RECIPE), changes=contents.changes, catalogue_alone=True
        )
    except UsageError as error:
        raise DataError(f"{path}: {error.message}", hint=error.hint) from error
    if loaded.datasets.keys() != contents.variants.keys():
        raise DataError(f"{path}: recipe and `variants` name different data sets")
    name = as_asked(contents.recipe, contents.changes)
    return jobs_of(loaded, name=name, variants=contents.variants)


def _zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, date_time=_ZIP_EPOCH)
            entry.create_system = 3  # Unix, wherever it is packed
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, members[name])
    return buffer.getvalue()


def _excess(n_members: int, n_bytes: int) -> str:
    """What a bundle has more of than it may; empty where that is nothing."""
    if n_members > MOST_MEMBERS:
        return f"{n_members:,} files, a bundle has at most {MOST_MEMBERS:,}"
    if n_bytes > MOST_BYTES:
        return f"{n_bytes:,} bytes, a bundle has at most {MOST_BYTES:,}"
    return ""


def _folder_of(names: Iterable[str], *, path: Path) -> tuple[str, ...]:
    """The folder inside the zip that has `bundle.json`; empty where that lies at the top."""
    found = [PurePosixPath(name) for name in names if PurePosixPath(name).name == CONTENTS]
    folders = [place.parts[:-1] for place in found if len(place.parts) <= 2]
    if len(folders) != 1:
        several = f"{len(folders)} times {CONTENTS}"
        raise _not_a_bundle(path, several if folders else f"it has no {CONTENTS}")
    return folders[0]


def _is_known(parts: tuple[str, ...]) -> bool:
    return parts in ((CONTENTS,), (RECIPE,)) or (
        len(parts) == 3 and parts[0] == RUNS and is_job_id(parts[1]) and parts[2] in FILES
    )


def _not_a_bundle(path: Path, why: str) -> DataError:
    return DataError(f"{path}: not a bundle: {why}", hint=_HINT)
