"""Events: what a worker reports while it does a job, and how they are written and read.

A worker writes one event a line on its stdout, as JSON; `event` names the type. The last event of a
job is `done`, `skipped`, `failed`, `interrupted` or `fault`; the others may come before it.

Where KEY_VARIABLE is set, each line begins with its value and a space. Whatever else gets into the
pipe, for example from a plug-in that writes to every descriptor, is then no event.
"""

from typing import Annotated, Literal

import pydantic

from prime_bench.base.characters import shortened
from prime_bench.base.frozen import Frozen
from prime_bench.findings import Score, Validation

KEY_VARIABLE = "PRIME_BENCH_EVENT_KEY"
MESSAGE_CHARACTERS = 2000
"""The longest message of an error that an event or a failure.json holds."""
_LARGE = 1 << 63  # larger integers cannot be converted to a float


def _message(text: object) -> object:
    """Cut the text, and escape lone surrogates, as in the name of a file that is not UTF-8; JSON
    has none.
    """
    if not isinstance(text, str):
        return text
    valid = text[:MESSAGE_CHARACTERS].encode(errors="backslashreplace").decode()
    return shortened(valid + text[MESSAGE_CHARACTERS:], MESSAGE_CHARACTERS)


Message = Annotated[str, pydantic.BeforeValidator(_message)]
"""The message of an error, which may quote anything; at most MESSAGE_CHARACTERS are kept."""


class EpochProgress(Frozen):
    """How far an epoch is. A probe reports its own work in the same way."""

    epoch: int = pydantic.Field(ge=1, lt=_LARGE)
    """From 1; a repetition for the probe `cost`, always 1 for the other probes."""
    rows: int = pydantic.Field(ge=1, lt=_LARGE)
    """Rows so far. The probe `gradients` counts fields instead."""
    rows_total: int = pydantic.Field(ge=1, lt=_LARGE)
    rows_per_s: float | None = pydantic.Field(default=None, gt=0)
    """Mean over the epoch so far; None for the probe `gradients`."""


class JobEvent(Frozen):
    """Base of the events of one job."""

    job_id: str


class ResumedEvent(JobEvent):
    """Training continues from the state that an earlier process has saved."""

    event: Literal["resumed"] = "resumed"
    epoch: int
    """The last epoch that the earlier process finished."""


class RestartedEvent(JobEvent):
    """Training starts from epoch 1, because the saved state cannot be used."""

    event: Literal["restarted"] = "restarted"
    reason: Message
    """Why the saved state cannot be used."""


class ProgressEvent(JobEvent):
    """The running epoch has advanced; sent at most twice a second."""

    event: Literal["progress"] = "progress"
    progress: EpochProgress


class EpochEvent(JobEvent):
    """An epoch has ended and the validation split was scored."""

    event: Literal["epoch"] = "epoch"
    validation: Validation


class DoneEvent(JobEvent):
    """The job's record is written."""

    event: Literal["done"] = "done"
    wall_s: float
    """Seconds of the whole job."""
    valid: Score | None = None
    """Scores of the best weights; None, as `test`, for a probe."""
    test: Score | None = None
    degenerate: str | None = None
    """Why the run is degenerate; None if it is not, and for a probe."""


class SkippedEvent(JobEvent):
    """Another process has the job or has done it."""

    event: Literal["skipped"] = "skipped"


class FailedEvent(Frozen):
    """The job has failed; its failure.json has the traceback."""

    event: Literal["failed"] = "failed"
    job_id: str | None
    """None if the worker could not read the request."""
    error: Message
    """One line."""
    out_of_memory: bool = False
    """Whether memory did not suffice."""
    machine: bool = False
    """Whether the machine is at fault (its disk, permissions, or copy of the data), so that the job
    may succeed on another.
    """


class InterruptedEvent(JobEvent):
    """Training has stopped between two epochs, as asked; the state after the last is saved."""

    event: Literal["interrupted"] = "interrupted"


class FaultEvent(JobEvent):
    """The worker can do no job at all, because its device is missing. It ends with `exit_code`."""

    event: Literal["fault"] = "fault"
    error: Message
    hint: Message
    exit_code: int


class CheckedEvent(Frozen):
    """The answer to a `MachineCheck`: what is wrong here for its jobs, and what would do them."""

    event: Literal["checked"] = "checked"
    faults: list[tuple[Message, Message]]
    """What is wrong, and what to do. Empty if the machine can do the jobs."""
    torch: str
    """Version of torch, with its build."""
    device: str
    """Name of the device, as its vendor prints it; empty where it is missing."""
    gpu_bytes: int | None = None
    """Memory of the GPU; None for a CPU, and where it is missing."""


class StartedEvent(JobEvent):
    """The job was given to a worker. Sent by an engine, not by a worker."""

    event: Literal["started"] = "started"
    where: str
    """The machine or device, in a few words."""


class MachineEvent(Frozen):
    """What has become of a machine of a cluster. Sent by an engine."""

    event: Literal["machine"] = "machine"
    where: str
    """The machine, in a few words."""
    state: Literal["waited for", "set aside", "back", "lost", "sent a table", "without a node"]
    """`waited for`: others use it. `set aside`: it takes no jobs for now. `without a node`: it is a
    cluster that has none yet that could take jobs."""
    why: Message = ""
    """What is wrong; one line."""
    hint: Message = ""
    """What to do; may be empty."""


class RetryEvent(JobEvent):
    """The job has failed and will be tried again. Sent by an engine, not by a worker."""

    event: Literal["retry"] = "retry"
    error: Message
    """One line."""
    device: str | None = None
    """The device that ran out of memory, as `--device` calls it, and has fewer jobs from now on;
    None for any other failure."""
    at_once: int | None = None
    """How many jobs run at once there from now on; None for any other failure."""


WorkerEvent = Annotated[
    ResumedEvent
    | RestartedEvent
    | ProgressEvent
    | EpochEvent
    | DoneEvent
    | SkippedEvent
    | FailedEvent
    | InterruptedEvent
    | FaultEvent
    | CheckedEvent
    | StartedEvent
    | MachineEvent
    | RetryEvent,
    pydantic.Field(discriminator="event"),
]
"""Any event; `event` tells which."""

_ADAPTER: pydantic.TypeAdapter[WorkerEvent] = pydantic.TypeAdapter(WorkerEvent)


def write_event(event: WorkerEvent, *, key: str = "") -> str:
    """Return the event as one line, with its newline: JSON, after the key if there is one."""
    return f"{key} {event.model_dump_json()}\n".lstrip(" ")


def read_event(line: str, *, key: str = "") -> WorkerEvent | None:
    """Parse a line of a worker's output; None if it is not an event, or begins with another key."""
    found, _, text = line.partition(" ") if key else ("", "", line)
    if found != key:
        return None
    try:
        return _ADAPTER.validate_json(text)
    except pydantic.ValidationError:
        return None
