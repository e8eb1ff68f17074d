"""The local engine: a number of slots a device, each a child process that does one job after
another.

The parent never imports torch: a CUDA fault or the out-of-memory killer ends one job, not the run.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue

from prime_bench.schedule.backend import Event, Outcome
from prime_bench.schedule.child import COMMAND
from prime_bench.schedule.devices import CPU, Device
from prime_bench.schedule.queue import Queue
from prime_bench.schedule.slots import News, Slot

_STOP: Event = {"event": "stop"}


class LocalBackend:
    """Child processes that do many jobs each: imports and tables are paid for once."""

    def __init__(
        self,
        *,
        devices: Sequence[Device] = (CPU,),
        slots: int = 1,
        job_timeout_s: float | None = None,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        """`slots` are those of one device; a job that takes longer than `job_timeout_s` fails."""
        # Device by device, so that few jobs spread over all of them.
        self._slots = [device for _ in range(slots) for device in devices]
        self._job_timeout_s = job_timeout_s
        self._command = command
        self._news: News = SimpleQueue()

    def run(self, queue: Queue, *, on_event: Callable[[Event], None]) -> Iterator[Outcome]:
        """Yield each job's outcome as it ends; events come in the caller's thread.

        The worker itself claims its job, so a claim lives exactly as long as whoever may write.
        """
        with contextlib.ExitStack() as stack:
            slots = [
                stack.enter_context(
                    Slot(
                        self._command,
                        device=device,
                        jobs=queue,
                        news=self._news,
                        job_timeout_s=self._job_timeout_s,
                    )
                )
                for device in self._slots
            ]
            at_work = len(slots)
            while at_work:
                item = self._news.get()
                if item is None:
                    at_work -= 1
                elif isinstance(item, Exception):
                    raise item
                elif isinstance(item, Outcome):
                    yield item
                elif item is _STOP:
                    queue.stop()
                    for slot in slots:
                        slot.stop()
                else:
                    on_event(item)

    def stop(self) -> None:
        """Start nothing more and end the running jobs at their next checkpoint."""
        # The one thing that a signal handler may do here: this queue's `put` takes no lock.
        self._news.put(_STOP)
