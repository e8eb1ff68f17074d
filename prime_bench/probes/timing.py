"""Timing of several arms so that they can be compared on a machine whose speed drifts."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

import torch

from prime_bench.findings import ClockName

# Every arm does a tenth of its steps in turn: what slows the machine for a moment slows all arms.
_ROUNDS = 10

Step = Callable[[int], object]
"""Does step i, from 0, of an arm; what it returns is dropped."""


class Clock(Protocol):
    """Times work on one device."""

    @property
    def name(self) -> ClockName:
        """What a reader is told that times were taken with."""

    def time_ms(self, work: Callable[[], None]) -> float:
        """Milliseconds until the device has done the work."""


class WallClock:
    """For the CPU, which has done a step when the call returns."""

    name: ClockName = "wall clock"

    def time_ms(self, work: Callable[[], None]) -> float:
        """As said in `Clock`."""
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3


class CudaClock:
    """Events on the current stream, so that the wait for the host's news is no part of the time."""

    name: ClockName = "CUDA events"

    def time_ms(self, work: Callable[[], None]) -> float:
        """As said in `Clock`; idle time in which the host is behind is part of it."""
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
    """The clock of a device, which must be the current one."""
    return CudaClock() if device.type == "cuda" else WallClock()


def latencies_ms(
    arms: Sequence[Step], *, steps: int, warm_up_steps: int, clock: Clock, turn: int = 0
) -> list[float]:
    """One repetition: each arm's milliseconds a step, the median over rounds.

    All arms warm up first. In each of ten rounds every arm then does a tenth of its steps; who
    begins changes from round to round, and with `turn` from repetition to repetition.
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
