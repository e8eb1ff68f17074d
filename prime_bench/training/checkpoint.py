"""What a job writes to its folder: JSON files and logs, weights, predictions, and the saved state
from which a stopped training run continues.
"""

import hashlib
import io
import json
import math
import os
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

from prime_bench.base.characters import said, shortened
from prime_bench.base.errors import DataError, UserError
from prime_bench.base.files import (
    PART_FILES,
    environment_fault,
    open_file,
    remove,
    write_whole,
    writing,
)
from prime_bench.base.words import counted
from prime_bench.findings import Validation
from prime_bench.recipe.events import MESSAGE_CHARACTERS, EpochProgress
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
    TEST,
)
from prime_bench.training.environment import unlike

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
_TRACE_LINES = 500
"""Lines at the beginning and at the end of a traceback that are kept."""


class JobFolder:
    """The files of one job below `path`. Every method that writes raises EnvironmentFault if it
    cannot.

    They belong to the process that has made this object. One that a plug-in has forked, and that
    goes on with the job as a second worker, ends where it would write.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._owner = path, os.getpid()
        self._progress_s = -math.inf

    @property
    def path(self) -> Path:
        """The folder of the job. A process that is a fork of the one that made this ends here."""
        if os.getpid() != self._owner:
            os._exit(1)
        return self._path

    def empty(self) -> None:
        """Make the folder, or delete what an earlier, unfinished run left in it, except the log and
        the saved state.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            for pattern in _OURS:
                for file in self.path.glob(pattern):
                    file.unlink()

    def write(self, name: str, table: Mapping[str, object]) -> None:
        """Write a table as a JSON file, atomically."""
        write_whole(self.path / name, json.dumps(table, indent=2, allow_nan=False) + "\n")

    @property
    def state(self) -> Path:
        """The file with the saved state of the run."""
        return self.path / STATE

    def drop_state(self) -> None:
        """Delete the saved state, so that no run continues from it."""
        remove(self.state)

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

    def write_history(self, lines: Sequence[Mapping[str, object]]) -> None:
        """Start the history with these validations, in place of whatever it held."""
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        write_whole(self.path / HISTORY, text)

    def add_validation(self, validation: Validation) -> None:
        """Append a validation to the history; a run that is killed keeps the lines before it."""
        self._append(HISTORY, json.dumps(validation.plain(), allow_nan=False))

    def log(self, text: str) -> None:
        """Append a line to the log, with the time in UTC."""
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        self._append(LOG, f"{now} {text}")

    def fail(self, error: Exception) -> None:
        """Write the error's first line and its traceback to `failure.json` and to the log."""
        trace = _trace(error)
        self.log(f"failed\n{trace}")
        self.write(FAILURE, {"error": one_line(error), "traceback": trace})

    def _append(self, name: str, line: str) -> None:
        with writing(self.path / name), (self.path / name).open("ab") as file:
            file.write(f"{line}\n".encode(errors="backslashreplace"))


def one_line(error: Exception) -> str:
    """The error in one line: its type and the first line of its message, which may be cut.

    What the user can mend reads as at the command line, with what to do, such as
    `/runs/x: the disk is full; free some space`.
    """
    error = environment_fault(error) or error
    if isinstance(error, UserError):
        parts = [text.splitlines()[0] for text in (error.message, error.hint) if text]
        return shortened("; ".join(parts), MESSAGE_CHARACTERS)
    lines = said(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return shortened(text, MESSAGE_CHARACTERS)


def _trace(error: Exception) -> str:
    """The traceback. Of a message with many or long lines, only a part is kept."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    if (n_more := len(lines) - 2 * _TRACE_LINES) > 0:
        lines[_TRACE_LINES:-_TRACE_LINES] = [f"[... {counted(n_more, 'line')}]"]
    return "".join(f"{shortened(line, MESSAGE_CHARACTERS)}\n" for line in lines)


# Raised whenever `Training.state_dict` or a state inside it has other keys.
_FORMAT = 2
_DIGEST_DIGITS = 64
_HEAD = b"prime-bench state "
_HEAD_BYTES = len(_HEAD) + _DIGEST_DIGITS + len(b"\n")


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Write weights and buffers by name, atomically, as safetensors. Returns the SHA-256 of the
    file, 64 hex digits.

    Raises EnvironmentFault if `path` cannot be written.
    """
    content = safetensors.torch.save(dict(weights))
    write_whole(path, content)
    return hashlib.sha256(content).hexdigest()


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read weights and buffers that `save_weights` wrote, on the CPU.

    Raises DataError for a missing or broken file.
    """
    try:
        # Opened here first: the library would wait for a named pipe, and map a device.
        open_file(path).close()
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(f"{path}: cannot read the weights: {error}") from error


class StateUnfit(Exception):
    """A file with a saved state from which this process may not continue: it is damaged, of another
    format, or was written under other conditions. The message gives the reason in one line.
    """


class StateFile:
    """The file that holds the newest complete state of a run. Leaving the context waits until
    everything is written.
    """

    def __init__(self, path: Path, *, conditions: Mapping[str, str], background: bool) -> None:
        """Set up the file; nothing is written yet.

        Args:
            path: The file.
            conditions: What a process must share with this one to continue from the state, by
                name (`environment.conditions`, and the job).
            background: Whether a state is copied to the host and written by a thread while the run
                continues. On a GPU an epoch can be nearly as short as the writing of its state.
        """
        self._path, self._conditions, self._background = path, conditions, background
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def write(self, state: Mapping[str, object]) -> None:
        """Write a state, once the one before it is written. Raises EnvironmentFault if this one or
        the one before it cannot be written.
        """
        self.wait()
        if self._background:
            self._thread = threading.Thread(target=self._write, args=(_copied(state),))
            self._thread.start()
        else:
            save_state(self._path, state, conditions=self._conditions)

    def wait(self) -> None:
        """Wait until the last state is in the file."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, state: Mapping[str, object]) -> None:
        try:
            save_state(self._path, state, conditions=self._conditions)
        except Exception as error:  # noqa: BLE001  # the run's own thread raises it
            self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: Exception | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait()


def save_state(path: Path, state: Mapping[str, object], *, conditions: Mapping[str, str]) -> None:
    """Write a run's state atomically, with the conditions under which a run may continue from it.

    The file is a line with the digest of the rest, followed by what `torch.save` writes. Raises
    EnvironmentFault if `path` cannot be written.
    """
    buffer = io.BytesIO()
    buffer.write(bytes(_HEAD_BYTES))
    whole = {"format": _FORMAT, "conditions": dict(conditions), "state": dict(state)}
    torch.save(whole, buffer)
    content = buffer.getbuffer()
    content[:_HEAD_BYTES] = _head(content[_HEAD_BYTES:])
    write_whole(path, content)


def load_state(path: Path, *, conditions: Mapping[str, str]) -> dict[str, object] | None:
    """Read the state in `path`, as `save_state` was given it, with its tensors on the CPU; None if
    there is no file.

    Raises StateUnfit for a broken file and for one that was written under other conditions.
    """
    try:
        with open_file(path) as file:
            head = file.read(_HEAD_BYTES)
            # Whatever is not ours is not read: it may be of any size.
            content = memoryview(file.read() if head.startswith(_HEAD) else b"")
    except FileNotFoundError:
        return None
    except (OSError, MemoryError) as error:
        why = getattr(error, "strerror", None) or "the memory does not suffice"
        raise StateUnfit(f"{path.name} cannot be read: {why}") from error
    # torch's own format has no check sum, and a flipped bit would go unnoticed.
    if head != _head(content):
        raise StateUnfit(f"{path.name} is damaged")
    try:
        whole = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        found, kept, state = whole["format"], dict(whole["conditions"]), dict(whole["state"])
    except Exception as error:  # torch raises what the content happens to lead to
        raise StateUnfit(f"{path.name} cannot be read: {one_line(error)}") from error
    if found != _FORMAT:
        raise StateUnfit(f"{path.name} has the format {found}, this version writes {_FORMAT}")
    if differences := unlike(kept, conditions):
        raise StateUnfit("; ".join(differences))
    return state


def _head(rest: memoryview) -> bytes:
    return b"%s%s\n" % (_HEAD, hashlib.sha256(rest).hexdigest().encode())


def _copied(value: Any) -> Any:
    """A copy on the host, tensors included."""
    if isinstance(value, Tensor):
        return value.to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value
