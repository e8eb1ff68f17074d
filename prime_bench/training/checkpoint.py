"""What a training run leaves in its folder: files of the job, weights, and the state that it
continues from.
"""

import hashlib
import io
import json
import math
import pickle
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from prime_bench.base.errors import DataError
from prime_bench.base.files import PART_FILES, write_whole, writing
from prime_bench.findings import Validation
from prime_bench.recipe.events import EpochProgress
from prime_bench.store.runs import (
    CHECKPOINT,
    CONFIG,
    ENVIRONMENT,
    FAILURE,
    HISTORY,
    LOG,
    PREDICTIONS,
    PROGRESS,
    STATE,
)
from prime_bench.training.environment import unlike

TEST = "test.json"
_OURS = (
    CONFIG,
    ENVIRONMENT,
    HISTORY,
    PROGRESS,
    CHECKPOINT,
    TEST,
    FAILURE,
    PREDICTIONS,
    PART_FILES,
)
_PROGRESS_EVERY_S = 5.0


class JobFolder:
    """Writes below `path`. Raises EnvironmentFault where that cannot be done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._progress_s = -math.inf

    def empty(self) -> None:
        """Make the folder, or take out what an earlier, unfinished try has left in it: all but the
        log and the state that it can be gone on from.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            for pattern in _OURS:
                for file in self.path.glob(pattern):
                    file.unlink()

    def write(self, name: str, table: Mapping[str, Any]) -> None:
        """Write a JSON file, whole."""
        write_whole(self.path / name, json.dumps(table, indent=2, allow_nan=False) + "\n")

    @property
    def state(self) -> Path:
        """The file with the state that a run goes on from."""
        return self.path / STATE

    def drop_state(self) -> None:
        """Take the state out: nobody is to go on from it."""
        with writing(self.state):
            self.state.unlink(missing_ok=True)

    def note_progress(self, progress: EpochProgress) -> None:
        """Write progress.json for `prime-bench status`, at most once in five seconds."""
        now = time.monotonic()
        if now - self._progress_s >= _PROGRESS_EVERY_S:
            self._progress_s = now
            self.write(PROGRESS, progress.plain())

    def drop_progress(self) -> None:
        """Delete progress.json: the epochs are over."""
        with writing(self.path):
            (self.path / PROGRESS).unlink(missing_ok=True)

    def write_history(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Begin the history with these validations."""
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        write_whole(self.path / HISTORY, text)

    def add_validation(self, validation: Validation) -> None:
        """Append a line to the history; a run that is killed keeps the lines it has written."""
        self._append(HISTORY, json.dumps(validation.plain(), allow_nan=False))

    def log(self, text: str) -> None:
        """Append to the log, with the time in UTC."""
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        self._append(LOG, f"{now} {text}")

    def fail(self, error: Exception) -> None:
        """Say why there will be no record: the error's first line, and all of it."""
        trace = "".join(traceback.format_exception(error))
        self.log(f"failed\n{trace}")
        self.write(FAILURE, {"error": one_line(error), "traceback": trace})

    def _append(self, name: str, line: str) -> None:
        with writing(self.path / name), (self.path / name).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def one_line(error: Exception) -> str:
    """The error in one line: its type and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# Raised whenever `Training.state_dict` has other keys.
_FORMAT = 1
_DIGEST_DIGITS = 64
_HEAD_BYTES = len(b"prime-bench state ") + _DIGEST_DIGITS + len(b"\n")


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Write weights and buffers by name; the SHA-256 of the file, 64 hex digits.

    Raises EnvironmentFault where `path` cannot be written.
    """
    content = safetensors.torch.save(dict(weights))
    write_whole(path, content)
    return hashlib.sha256(content).hexdigest()


def load_weights(path: Path) -> dict[str, Tensor]:
    """What `save_weights` wrote, on the CPU. Raises DataError for a missing or broken file."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(f"{path}: cannot read the weights: {error}") from error


class StateUnfit(Exception):
    """A saved state that no run may go on from; the text says why, in a line."""


class StateFile:
    """The file that a run's state is in: it holds the newest one that is whole. Leaving the context
    waits for what is still to be written.
    """

    def __init__(self, path: Path, *, conditions: Mapping[str, str], background: bool) -> None:
        """`conditions` are those under which a run may go on. In the background a state is copied
        to the host and written while the run goes on: on a GPU an epoch may take no longer than a
        few times what a disk takes for its state.
        """
        self._path, self._conditions, self._background = path, conditions, background
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def write(self, state: Mapping[str, Any]) -> None:
        """Write a state, after the one before. Raises EnvironmentFault where that cannot be done or
        could not be.
        """
        self.wait()
        if self._background:
            self._thread = threading.Thread(target=self._write, args=(_copied(state),))
            self._thread.start()
        else:
            save_state(self._path, state, conditions=self._conditions)

    def wait(self) -> None:
        """Until what was handed over is in the file."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, state: Mapping[str, Any]) -> None:
        try:
            save_state(self._path, state, conditions=self._conditions)
        except Exception as error:  # noqa: BLE001  # the run's own thread raises it
            self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait()


def save_state(path: Path, state: Mapping[str, Any], *, conditions: Mapping[str, str]) -> None:
    """Write a run's state, whole, with the conditions under which it may go on.

    A line with a digest of the rest, then what `torch.save` writes. Raises EnvironmentFault where
    `path` cannot be written.
    """
    buffer = io.BytesIO()
    buffer.write(bytes(_HEAD_BYTES))
    whole = {"format": _FORMAT, "conditions": dict(conditions), "state": dict(state)}
    torch.save(whole, buffer)
    content = buffer.getbuffer()
    content[:_HEAD_BYTES] = _head(content[_HEAD_BYTES:])
    write_whole(path, content)


def load_state(path: Path, *, conditions: Mapping[str, str]) -> dict[str, Any] | None:
    """The state in `path`, on the CPU; None where there is no file.

    Raises StateUnfit for a broken file and for one that was written under other conditions.
    """
    try:
        content = memoryview(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnfit(f"{path.name} cannot be read: {error}") from error
    # torch's own format has no check sum, and a flipped bit would train on without a word.
    if content[:_HEAD_BYTES] != _head(content[_HEAD_BYTES:]):
        raise StateUnfit(f"{path.name} is not whole")
    try:
        whole = torch.load(io.BytesIO(content[_HEAD_BYTES:]), map_location="cpu", weights_only=True)
        found, kept = whole["format"], whole["conditions"]
    except (pickle.UnpicklingError, RuntimeError, KeyError, TypeError) as error:
        raise StateUnfit(f"{path.name} cannot be read: {error}".splitlines()[0]) from error
    if found != _FORMAT:
        raise StateUnfit(f"{path.name} has the format {found}, this version writes {_FORMAT}")
    if differences := unlike(kept, conditions):
        raise StateUnfit("; ".join(differences))
    state: dict[str, Any] = whole["state"]
    return state


def _head(rest: memoryview) -> bytes:
    return b"prime-bench state %s\n" % hashlib.sha256(rest).hexdigest().encode()


def _copied(value: Any) -> Any:
    """The same on the host, with tensors of its own."""
    if isinstance(value, Tensor):
        return value.to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value
