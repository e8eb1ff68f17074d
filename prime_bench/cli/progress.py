"""Progress of `run` on stderr: a bar for all jobs, one for each at work; needs a terminal."""

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column

from prime_bench.base.characters import visible
from prime_bench.cli.output import console
from prime_bench.recipe.events import EpochEvent, ProgressEvent, RetryEvent, WorkerEvent
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.plan import Plan

_BAR_WIDTH = 10


class RunProgress:
    """Takes the engine's events and outcomes; a context manager around the bars."""

    def __init__(self, plan: Plan) -> None:
        screen = console(stderr=True)
        self._bars = Bars(
            # The one column that gives way on a narrow screen.
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=_BAR_WIDTH),
            TextColumn("{task.fields[note]}", markup=False, justify="right"),
            TimeRemainingColumn(compact=True),
            console=screen,
            expand=True,
            disable=not screen.is_terminal,
        )
        self._names = {
            planned.job.id: visible(str(planned.job_spec)) for planned in plan.jobs if planned.job
        }
        self._n_jobs, self._n_ended = len(plan.to_run), 0
        self._all = self._bars.add_task("jobs", total=self._n_jobs, note=f"0/{self._n_jobs}")
        self._at_work: dict[str, TaskID] = {}
        # Any other failure that is tried again needs no line.
        self._said: set[tuple[str | None, int | None]] = {(None, None)}

    def event(self, event: WorkerEvent) -> None:
        """Update the bar of the event's job, and tell once that fewer jobs run on a device."""
        if isinstance(event, ProgressEvent):
            job_id, progress = event.job_id, event.progress
            if job_id not in self._at_work:
                self._at_work[job_id] = self._bars.add_task("", total=None, note="")
            self._bars.update(
                self._at_work[job_id],
                description=f"epoch {progress.epoch}: {self._names.get(job_id, job_id)}",
                completed=progress.rows,
                total=progress.rows_total,
                note=f"{progress.rows_per_s:,.0f} rows/s" if progress.rows_per_s else "",
            )
        elif isinstance(event, EpochEvent) and event.job_id in self._at_work:
            auc = event.validation.valid_auc
            shown = "not a number" if auc is None else f"{auc:.4f}"
            self._bars.update(self._at_work[event.job_id], note=f"AUC {shown}")
        elif isinstance(event, RetryEvent) and (event.device, event.at_once) not in self._said:
            self._said.add((event.device, event.at_once))
            # Also where there are no bars.
            self._bars.console.print(
                f"out of memory on {event.device}: the run goes on with at most {event.at_once} "
                f"jobs at once there ({visible(event.error)})",
                soft_wrap=True,
            )

    def outcome(self, outcome: Outcome) -> None:
        """Count a finished job and leave a line for it above the bars."""
        job_id = outcome.request.job.id
        self._n_ended += 1
        self._bars.update(
            self._all, completed=self._n_ended, note=f"{self._n_ended}/{self._n_jobs}"
        )
        if job_id in self._at_work:
            self._bars.remove_task(self._at_work.pop(job_id))
        if not self._bars.disable:
            name = self._names.get(job_id, job_id)
            self._bars.console.print(f"{outcome.state}: {name}")

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
