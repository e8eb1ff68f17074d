"""How far a measurement has come, in events that a terminal can show."""

import time
from collections.abc import Callable
from typing import Any

EVERY_S = 0.5

Tell = Callable[[dict[str, Any]], None]
"""What takes a worker's events."""


class ProbeProgress:
    """Counts the rows of an epoch, or of what counts as one, and tells of them at most twice a
    second and at the end.
    """

    def __init__(self, tell: Tell, job_id: str, *, rows_total: int, epoch: int = 1) -> None:
        self._tell, self._rows_total = tell, rows_total
        self._event = {"event": "progress", "job_id": job_id, "epoch": epoch}
        self._rows = 0
        self._start = self._told = time.perf_counter()

    def add(self, n_rows: int) -> None:
        """So many more rows are done."""
        self._rows += n_rows
        now = time.perf_counter()
        if now - self._told < EVERY_S and self._rows < self._rows_total:
            return
        self._told = now
        self._tell(
            {
                **self._event,
                "rows": self._rows,
                "rows_total": self._rows_total,
                "rows_per_s": self._rows / (now - self._start),
            }
        )
