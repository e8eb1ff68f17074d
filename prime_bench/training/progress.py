"""Progress of an epoch or a probe, reported at most twice a second."""

import time
from collections.abc import Callable

from prime_bench.recipe.events import EpochProgress

_EVERY_S = 0.5


class ProgressMeter:
    """Counts the rows of an epoch and reports them, without waiting for the device.

    Args:
        on_progress: Called at most twice a second, and when all rows are counted.
        rows_total: Rows of the whole epoch.
        epoch: Number of the epoch, from 1.
    """

    def __init__(
        self, on_progress: Callable[[EpochProgress], None], *, rows_total: int, epoch: int = 1
    ) -> None:
        self._on_progress, self._rows_total, self._epoch = on_progress, rows_total, epoch
        self._rows = 0
        self._start = self._reported = time.perf_counter()

    def add(self, n_rows: int) -> None:
        """Count `n_rows` more rows."""
        self._rows += n_rows
        now = time.perf_counter()
        if now - self._reported < _EVERY_S and self._rows < self._rows_total:
            return
        self._reported = now
        self._on_progress(
            EpochProgress(
                epoch=self._epoch,
                rows=self._rows,
                rows_total=self._rows_total,
                rows_per_s=self._rows / (now - self._start),
            )
        )
