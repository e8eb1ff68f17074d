"""What every engine is: a queue of requests in, outcomes out, in any order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from prime_bench.recipe.job import JobRequest

if TYPE_CHECKING:
    from prime_bench.schedule.queue import Queue

Event = Mapping[str, Any]
"""What a worker says of its job: {"event": "progress" | "epoch" | ..., "job_id": ...}."""

End = Literal["done", "skipped", "failed", "interrupted", "not run"]
"""`skipped`: another process had or did the job meanwhile. `not run`: what it needs failed."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended."""

    request: JobRequest
    state: End = "done"
    why: str = ""
    """One line; empty for a job that is done."""


class Backend(Protocol):
    """An engine. Only `cli.run` chooses one; nobody else asks which it is."""

    def run(self, queue: "Queue", *, on_event: Callable[[Event], None]) -> Iterator[Outcome]:
        """Yield each job's final outcome as it ends; never raise for a job that failed.

        Requests are taken from the queue and their outcomes settled with it; an engine adds the
        device. An error or interrupt in the caller's code ends the engine's jobs at once.
        """

    def stop(self) -> None:
        """Start nothing more and end the running jobs at their next checkpoint; `run` then ends.

        May be called from a signal handler or another thread.
        """
