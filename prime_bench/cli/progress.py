"""Progress of `run` on stderr: a line for each job that ends; in a terminal a bar for all jobs and
one for each at work, elsewhere a line a minute in which none ends.
"""

import time
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column

from prime_bench.base.characters import visible
from prime_bench.base.words import counted
from prime_bench.cli.output import LINE_EVERY_S, console, duration
from prime_bench.recipe.events import (
    DoneEvent,
    EpochEvent,
    MachineEvent,
    ProgressEvent,
    RetryEvent,
    StartedEvent,
    WorkerEvent,
)
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.plan import Plan

_BAR_WIDTH = 10
_MOST_NAMED = 4


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
        self._n_failed = 0
        self._at_work: dict[str, TaskID] = {}
        self._most_at_work = 1
        self._done: dict[str, DoneEvent] = {}
        self._where: dict[str, str] = {}
        self._line_s = time.monotonic()
        # Any other failure that is tried again needs no line.
        self._said: set[tuple[str | None, int | None]] = {(None, None)}

    def event(self, event: WorkerEvent) -> None:
        """Update the bar of the event's job, and tell what has happened to machines and devices."""
        if isinstance(event, StartedEvent):
            self._where[event.job_id] = visible(event.where)
        elif isinstance(event, MachineEvent):
            self._tell_of_machine(event)
        elif isinstance(event, ProgressEvent):
            job_id, progress = event.job_id, event.progress
            if job_id not in self._at_work:
                self._at_work[job_id] = self._bars.add_task("", total=None, note="")
                self._most_at_work = max(self._most_at_work, len(self._at_work))
            self._bars.update(
                self._at_work[job_id],
                description=f"epoch {progress.epoch}: {self._place_and_name(job_id)}",
                completed=progress.rows,
                total=progress.rows_total,
                note=f"{progress.rows_per_s:,.0f} rows/s" if progress.rows_per_s else "",
            )
        elif isinstance(event, EpochEvent) and event.job_id in self._at_work:
            auc = _shown(event.validation.valid_auc)
            self._bars.update(self._at_work[event.job_id], note=f"AUC {auc}")
        elif isinstance(event, DoneEvent):
            self._done[event.job_id] = event
        elif isinstance(event, RetryEvent) and (event.device, event.at_once) not in self._said:
            self._said.add((event.device, event.at_once))
            # Also where there are no bars.
            self._bars.console.print(
                f"out of memory on {event.device}: the run goes on with at most {event.at_once} "
                f"jobs at once there ({visible(event.error)})",
                soft_wrap=True,
            )
        self._tell_how_far()

    def _place_and_name(self, job_id: str) -> str:
        where = self._where.get(job_id)
        return f"{self._names.get(job_id, job_id)}{f' on {where}' if where else ''}"

    def _tell_of_machine(self, event: MachineEvent) -> None:
        """Leave a line for a machine that was lost, set aside, or is back, and what to do."""
        state = {
            "waited for": "the run waits for free room",
            "set aside": "takes no jobs for now",
            "back": "takes jobs again",
            "lost": "is lost, and its jobs go on elsewhere",
            "sent a table": "is sent a table that it lacks",
            "without a node": "no node can take a job, the run waits for one",
        }[event.state]
        why = f": {visible(event.why)}" if event.why else ""
        self._bars.console.print(f"{visible(event.where)}: {state}{why}", soft_wrap=True)
        if event.hint:
            self._bars.console.print(f"  hint: {visible(event.hint)}", soft_wrap=True)

    def _tell_how_far(self) -> None:
        """Without a terminal, leave a line a minute with the jobs that run and where."""
        now = time.monotonic()
        if not self._bars.disable or now - self._line_s < LINE_EVERY_S:
            return
        self._line_s = now
        running = [
            str(task.description) for task in self._bars.tasks if task.id in self._at_work.values()
        ]
        more = f" and {len(running) - _MOST_NAMED} more" if len(running) > _MOST_NAMED else ""
        shown = "; ".join(running[:_MOST_NAMED])
        now_running = f"; running: {shown}{more}" if running else ""
        self._bars.console.print(
            f"ended: {self._n_ended} of {counted(self._n_jobs, 'job')}{now_running}", soft_wrap=True
        )

    def outcome(self, outcome: Outcome) -> None:
        """Count a job that has ended, and leave a line for it above the bars or in the log.

        A job that was stopped is not counted, since the next run continues it.
        """
        job_id = outcome.request.job.id
        self._n_ended += outcome.state != "interrupted"
        self._n_failed += outcome.state == "failed"
        failed = f", {self._n_failed} failed" if self._n_failed else ""
        self._bars.update(
            self._all, completed=self._n_ended, note=f"{self._n_ended}/{self._n_jobs}{failed}"
        )
        if job_id in self._at_work:
            self._bars.remove_task(self._at_work.pop(job_id))
        line = f"{outcome.state}: {self._place_and_name(job_id)}{self._said_of(outcome)}"
        if self._bars.disable:
            line += (
                f"; {self._n_ended} of {counted(self._n_jobs, 'job')}{failed}{self._time_left()}"
            )
        self._bars.console.print(line, soft_wrap=True)
        self._where.pop(job_id, None)
        self._line_s = time.monotonic()

    def _said_of(self, outcome: Outcome) -> str:
        """Scores and time of a job that is done, or why it is not."""
        if outcome.state != "done":
            return f": {visible(outcome.why)}" if outcome.why else ""
        done = self._done.get(outcome.request.job.id)
        if done is None:
            return ""
        test = done.test
        scores = (
            "" if test is None else f"test AUC {_shown(test.auc)}, LogLoss {_shown(test.logloss)}, "
        )
        degenerate = f", degenerate: {visible(done.degenerate)}" if done.degenerate else ""
        return f": {scores}in {duration(done.wall_s)}{degenerate}"

    def _time_left(self) -> str:
        """How long the jobs that have not ended would take, with as many at once as before, if each
        took the mean time of those that are done.
        """
        n_left = self._n_jobs - self._n_ended
        if not self._done or not n_left:
            return ""
        mean_s = sum(done.wall_s for done in self._done.values()) / len(self._done)
        return f", about {duration(mean_s * n_left / min(self._most_at_work, n_left))} left"

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


def _shown(score: float | None) -> str:
    return "not a number" if score is None else f"{score:.4f}"
