"""The files of one job while it runs. `record.json`, which ends it, is the store's."""

import json
import math
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prime_bench.base.files import PART_FILES, write_whole, writing
from prime_bench.store.record import Validation
from prime_bench.store.runs import (
    CHECKPOINT,
    CONFIG,
    ENVIRONMENT,
    FAILURE,
    HISTORY,
    LOG,
    PROGRESS,
    STATE,
)

TEST = "test.json"
PREDICTIONS = "predictions.npz"
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

    def note_progress(self, progress: Mapping[str, Any]) -> None:
        """Leave word for `prime-bench status`, if the last one is some seconds old."""
        now = time.monotonic()
        if now - self._progress_s >= _PROGRESS_EVERY_S:
            self._progress_s = now
            self.write(PROGRESS, progress)

    def drop_progress(self) -> None:
        """Take the last word of progress out: the epochs are over."""
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
