"""Training runs as event files of TensorBoard: a folder a job, in `tensorboard` beside the jobs.

They are made of a run's events, by the process that runs the plan: workers, results and the folders
of jobs are what they are without it, and a machine of a cluster needs no TensorBoard. Records are
framed by TensorBoard's own writer and written at once, so that a process that is killed leaves a
file that its reader takes. torch's SummaryWriter is not used: it would load torch into this
process, and a fault of the disk would be raised in a thread of its own.
"""

import contextlib
import math
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.files import making
from prime_bench.findings import Validation
from prime_bench.recipe.events import EpochEvent, EpochProgress, ProgressEvent, WorkerEvent
from prime_bench.schedule.plan import Plan, Planned
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import HISTORY, Runs, read_history

FOLDER = "tensorboard"
"""Name of the folder beside those of the jobs."""
_SPEED = "train/rows_per_s"
_SPEED_EVERY_S = 10.0
_MOST_CHARACTERS = 40


class TensorBoard:
    """Takes the events of a run; a context manager that closes the files.

    `fault` says why nothing more is written, in a line; None while all is well.
    """

    def __init__(self, plan: Plan, runs: Runs) -> None:
        """Make the folder, and a file for each job of the plan that has a record and no file yet.

        Raises EnvironmentFault if TensorBoard is not installed, or nothing can be written.
        """
        check_installed()
        self.folder = runs.folder / FOLDER
        self.fault: str | None = None
        self._files: dict[str, _JobFile] = {}
        with making(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for planned in plan.jobs:
            if planned.job is None or planned.job.kind != "train":
                continue
            folder = self.folder / _name_of(planned)
            if planned.state == "done":
                if isinstance(planned.record, RunRecord) and not folder.exists():
                    self._write_finished(folder, planned.record)
                continue
            # Before the worker empties the job's folder.
            known = read_history(runs.path(planned.job.id) / HISTORY)
            file = _JobFile(folder, training=planned.job.training, known=known)
            self._files[planned.job.id] = file

    def event(self, event: WorkerEvent) -> None:
        """Write what the event says of a job's training."""
        file = self._files.get(getattr(event, "job_id", None) or "")
        if self.fault is not None or file is None:
            return
        try:
            with making(self.folder):
                if isinstance(event, ProgressEvent):
                    file.progress(event.progress)
                elif isinstance(event, EpochEvent):
                    file.validation(event.validation)
        except EnvironmentFault as fault:
            # The jobs are what the run is for.
            self.fault = f"no more is written for TensorBoard: {fault.message}"

    def close(self, job_id: str) -> None:
        """Close the file of a job that has ended."""
        if (file := self._files.pop(job_id, None)) is not None:
            file.close()

    def _write_finished(self, folder: Path, record: RunRecord) -> None:
        file = _JobFile(folder, training=record.job.training, known=record.history)
        with making(self.folder), contextlib.closing(file):
            file.begin(after_epoch=len(record.history))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for job_id in list(self._files):
            self.close(job_id)


def check_installed() -> None:
    """Raise EnvironmentFault if TensorBoard cannot be imported."""
    try:
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError as error:
        raise EnvironmentFault(
            f"TensorBoard is not installed here: {error}",
            hint="pip install 'prime-bench[tensorboard]', or run without `--log tensorboard`",
        ) from error


class _JobFile:
    """The event files of one job: one for each process that has trained it."""

    def __init__(self, folder: Path, *, training: TrainSpec, known: Sequence[Validation]) -> None:
        self._folder, self._training = folder, training
        self._known = {validation.epoch: validation for validation in known}
        self._written: set[int] = set()
        """Steps of the validations in the job's files."""
        self._last_step = self._speed_step = 0
        self._speed_s = -math.inf
        self._file: IO[bytes] | None = None
        self._path = folder

    def begin(self, *, after_epoch: int) -> None:
        """Continue after an epoch, from 0: TensorBoard is told to drop what the job's files have of
        later steps, and validations up to the epoch that they lack are written.
        """
        if self._file is None:
            self._written = _steps_in(self._folder)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path = _new_file(self._folder)
            self._file = self._path.open("xb")
            self._write(file_version="brain.Event:2")
        self._known = {e: kept for e, kept in self._known.items() if e <= after_epoch}
        last = max(self._known.values(), key=lambda kept: kept.epoch, default=None)
        self._last_step = 0 if last is None else last.step
        whole = {kept.step for kept in self._known.values()} <= self._written
        # The reader drops what it has of this step and later ones.
        self._restart(self._last_step + 1 if whole and last is not None else 0)
        if not whole and last is not None:
            self._written.clear()
            for _, kept in sorted(self._known.items()):
                self._scalars(kept, ago_s=last.wall_s - kept.wall_s)
        self._written = {step for step in self._written if step <= self._last_step}
        self._speed_step = self._last_step
        self._file.flush()

    def progress(self, progress: EpochProgress) -> None:
        """Write the speed, now and then and at the end of an epoch."""
        rows, whole = progress.rows, progress.rows_total
        steps = self._training.steps_of_epoch(whole)
        done = min(math.ceil(rows / self._training.batch_size), steps)
        step = (progress.epoch - 1) * steps + done
        if self._file is None or step <= self._speed_step:
            # The first one of a process that trains it, from a saved state or from epoch 1.
            self.begin(after_epoch=progress.epoch - 1)
        due = time.monotonic() - self._speed_s >= _SPEED_EVERY_S or rows == whole
        if due and progress.rows_per_s is not None:
            self._speed_s, self._speed_step = time.monotonic(), step
            self._write(step=step, scalars={_SPEED: progress.rows_per_s})

    def validation(self, validation: Validation) -> None:
        """Write the scores of an epoch."""
        if self._file is not None and not self._path.exists():
            # Somebody has deleted it: what is written into it is nowhere.
            self._file.close()
            self._file = None
        if self._file is None or validation.step <= self._last_step:
            self.begin(after_epoch=validation.epoch - 1)
        self._known[validation.epoch] = validation
        self._last_step = validation.step
        self._speed_step = max(self._speed_step, validation.step)
        self._scalars(validation)

    def close(self) -> None:
        """Close the file, which is written already."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _scalars(self, validation: Validation, *, ago_s: float = 0.0) -> None:
        """Write the scores of a validation that was so many seconds ago."""
        found = {
            "train/loss": validation.train_loss,
            "train/learning_rate": validation.learning_rate,
            "valid/auc": validation.valid_auc,
            "valid/logloss": validation.valid_logloss,
        }
        if (routing := validation.routing) is not None:
            for name, bags in (("entropy", routing.entropy), ("load", routing.largest_load)):
                found |= {f"routing_{name}/bag_{bag}": n for bag, n in enumerate(bags, start=1)}
        known = {tag: value for tag, value in found.items() if value is not None}
        self._write(step=validation.step, scalars=known, ago_s=ago_s)
        self._written.add(validation.step)

    def _restart(self, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._write(step=step, session_log=SessionLog(status=SessionLog.START))

    def _write(
        self,
        *,
        scalars: Mapping[str, float] | None = None,
        ago_s: float = 0.0,
        **facts: object,
    ) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        if scalars is not None:
            values = [Summary.Value(tag=tag, simple_value=n) for tag, n in scalars.items()]
            facts["summary"] = Summary(value=values)
        writer = RecordWriter(self._file)
        writer.write(Event(wall_time=time.time() - ago_s, **facts).SerializeToString())
        writer.flush()


def _steps_in(folder: Path) -> set[int]:
    """Steps of the validations in the event files of a folder, as TensorBoard reads them."""
    if not folder.is_dir():
        return set()
    from tensorboard.backend.event_processing import event_accumulator

    found = event_accumulator.EventAccumulator(
        str(folder), size_guidance={event_accumulator.SCALARS: 0}
    ).Reload()
    tag = "train/learning_rate"  # the one that each validation has
    known = tag in found.Tags()[event_accumulator.SCALARS]
    return {one.step for one in found.Scalars(tag)} if known else set()


def _new_file(folder: Path) -> Path:
    """A name as TensorBoard's own writer gives it, after those of all files that are there: its
    reader takes them in the order of their names.
    """
    names = [path.name.split(".") for path in folder.glob("events.out.tfevents.*")]
    latest = max((int(parts[3]) for parts in names if parts[3].isdigit()), default=0)
    host = re.sub(r"[^\w-]", "-", socket.gethostname())
    second = max(int(time.time()), latest + 1)
    return folder / f"events.out.tfevents.{second:010d}.{host}.{os.getpid()}.0"


def _name_of(planned: Planned) -> str:
    """What TensorBoard calls a run: data set, backbone, arm, seed and the job's id."""
    spec, job = planned.job_spec, planned.job
    if job is None:
        raise ValueError(f"{spec} has no job")
    parts = (spec.dataset, job.backbone, spec.arm.name, str(job.seed))
    safe = [re.sub(r"[^\w.+-]", "-", part)[:_MOST_CHARACTERS] for part in parts]
    return "_".join([*safe, job.id])
