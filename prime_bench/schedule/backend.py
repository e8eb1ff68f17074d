"""What every engine is: requests in, outcomes out, in any order."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from prime_bench.recipe.job import JobRequest

Event = Mapping[str, Any]
"""What a worker says of its job: {"event": "progress" | "epoch" | ..., "job_id": ...}."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended: with a record, or with a reason why there is none."""

    request: JobRequest
    error: str | None = None
    """One line; None for a job that is done."""
    skipped: bool = False
    """True for a job that another process had or did meanwhile."""


class Backend(Protocol):
    """An engine. Only `schedule.run` chooses one; nobody else asks which it is."""

    def run(
        self, requests: Iterable[JobRequest], *, on_event: Callable[[Event], None]
    ) -> Iterator[Outcome]:
        """Yield each job's outcome as it ends, in any order; never raise for a job that failed."""
