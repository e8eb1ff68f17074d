"""Progress of `run` on stderr: a bar for all jobs, one for each at work; needs a terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
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
        self._at_work: dict[str, TaskID] = {}

    def event(self, event: Event) -> None:
        """Move the bar of the job that the event is about."""
        job_id = str(event.get("job_id"))
        if event["event"] == "progress":
            if job_id not in self._at_work:
                self._at_work[job_id] = self._bars.add_task("", total=None, note="")
            self._bars.update(
                self._at_work[job_id],
                description=f"{self._names.get(job_id, job_id)}, epoch {event['epoch']}",
                completed=event["rows"],
                total=event["rows_total"],
                note=f"{event['rows_per_s']:,.0f} rows/s" if event.get("rows_per_s") else "",
            )
        elif event["event"] == "epoch" and job_id in self._at_work:
            auc = event["valid_auc"]
            said = "not a number" if auc is None else f"{auc:.4f}"
            self._bars.update(self._at_work[job_id], note=f"validation AUC {said}")

    def outcome(self, outcome: Outcome) -> None:
        """Count a finished job and leave a line for it above the bars."""
        job_id = outcome.request.job.id
        self._bars.advance(self._all)
        if job_id in self._at_work:
            self._bars.remove_task(self._at_work.pop(job_id))
        if not self._bars.disable:
            name = self._names.get(job_id, job_id)
            self._bars.console.print(f"{outcome.state}: {name}", highlight=False)

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
