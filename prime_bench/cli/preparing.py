"""Progress of `prepare` on stderr: one bar a stage; needs a terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from prime_bench.data import progress


class Preparing:
    """Takes what `prepare` tells; a context manager around the bars."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        self._title = title
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._stages: dict[str, tuple[TaskID, float]] = {}

    def __call__(self, now: progress.Progress) -> None:
        """Move the bar of the stage."""
        if now.stage not in self._stages:
            task = self._bars.add_task(f"{self._title}: {now.stage}", rate="")
            self._stages[now.stage] = task, time.monotonic()
        task, start = self._stages[now.stage]
        elapsed_s = time.monotonic() - start
        rate = f"{now.rows / elapsed_s:,.0f} rows/s" if elapsed_s > 1 else ""
        self._bars.update(task, completed=now.done, total=now.total, rate=rate)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()
