"""Files of a job's folder that may be missing or half there, as of a worker at work or killed."""

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import filelock
import pydantic

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import sha256_of, write_whole, writing
from prime_bench.recipe.job import JOB_ID_DIGITS
from prime_bench.settings.probes import Kind
from prime_bench.store.record import RECORD_SCHEMA, ProbeRecord, RunRecord


def read_text(path: Path) -> str:
    """What is there of a text; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where none is there that is whole."""
    try:
        table = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def read_history(path: Path) -> list[dict[str, Any]]:
    """The validations of history.jsonl, up to the first line that is none."""
    return list(itertools.takewhile(_is_validation, _values(path)))


def read_progress(path: Path) -> dict[str, Any]:
    """Epoch, rows, rows_total and rows_per_s of progress.json; empty where one is no number."""
    found = read_object(path)
    numbers = [found.get(key) for key in ("epoch", "rows", "rows_total", "rows_per_s")]
    sound = all(_is_number(number) and number > 0 for number in numbers)
    return found if sound else {}


def _values(path: Path) -> Iterator[Any]:
    for line in read_text(path).splitlines():
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            return


def _is_validation(line: object) -> bool:
    if not isinstance(line, Mapping) or not _is_number(line.get("wall_s")):
        return False
    scores = [line.get(key) for key in ("train_loss", "valid_auc", "valid_logloss")]
    return all(score is None or _is_number(score) for score in scores)


def _is_number(value: object) -> TypeGuard[float]:
    # A whole number may be too large for a float.
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 63
    return isinstance(value, float) and math.isfinite(value)


RECORD = "record.json"
CONFIG = "config.json"
ENVIRONMENT = "environment.json"
LOG = "log.txt"
FAILURE = "failure.json"
HISTORY = "history.jsonl"
CHECKPOINT = "checkpoint.safetensors"
PREDICTIONS = "predictions.npz"
PROGRESS = "progress.json"
"""How far the running epoch is, a few seconds ago."""
STATE = "resume.state"
"""What an interrupted job goes on from; a finished one has none."""
_CLAIMS = ".claims"
_REPLACED = ".replaced"
_JOB_ID = re.compile(f"[0-9a-f]{{{JOB_ID_DIGITS}}}")
_ID_BEGINS = re.compile(rf"[0-9a-f]{{4,{JOB_ID_DIGITS}}}")
_TOO_SHORT = re.compile(r"[0-9a-f]{1,3}")
LISTING_HINT = "`prime-bench plan RECIPE` and `prime-bench status --json` list the ids"
"""What to do without the id of a job."""


class Runs:
    """Records and claims below one folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job_id: str) -> Path:
        """The job's own folder."""
        return self.folder / job_id

    def done(self, job_id: str) -> bool:
        """Whether the job has a record."""
        return (self.path(job_id) / RECORD).is_file()

    def get(self, job_id: str) -> RunRecord | None:
        """A training run's record, or None. Raises DataError for a record that cannot be read, and
        for one of a job that measures.
        """
        record = self.find(job_id)
        if isinstance(record, ProbeRecord):
            raise DataError(f"{self.path(job_id)}: a record of the kind {record.job.kind}")
        return record

    def find(self, job_id: str) -> RunRecord | ProbeRecord | None:
        """The job's record, of whatever kind, or None. Raises DataError for a record that cannot be
        read.
        """
        file = self.path(job_id) / RECORD
        try:
            text = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DataError(
                f"{file}: cannot read the record: {error.strerror}", hint=_ADVICE
            ) from error
        record = _sound(text) or _checked(text, file=file)
        if record.job.id != job_id or record.job_id != job_id:
            raise DataError(
                f"{file}: the record's job has the id {record.job.id}, its folder is {job_id}",
                hint=_ADVICE,
            )
        return record

    def put(self, record: RunRecord | ProbeRecord) -> None:
        """Write the record, whole, as the last file of its job."""
        text = json.dumps(record.plain(), indent=2, allow_nan=False) + "\n"
        write_whole(self.path(record.job_id) / RECORD, text)

    def records(self) -> list[RunRecord]:
        """All records of training runs, in order of their ids. Raises DataError."""
        return [record for record in self._all() if isinstance(record, RunRecord)]

    def probe_records(self, kind: Kind) -> list[ProbeRecord]:
        """All records of one kind of measurement, in order of their ids. Raises DataError."""
        found = [record for record in self._all() if isinstance(record, ProbeRecord)]
        return [record for record in found if record.job.kind == kind]

    def readable(self) -> tuple[list[RunRecord | ProbeRecord], list[str]]:
        """All records that can be read, in order of their ids, and what is wrong with each other.

        One broken file must not hide hundreds of good ones, nor go unsaid.
        """
        records: list[RunRecord | ProbeRecord] = []
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
        """SHA-256 of the record's file. Raises FileNotFoundError."""
        return sha256_of(self.path(job_id) / RECORD)

    def job_ids(self) -> list[str]:
        """Every job that has a folder, in order."""
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(path.name for path in folders if is_job_id(path.name))

    def find_job(self, name: str) -> str | None:
        """The id of the one job with a folder that `name`, its first four digits or more, begins.

        None where `name` is something else: not such a text, or not the beginning of an id here.
        Raises UsageError where several jobs begin so or fewer digits are given, DataError for a
        whole id that no folder has.
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
                f"`{name}` begins {len(found)} jobs in {self.folder}",
                hint=f"jobs: {', '.join(found)}",
            )
        if not found and len(name) == JOB_ID_DIGITS:
            raise DataError(
                f"no job {name} in {self.folder}", hint="name its folder with --runs-dir"
            )
        return found[0] if found else None

    def replaced(self) -> list[Path]:
        """The folders that `put_aside` has moved away."""
        return sorted((self.folder / _REPLACED).glob("*"))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*/{RECORD}")) if self.folder.is_dir() else []

    def _all(self) -> Iterator[RunRecord | ProbeRecord]:
        for file in self._files():
            record = self.find(file.parent.name)
            if record is not None:
                yield record

    def failure(self, job_id: str) -> str | None:
        """Why the job's last try failed, in a line; None where it did not fail."""
        file = self.path(job_id) / FAILURE
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["error"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return f"{file}: not readable"

    def fail(self, job_id: str, error: str) -> None:
        """Note why a worker that has died failed its job, unless the worker itself could say so."""
        with self.claim(job_id, wait_s=0) as mine:
            file = self.path(job_id) / FAILURE
            if mine and not self.done(job_id) and not file.exists():
                write_whole(file, json.dumps({"error": error}) + "\n")

    def put_aside(self, job_id: str) -> None:
        """Move the folder of a done job to `.replaced/`, so that the job can be done again."""
        with self.claim(job_id) as mine:
            if mine and self.done(job_id):
                taken = (self.folder / _REPLACED / f"{job_id}-{i}" for i in itertools.count(1))
                place = next(path for path in taken if not path.exists())
                with writing(place):
                    place.parent.mkdir(exist_ok=True)
                    self.path(job_id).rename(place)

    def sweep(self, job_ids: Iterable[str]) -> None:
        """Remove what a worker that is killed at its very end leaves of a done job: its lock file,
        and the state that it would have gone on from.
        """
        for job_id in job_ids:
            if self.done(job_id):
                with writing(self.folder):
                    self._claim_file(job_id).unlink(missing_ok=True)
                    (self.path(job_id) / STATE).unlink(missing_ok=True)

    def started(self, job_id: str) -> bool:
        """Whether the job has a folder."""
        return self.path(job_id).is_dir()

    def saved(self, job_id: str) -> bool:
        """Whether the job has a state from which it can go on."""
        return (self.path(job_id) / STATE).is_file()

    def claimed(self, job_id: str) -> bool:
        """Whether a living process has claimed the job."""
        if not self._claim_file(job_id).exists():
            return False
        with self.claim(job_id, wait_s=0) as mine:
            return not mine

    @contextlib.contextmanager
    def claim(self, job_id: str, *, wait_s: float = 0.2) -> Iterator[bool]:
        """Hold the job against other processes: True if it is ours, False if another has it.

        The claim is a lock of the operating system, so it ends with its process, however that ends.
        The wait outlasts a `claimed` of another process, which holds the lock for a moment.
        """
        file = self._claim_file(job_id)
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(file)
            try:
                lock.acquire(timeout=wait_s, poll_interval=0.02)
            except filelock.Timeout:
                yield False
                return
        try:
            yield True
        finally:
            # With a record the job is never claimed in earnest again, so nobody can be misled by
            # a lock on a file that is gone.
            if self.done(job_id):
                file.unlink(missing_ok=True)
            lock.release()

    def _claim_file(self, job_id: str) -> Path:
        return self.folder / _CLAIMS / f"{job_id}.lock"


def is_job_id(text: str) -> bool:
    """Whether a folder of that name is a job's."""
    return _JOB_ID.fullmatch(text) is not None


def _sound(text: bytes) -> RunRecord | None:
    """The record of a training run, in one go, since there may be thousands; None for all else."""
    try:
        record = RunRecord.model_validate_json(text)
    except pydantic.ValidationError:
        return None
    return record if record.job.kind == "train" else None


def _checked(text: bytes, *, file: Path) -> RunRecord | ProbeRecord:
    """Any record. Raises DataError with all that is wrong."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot read the record: {error}", hint=_ADVICE) from error
    if not isinstance(table, dict) or table.get("record_schema") != RECORD_SCHEMA:
        raise DataError(f"{file}: not a record of schema {RECORD_SCHEMA}", hint=_ADVICE)
    try:
        return _class_of(table).parse(table, where="")
    except UsageError as error:
        raise DataError(f"{file}: not a record: {error.message}", hint=_ADVICE) from error


def _class_of(table: dict[str, Any]) -> type[RunRecord] | type[ProbeRecord]:
    """Which record a file's table is; one without a sound job is refused by either."""
    job = table.get("job")
    trained = not isinstance(job, dict) or job.get("kind", "train") == "train"
    return RunRecord if trained else ProbeRecord


_ADVICE = "move the job's folder away and run the recipe again"
