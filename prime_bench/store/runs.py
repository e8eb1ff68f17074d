"""A folder of runs: one folder a job, with its record and other files, and claims on jobs."""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pydantic

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import (
    MOST_BYTES,
    kind_of,
    open_file,
    read_file,
    read_json,
    remove,
    sha256_of,
    write_whole,
    writing,
)
from prime_bench.base.frozen import Frozen
from prime_bench.base.identity import JOB_ID_DIGITS
from prime_bench.base.locks import Busy, holder, locked
from prime_bench.findings import Validation
from prime_bench.recipe.events import EpochProgress
from prime_bench.recipe.job import Job
from prime_bench.store.record import (
    RECORD_SCHEMA,
    ProbeRecord,
    Record,
    RunRecord,
    sealed,
)

RECORD = "record.json"
CONFIG = "config.json"
ENVIRONMENT = "environment.json"
LOG = "log.txt"
FAILURE = "failure.json"
HISTORY = "history.jsonl"
CHECKPOINT = "checkpoint.safetensors"
TEST = "test.json"
PREDICTIONS = "predictions.npz"
PROGRESS = "progress.json"
"""How far the running epoch was a few seconds ago."""
STATE = "resume.state"
"""The state from which an interrupted job continues; deleted when the job is done."""
_READ = (RECORD, CONFIG, FAILURE, HISTORY, PROGRESS, ENVIRONMENT)
"""Files of a job that commands read whole."""
SEALED = (CONFIG, ENVIRONMENT, HISTORY, CHECKPOINT, TEST, PREDICTIONS)
"""Files whose digests a record has, where they are there when it is written. The log is for the
reader, and no number comes from it."""
_CLAIMS = ".claims"
_REPLACED = ".replaced"
_END_BYTES = 64 << 10
"""Bytes of the end of a log that are read for its last lines."""
_JOB_ID = re.compile(f"[0-9a-f]{{{JOB_ID_DIGITS}}}")
_ID_BEGINS = re.compile(rf"[0-9a-f]{{4,{JOB_ID_DIGITS}}}")
_TOO_SHORT = re.compile(r"[0-9a-f]{1,3}")
LISTING_HINT = "`prime-bench plan RECIPE` and `prime-bench status --json` list the ids"
"""Hint for a message about a job id that is missing or wrong."""


def read_text(path: Path) -> str:
    """Return a file's text; empty if it cannot be read. Bytes that are not UTF-8 are replaced."""
    try:
        return read_file(path).decode(errors="replace")
    except OSError:
        return ""


def read_end(path: Path) -> str:
    """Return the last part of a log, which may be long; empty if it cannot be read."""
    try:
        with open_file(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
            return file.read(_END_BYTES).decode(errors="replace")
    except OSError:
        return ""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is none, or if it is not complete."""
    try:
        table = read_json(path)
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


class JobConfig(Frozen):
    """What a config.json says of its job; other keys are for people."""

    model_config = pydantic.ConfigDict(extra="ignore")

    job: Job
    dataset: str | None = None
    arm: str | None = None
    recipe: str | None = None
    origins: dict[str, str] = {}


def read_history(path: Path) -> list[Validation]:
    """Return the validations in a history.jsonl, up to the first line that is not one.

    The last line is incomplete if the worker was killed while it wrote it.
    """
    found = []
    for line in read_text(path).splitlines():
        try:
            found.append(Validation.model_validate_json(line))
        except pydantic.ValidationError:
            break
    return found


def read_progress(path: Path) -> EpochProgress | None:
    """Return the content of a progress.json; None if there is none, or if it is not complete."""
    try:
        found = EpochProgress.model_validate_json(read_text(path))
    except pydantic.ValidationError:
        return None
    return None if found.rows_per_s is None else found


class Runs:
    """A folder of runs, which need not exist yet; messages call it `shown`."""

    def __init__(self, folder: Path, *, shown: Path | None = None) -> None:
        self.folder = folder
        self.shown = shown or folder

    def path(self, job_id: str) -> Path:
        """Return the job's folder."""
        return self.folder / job_id

    def done(self, job_id: str) -> bool:
        """Whether the job has a record; a folder that may not be entered has none."""
        try:
            return (self.path(job_id) / RECORD).is_file()
        except OSError:
            return False

    def find(self, job_id: str) -> Record | None:
        """Return the job's record, or None if it has none.

        Raises:
            DataError: If the record cannot be read.
        """
        file = self.path(job_id) / RECORD
        try:
            text = read_file(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DataError(
                f"{file}: cannot read the record: {error.strerror}", hint=_ADVICE
            ) from error
        return parse_record(text, job_id=job_id, file=file)

    def sealed(self, record: Record) -> Record:
        """Return the record with digests of itself and of the files that now are in its folder."""
        folder = self.path(record.job_id)
        found = {name: folder / name for name in SEALED if (folder / name).is_file()}
        with writing(folder):
            return sealed(record, {name: sha256_of(file) for name, file in found.items()})

    def put(self, record: Record) -> None:
        """Write the record to its job's folder. To be done last: a job with a record is done."""
        text = json.dumps(record.plain(), indent=2, allow_nan=False) + "\n"
        write_whole(self.path(record.job_id) / RECORD, text)

    def readable(self) -> tuple[list[Record], list[str]]:
        """Return all records that can be read, in order of the job ids, and a message for each
        that cannot.
        """
        records: list[Record] = []
        faults: list[str] = []
        for file in self._files():
            try:
                record = self.find(file.parent.name)
            except DataError as error:
                faults.append(error.message)
            else:
                records += [record] if record is not None else []
        return records, faults

    def record_digest(self, job_id: str) -> str:
        """Return the SHA-256 of the record's file. Raises as `read_file`."""
        return hashlib.sha256(read_file(self.path(job_id) / RECORD)).hexdigest()

    def job_ids(self) -> list[str]:
        """Return the ids of all jobs that have a folder, sorted."""
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(path.name for path in folders if is_job_id(path.name))

    def find_job(self, name: str) -> str | None:
        """Return the id of the job whose id begins with `name`, four hex digits or more.

        Returns None if `name` is not a text of hex digits, or if no job's id begins with it.

        Raises:
            UsageError: If the ids of several jobs begin with `name`, or it has too few digits.
            DataError: If `name` is a whole id, and no job has it.
        """
        if _TOO_SHORT.fullmatch(name) and not Path(name).is_file():
            raise UsageError(
                f"{name}: at least four digits of a job's id are needed", hint=LISTING_HINT
            )
        if not _ID_BEGINS.fullmatch(name):
            return None
        found = sorted(path.name for path in self.folder.glob(f"{name}*") if path.is_dir())
        if len(found) > 1:
            raise UsageError(
                f"`{name}` begins {len(found)} jobs in {self.shown}",
                hint=f"jobs: {', '.join(found)}",
            )
        if not found and len(name) == JOB_ID_DIGITS:
            raise DataError(
                f"no job {name} in {self.shown}", hint="name its folder with --runs-dir"
            )
        return found[0] if found else None

    def replaced(self) -> list[Path]:
        """Return the folders that `put_aside` has moved away, sorted."""
        return sorted((self.folder / _REPLACED).glob("*"))

    def _files(self) -> list[Path]:
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        # Not with `glob`, which passes over folders that may not be entered.
        return sorted(path / RECORD for path in folders if not path.name.startswith("."))

    def failure(self, job_id: str) -> str | None:
        """Return why the job failed when it was last tried, in one line; None if it did not."""
        file = self.path(job_id) / FAILURE
        try:
            return str(read_json(file)["error"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return f"{file}: not readable"

    def config(self, job_id: str) -> JobConfig | str:
        """Return what the job's config.json says, else why it says nothing, in a few words."""
        file = self.path(job_id) / CONFIG
        try:
            table = read_json(file)
            if not isinstance(table, dict):
                raise TypeError
            found, _ = JobConfig.check(table)
        except (FileNotFoundError, NotADirectoryError):
            return f"it has no {CONFIG}"
        except (OSError, ValueError, TypeError, RecursionError):
            found = None
        own = None if found is None else _id_of(found.job)
        if found is None or own is None:
            return f"its {CONFIG} cannot be read"
        return found if own == job_id else f"its {CONFIG} is of the job {own}"

    def fail(self, job_id: str, error: str) -> None:
        """Write a failure.json for a worker that has died, unless it has written one itself."""
        with self.claim(job_id, wait_s=0) as mine:
            file = self.path(job_id) / FAILURE
            if mine and not self.done(job_id) and not file.exists():
                write_whole(file, json.dumps({"error": error}) + "\n")

    def put_aside(self, job_id: str, *, record: Record | None = None) -> None:
        """Move the folder of a done job to `.replaced/`, so that the job can run again.

        With `record`, only if that is still the job's record: another process may have done the job
        again since it was read.
        """
        with self.claim(job_id) as mine:
            if mine and self.done(job_id) and (record is None or self.find(job_id) == record):
                taken = (self.folder / _REPLACED / f"{job_id}-{i}" for i in itertools.count(1))
                place = next(path for path in taken if not path.exists())
                with writing(place):
                    place.parent.mkdir(exist_ok=True)
                    self.path(job_id).rename(place)

    def sweep(self, job_ids: Iterable[str]) -> None:
        """Delete lock file and saved state of the jobs that are done.

        A worker that is killed just after it has written the record leaves them behind.
        """
        for job_id in job_ids:
            if self.done(job_id):
                remove(self._claim_file(job_id))
                remove(self.path(job_id) / STATE)

    def started(self, job_id: str) -> bool:
        """Whether the job has a folder."""
        return self.path(job_id).is_dir()

    def saved(self, job_id: str) -> bool:
        """Whether the job has a saved state from which it can continue."""
        return (self.path(job_id) / STATE).is_file()

    def misfit(self, job_id: str) -> str | None:
        """Return why the job's folder can hold no job, in one line; None if nothing is wrong.

        A named pipe, a device, a folder or a huge file in place of one that is read is not for this
        program to delete, and nothing can be said of a job that has one.
        """
        folder = self.path(job_id)
        if not folder.exists():
            return None
        for path in (folder, *(folder / name for name in (*_READ, LOG))):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"{path}: {error.strerror}"
            kind, wanted = kind_of(status.st_mode), "a folder" if path == folder else "a file"
            if kind != wanted:
                return f"{path}: {kind}, not {wanted}"
            if path.name in _READ and status.st_size > MOST_BYTES:
                return f"{path}: has {status.st_size:,} bytes, too many to read"
        return None

    def claimant(self, job_id: str) -> str | None:
        """Return which living process has claimed the job; None if none has.

        Raises DataError if the file of its lock is none.
        """
        return holder(self._claim_file(job_id))

    def claimed(self, job_id: str) -> bool:
        """Whether a living process has claimed the job. Raises DataError as `claimant`."""
        return self.claimant(job_id) is not None

    def check_claims(self) -> None:
        """Raise EnvironmentFault if no job can be claimed: the file system has no locks."""
        file = self.folder / _CLAIMS / ".try.lock"
        with contextlib.suppress(Busy), locked(file), writing(file):
            file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def claim(self, job_id: str, *, wait_s: float = 0.2) -> Iterator[bool]:
        """Claim the job for this process: yields True, or False if another process has claimed it.

        The claim is a lock of the operating system, so it ends with the process, also if that is
        killed. `wait_s` is longer than another process holds the lock in `claimant`.

        Raises DataError if the file of the lock is none, EnvironmentFault if there are no locks.
        """
        file = self._claim_file(job_id)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(file, wait_s=wait_s))
            except Busy:
                yield False
                return
            try:
                yield True
            finally:
                # Nobody works on a job that has a record, so a lock on a deleted file does no harm.
                if self.done(job_id):
                    file.unlink(missing_ok=True)

    def _claim_file(self, job_id: str) -> Path:
        return self.folder / _CLAIMS / f"{job_id}.lock"


def parse_record(text: bytes, *, job_id: str, file: Path) -> Record:
    """Return the record in the content of a record.json.

    `file` is its name in messages. Raises DataError unless it is a record of the job `job_id`.
    """
    record = _sound(text) or _checked(text, file=file)
    own = _id_of(record.job)
    if own != job_id or record.job_id != job_id:
        raise DataError(
            f"{file}: the record's job has the id {own}, its folder is {job_id}",
            hint=_ADVICE,
        )
    return record


def _id_of(job: Job) -> str | None:
    """The job's id; None where a setting is NaN or a text no Unicode, which JSON does not have."""
    try:
        return job.id
    except ValueError:
        return None


def is_job_id(text: str) -> bool:
    """Whether `text` has the form of a job id."""
    return _JOB_ID.fullmatch(text) is not None


def _sound(text: bytes) -> RunRecord | None:
    """Parse the record of a training run; None for anything else. Fast: there may be thousands."""
    try:
        record = RunRecord.model_validate_json(text)
    except pydantic.ValidationError:
        return None
    return record if record.job.kind == "train" else None


def _checked(text: bytes, *, file: Path) -> Record:
    """Parse any record. Raises DataError with everything that is wrong with it."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot read the record: {error}", hint=_ADVICE) from error
    if not isinstance(table, dict) or table.get("record_schema") != RECORD_SCHEMA:
        raise DataError(f"{file}: not a record of schema {RECORD_SCHEMA}", hint=_ADVICE)
    try:
        return _class_of(table.get("job")).parse(table, where="")
    except UsageError as error:
        raise DataError(f"{file}: not a record: {error.message}", hint=_ADVICE) from error


def _class_of(job: object) -> type[RunRecord] | type[ProbeRecord]:
    """The class of a job's record. A record without a valid job is refused by either class."""
    trained = not isinstance(job, dict) or job.get("kind", "train") == "train"
    return RunRecord if trained else ProbeRecord


_ADVICE = "move the job's folder away and run the recipe again"
