"""What `prepare` prints of a table, and its progress bars."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prime_bench.base.characters import visible

if TYPE_CHECKING:
    from prime_bench.api import Preparation
    from prime_bench.data.manifest import BestPossible
    from prime_bench.data.stages import StageProgress

PREPARE_SCHEMA = 1
_VERIFIED = {True: "yes", False: "no", "own": "own data"}


def plain(made: "Preparation") -> dict[str, Any]:
    """The table as JSON values."""
    manifest = made.manifest
    return {
        "schema": PREPARE_SCHEMA,
        "dataset": manifest.dataset,
        "fingerprint": manifest.fingerprint,
        "path": str(made.folder),
        "verified": manifest.verified,
        "rows": manifest.rows.plain(),
        "positives": manifest.positives.plain(),
        "fields": manifest.n_fields,
        "vocabulary_total": manifest.vocabulary_total,
        "settings": manifest.settings,
        "notes": manifest.notes,
        "warnings": manifest.warnings,
        "best": None if manifest.best is None else best_plain(manifest.best),
    }


def best_plain(best: Mapping[Any, "BestPossible"]) -> dict[str, Any]:
    """The best possible metrics by split, as JSON values."""
    return {split: score.plain() for split, score in best.items()}


def summary(made: "Preparation") -> str:
    """The table's folder, rows, fields and fingerprint, in a few lines."""
    manifest = made.manifest
    lines = [f"{manifest.dataset}: {made.folder}"]
    for split, rows in manifest.rows.plain().items():
        share = getattr(manifest.positives, split) / rows
        lines.append(f"  {split:<12}{rows:>12,} rows, {share:.4f} positive")
    lines += [
        f"  fields      {manifest.n_fields:>12}",
        f"  vocabulary  {manifest.vocabulary_total:>12,} ids",
        f"  fingerprint {manifest.fingerprint[:12]:>12}",
        f"  verified    {_VERIFIED[manifest.verified]:>12}",
    ]
    if manifest.best is not None:
        lines.append(f"  {best_line(manifest.best)}")
    return "\n".join([*lines, *(visible(f"  note: {note}") for note in manifest.notes)])


def best_line(splits: Mapping[Any, "BestPossible"]) -> str:
    """The best possible test metrics in a line; there are none for a single test row."""
    best = splits.get("test")
    if best is None:
        return "best possible on test: none, its rows are too few"
    return f"best possible on test: AUC {best.auc:.4f}, LogLoss {best.logloss:.4f}"


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, "StageProgress"], None]]:
    """Show on stderr how far the block is: in a terminal a bar for each data set and stage,
    elsewhere a line a minute.

    Yields a function to which the block says that: it takes the data set's name and its progress.
    """
    import time

    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from prime_bench.cli.output import LINE_EVERY_S, console, print_line

    screen = console(stderr=True)
    shown = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal,
        transient=True,
    )
    stages: dict[tuple[str, str], tuple[TaskID, float]] = {}
    last_line_s = time.monotonic()

    def move(dataset: str, now: "StageProgress") -> None:
        nonlocal last_line_s
        key, now_s = (dataset, now.stage), time.monotonic()
        if key not in stages:
            stages[key] = shown.add_task(visible(f"{dataset}: {now.stage}"), rate=""), now_s
        task, start_s = stages[key]
        elapsed_s = now_s - start_s
        rate = f"{now.rows / elapsed_s:,.0f} rows/s" if elapsed_s > 1 and now.rows else ""
        shown.update(task, completed=now.done, total=now.total, rate=rate)
        if shown.disable and now_s - last_line_s >= LINE_EVERY_S:
            last_line_s = now_s
            parts = [f"{dataset}: {now.stage}", f"{now.done / max(now.total, 1):.0%}", rate]
            print_line(", ".join(filter(None, parts)), err=True)

    with shown:
        yield move
