"""`prime-bench status`: how far jobs are."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prime_bench.base.characters import visible
from prime_bench.base.words import counted
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from prime_bench.schedule.status import JobStatus, Status

STATUS_SCHEMA = 1
_REFRESH_S = 2.0
# Running jobs first, then those that need attention.
_SHOWN = ("running", "broken", "failed", "interrupted", "stale")
_LINES_AROUND = 5  # header, rule, summary and what a terminal needs below


@click.command()
@click.argument("recipe", required=False, shell_complete=complete.recipes)
@options.only
@options.changes
@options.device
@options.accept_source
@click.option("--watch", is_flag=True, help="Keep the table on the screen until Ctrl-C.")
@options.data_dir
@options.runs_dir
@options.as_json
def status(
    recipe: str | None,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    device: str,
    accept_source: bool,
    watch: bool,
    data_dir: Path,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Show how far jobs are.

    Without RECIPE, shows every job that has a folder. A terminal shows a table of the jobs
    that run, failed or were interrupted, with the running epoch, the rows a second, the best
    validation AUC and the time left, then a line of counts; a pipe gets that line alone. `plan`
    lists every job. `--device` says where the jobs are meant to run, as for `plan`.
    """
    from prime_bench import api
    from prime_bench.cli.output import console, print_json, print_text

    def look() -> "Status":
        return api.status(
            recipe,
            only=only,
            changes=changes,
            device=device,
            accept_source=accept_source,
            data_dir=data_dir,
            runs_dir=runs_dir,
        )

    screen = console()
    if as_json:
        found = look()
        jobs = [job.plain() for job in found.jobs]
        print_json(STATUS_SCHEMA, {"counts": found.counts, "earlier": found.earlier, "jobs": jobs})
    elif not screen.is_terminal:
        print_text(summary(look()))
    elif watch:
        _watch(look, screen=screen)
    else:
        found = look()
        if any(job.state in _SHOWN for job in found.jobs):
            screen.print(table_of(found, n_lines=len(found.jobs)))
        print_text(summary(found))


def summary(found: "Status") -> str:
    """A line with the number of jobs in each state, and when the running ones will have ended.

    Each class of the user's own whose earlier versions have records adds a line, which names them.
    """
    from prime_bench.cli.output import duration

    counts = ", ".join(f"{number} {state}" for state, number in found.counts.items())
    left = [job.left_s for job in found.jobs if job.left_s is not None]
    running = f"; those running end in {duration(max(left))} or sooner" if left else ""
    line = f"{counted(len(found.jobs), 'job')}: {counts or 'none'}{running}"
    return "\n".join([line, *(visible(f"source: {text}") for text in found.earlier)])


def table_of(found: "Status", *, n_lines: int) -> "Table":
    """A table of jobs that run or need attention, at most `n_lines` of them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("job", no_wrap=True)
    # The one column that gives way on a narrow screen.
    table.add_column("", ratio=1, overflow="ellipsis", no_wrap=True)
    table.add_column("state", no_wrap=True)
    # On one machine it would be the same in each row.
    several = len({job.where for job in found.jobs if job.where}) > 1
    if several:
        table.add_column("where", ratio=1, overflow="ellipsis", no_wrap=True)
    for name in ("epoch", "rows/s", "AUC", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    jobs = sorted(
        (job for job in found.jobs if job.state in _SHOWN), key=lambda j: _SHOWN.index(j.state)
    )
    for job in jobs[:n_lines]:
        cells = _cells(job)
        where = [visible(job.where or "-")] if several else []
        table.add_row(*cells[:3], *where, *cells[3:])
    if len(jobs) > n_lines:
        table.add_row("...", f"and {len(jobs) - n_lines} more")
    return table


def _cells(job: "JobStatus") -> tuple[str, ...]:
    from prime_bench.cli.output import duration

    share = "" if job.share is None else f" {job.share:.0%}"
    bound = "< " if job.at_most else ""
    return (
        visible((job.job_id or "-")[:8]),
        visible(job.name),
        job.state,
        "-" if job.epoch is None else f"{job.epoch}{share}",
        "-" if job.rows_per_s is None else f"{job.rows_per_s:,.0f}",
        "-" if job.valid_auc is None else f"{job.valid_auc:.4f}",
        "-" if job.left_s is None else bound + duration(job.left_s),
    )


def _watch(look: "Callable[[], Status]", *, screen: "Console") -> None:
    """Redraw the table every few seconds until Ctrl-C, which ends the command normally."""
    import time

    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from prime_bench.cli.output import print_text

    n_lines = max(1, screen.height - _LINES_AROUND)

    def drawn() -> Group:
        found = look()
        return Group(table_of(found, n_lines=n_lines), Text(summary(found)))

    with Live(drawn(), auto_refresh=False, screen=True, console=screen) as live:
        try:
            while True:
                time.sleep(_REFRESH_S)
                live.update(drawn(), refresh=True)
        except KeyboardInterrupt:
            pass
    print_text(summary(look()))
