"""Progress of `prepare` on stderr: one bar a stage; needs a terminal."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from prime_bench.data.stages import OnProgress, StageProgress


@contextlib.contextmanager
def bars(title: str) -> Iterator[OnProgress]:
    """Bars on stderr while the block runs; what it yields moves them."""
    console = Console(stderr=True)
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    stages: dict[str, tuple[TaskID, float]] = {}

    def move(now: StageProgress) -> None:
        if now.stage not in stages:
            task = shown.add_task(f"{title}: {now.stage}", rate="")
            stages[now.stage] = task, time.monotonic()
        task, start = stages[now.stage]
        elapsed_s = time.monotonic() - start
        rate = f"{now.rows / elapsed_s:,.0f} rows/s" if elapsed_s > 1 and now.rows else ""
        shown.update(task, completed=now.done, total=now.total, rate=rate)

    with shown:
        yield move
