"""The local engine: slots, each of which runs one job at a time in a worker process."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from prime_bench.base.errors import EnvironmentFault
from prime_bench.recipe.events import WorkerEvent
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.child import COMMAND, Child
from prime_bench.schedule.devices import CPU, Device
from prime_bench.schedule.engine import Outcome, Queue, by_record
from prime_bench.schedule.slots import Slots, chosen_slots, worker_variables
from prime_bench.settings.memory import MemoryNeed
from prime_bench.store.runs import Runs

_LOOK_AGAIN_S = 0.1


class _StopRequest:
    """Put into the messages by `stop`."""


Messages = SimpleQueue[WorkerEvent | Outcome | Exception | _StopRequest | None]
"""What slots tell the thread that runs the engine: events and outcomes of jobs, an error of the
engine itself, None when a slot has ended.
"""


class Slot(threading.Thread):
    """A thread that takes jobs from the queue and gives them to its worker, one at a time.

    A worker that has died is replaced. As a context manager it waits for the end of the thread.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        device: Device,
        variables: Mapping[str, str],
        jobs: Queue,
        messages: Messages,
        job_timeout_s: float | None,
    ) -> None:
        super().__init__(daemon=True)
        self._command = command
        self._device = device
        self._variables = variables
        self._jobs = jobs
        self._messages = messages
        self._job_timeout_s = job_timeout_s
        self._child: Child | None = None
        self._stopped = False

    def run(self) -> None:
        """Take jobs until the queue has no more. Called by `start`."""
        try:
            with contextlib.ExitStack() as stack:
                while (request := self._jobs.take(device=self._device.label)) is not None:
                    outcome = self._outcome(request, stack)
                    if outcome.out_of_memory:
                        stack.close()  # gives all memory of the worker back
                    final = self._jobs.settle(outcome)
                    for item in final:
                        self._messages.put(item)
                    if not final:
                        self._messages.put(
                            self._jobs.retry_event(outcome, device=self._device.label)
                        )
        except Exception as error:  # noqa: BLE001  # a bug in the engine: the caller's thread raises it
            self._messages.put(error)
        self._messages.put(None)

    def stop(self) -> None:
        """End the running job after its next validation, and start no other."""
        self._stopped = True
        if self._child is not None:
            self._child.terminate()

    def _outcome(self, request: JobRequest, stack: contextlib.ExitStack) -> Outcome:
        runs, job_id = Runs(Path(request.runs)), request.job.id
        if runs.done(job_id):
            return Outcome(request=request, state="skipped", why="another process did it")
        if self._child is None or not self._child.alive:
            stack.close()  # closes the pipes of the dead worker
            self._child = Child(self._command, variables=self._variables)
            stack.enter_context(self._child)
        if self._stopped:  # `stop` was called while the worker was being started
            return Outcome(request=request, state="interrupted", why="not started")
        outcome = self._child.do(
            request.model_copy(update={"device": self._device.name}),
            on_event=self._messages.put,
            timeout_s=self._job_timeout_s,
        )
        outcome = by_record(outcome, request, runs)
        if outcome.state == "failed":
            # The disk may be full, and the caller gets the outcome anyway.
            with contextlib.suppress(EnvironmentFault):
                runs.fail(job_id, outcome.why)
        return outcome

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the end of the thread; after an error or Ctrl-C, kill the worker."""
        if kind is not None:
            self._jobs.stop()
            while self.is_alive():
                # In a loop: the thread may be starting another worker.
                if self._child is not None:
                    self._child.kill()
                self.join(timeout=_LOOK_AGAIN_S)
        self.join()


class LocalEngine:
    """Runs jobs in worker processes on this machine.

    A worker does many jobs, so that imports and the opening of tables are paid for once.
    """

    def __init__(
        self,
        *,
        devices: Sequence[Device] = (CPU,),
        slots: int | None = 1,
        threads: int | None = 1,
        job_timeout_s: float | None = None,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        """Make an engine; no process is started yet.

        Args:
            devices: Devices to use, all of one kind.
            slots: Jobs at once on each device; None to choose, as `chosen_slots` does.
            threads: CPU threads of each job; None to choose.
            job_timeout_s: Seconds after which a job is killed; it has then failed.
            command: The command that starts a worker.
        """
        self.device, self.device_kind = devices[0], devices[0].kind
        self.devices, self._n_slots, self._threads = devices, slots, threads
        self._job_timeout_s = job_timeout_s
        self._command = command
        self._messages: Messages = SimpleQueue()

    def slots_for(self, needs: Sequence[MemoryNeed], *, n_jobs: int | None = None) -> Slots:
        """How many jobs will run at once, and with how many threads."""
        return chosen_slots(
            self.devices, needs, n_jobs=n_jobs, slots=self._n_slots, threads=self._threads
        )

    def run(
        self,
        queue: Queue,
        *,
        slots: Slots | None = None,
        on_event: Callable[[WorkerEvent], None],
    ) -> Iterator[Outcome]:
        """Run the jobs of the queue, and yield the final outcome of each when it ends.

        `on_event` is called in the caller's thread. Jobs are claimed by the workers, so that a
        claim ends with the process that writes to the job's folder.
        """
        layout = slots or self.slots_for(())
        shared = worker_variables(self.device_kind, on_each=layout.on_each)
        # In this order, so that few jobs are spread over all devices.
        places = [device for _ in range(layout.on_each) for device in self.devices]
        with contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(
                    Slot(
                        self._command,
                        device=device,
                        variables={**device.variables, **shared},
                        jobs=queue,
                        messages=self._messages,
                        job_timeout_s=self._job_timeout_s,
                    )
                )
                for device in places
            ]
            at_work = len(started)
            while at_work:
                item = self._messages.get()
                if item is None:
                    at_work -= 1
                elif isinstance(item, Exception):
                    raise item
                elif isinstance(item, Outcome):
                    yield item
                elif isinstance(item, _StopRequest):
                    queue.stop()
                    for slot in started:
                        slot.stop()
                else:
                    on_event(item)

    def stop(self) -> None:
        """Start no more jobs, and end the running ones after their next validation."""
        # Safe in a signal handler: `put` of a SimpleQueue takes no lock.
        self._messages.put(_StopRequest())
