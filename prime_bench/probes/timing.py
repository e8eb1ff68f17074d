"""How arms are timed, so that they can be compared on a machine whose speed drifts."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

import torch

from prime_bench.findings import ClockName

# In a round each arm does a tenth of its steps, so that a slow moment of the machine affects all.
_ROUNDS = 10

Step = Callable[[int], object]
"""Does step i, counted from 0, of an arm. The return value is ignored."""


class Clock(Protocol):
    """Times work on one device."""

    @property
    def name(self) -> ClockName:
        """The name of the clock in reports."""

    def time_ms(self, work: Callable[[], None]) -> float:
        """Do the work and wait for the device. Returns the milliseconds that this took."""


class WallClock:
    """The clock for the CPU, where a step is done when its call returns."""

    name: ClockName = "wall clock"

    def time_ms(self, work: Callable[[], None]) -> float:
        """Milliseconds that the work took."""
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3


class CudaClock:
    """CUDA events on the current stream: the time between the device's start and end of the work,
    without the wait for the host to notice the end.
    """

    name: ClockName = "CUDA events"

    def time_ms(self, work: Callable[[], None]) -> float:
        """Milliseconds that the work took. Includes idle time in which the device waits for the
        host.
        """
        torch.cuda.synchronize()
        start, stop = _event(), _event()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def clock_for(device: torch.device) -> Clock:
    """The clock of a device. A CUDA device must be torch's current one."""
    return CudaClock() if device.type == "cuda" else WallClock()


def latencies_ms(
    arms: Sequence[Step], *, steps: int, warm_up_steps: int, clock: Clock, turn: int = 0
) -> list[float]:
    """Time one repetition. Returns each arm's milliseconds a step, the median over rounds.

    All arms warm up first. Then, in each of ten rounds, every arm does a tenth of its steps. The
    arm that starts changes from round to round, and with `turn` from repetition to repetition.
    """
    for arm in arms:
        _steps(arm, 0, warm_up_steps)()
    rounds = min(_ROUNDS, steps)
    found: list[list[float]] = [[] for _ in arms]
    for number in range(rounds):
        start, stop = (warm_up_steps + (number + end) * steps // rounds for end in (0, 1))
        for place in range(len(arms)):
            index = (place + number + turn) % len(arms)
            taken_ms = clock.time_ms(_steps(arms[index], start, stop))
            found[index].append(taken_ms / (stop - start))
    return [median(times) for times in found]


def _steps(arm: Step, start: int, stop: int) -> Callable[[], None]:
    def work() -> None:
        for number in range(start, stop):
            arm(number)

    return work
