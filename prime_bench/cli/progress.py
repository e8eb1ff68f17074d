"""Progress of `run` on stderr: a bar for all jobs, one for the job at work; needs a terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from prime_bench.schedule.backend import Event, Outcome
from prime_bench.schedule.plan import Plan


class Progress:
    """Takes the engine's events and outcomes; a context manager around the bars."""

    def __init__(self, plan: Plan) -> None:
        console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._names = {planned.job.id: str(planned.trial) for planned in plan.jobs if planned.job}
        self._all = self._bars.add_task("jobs", total=len(plan.to_run), note="")
        self._now = self._bars.add_task("", total=None, note="", visible=False)

    def event(self, event: Event) -> None:
        """Move the bar of the job at work."""
        name = self._names.get(str(event.get("job_id")), "")
        if event["event"] == "progress":
            self._bars.update(
                self._now,
                description=f"{name}, epoch {event['epoch']}",
                completed=event["rows"],
                total=event["rows_total"],
                note=f"{event['rows_per_s']:,.0f} rows/s" if event.get("rows_per_s") else "",
                visible=True,
            )
        elif event["event"] == "epoch":
            auc = event["valid_auc"]
            said = "not a number" if auc is None else f"{auc:.4f}"
            self._bars.update(self._now, note=f"validation AUC {said}")

    def outcome(self, outcome: Outcome) -> None:
        """Count a finished job and leave a line for it above the bars."""
        self._bars.advance(self._all)
        self._bars.update(self._now, visible=False)
        name = self._names.get(outcome.request.job.id, outcome.request.job.id)
        state = "skipped" if outcome.skipped else "done" if outcome.error is None else "failed"
        if not self._bars.disable:
            self._bars.console.print(f"{state}: {name}", highlight=False)

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
