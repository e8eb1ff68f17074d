"""How many jobs run at once on each device, and with how many CPU threads."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from prime_bench.base.machine import cores, memory_bytes
from prime_bench.base.words import counted
from prime_bench.schedule.devices import Device, mps_control
from prime_bench.settings.memory import JOBS_ON_DEVICE, MemoryNeed
from prime_bench.store.record import DeviceKind

_THREADS = "OMP_NUM_THREADS"
# torch reads the first, in every version, and so does not look at the second where it is set.
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# The rest is for the driver, the operating system, and what the counts leave out.
_USABLE = 0.9
MPS_CLIENTS = 48
"""NVIDIA's limit of processes that share a GPU through MPS, from the Volta architecture on."""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many jobs run at once, and with how many CPU threads."""

    on_each: int
    """Jobs at once on each device."""
    total: int
    """Jobs at once on all devices."""
    threads: int
    """CPU threads of each job."""
    bound: str = "as asked for"
    """What the number of jobs depends on, in a few words."""

    def __str__(self) -> str:
        jobs, threads = counted(self.total, "job"), counted(self.threads, "CPU thread")
        return f"{jobs} at once, {threads} each ({self.bound})"


def worker_variables(kind: DeviceKind, *, on_each: int) -> dict[str, str]:
    """Return environment variables of a worker on a kind of device that so many jobs share."""
    variables = {JOBS_ON_DEVICE: str(on_each)}
    if kind == "cuda" and not any(name in os.environ for name in _ALLOCATOR):
        # Segments that can grow leave fewer gaps, so that more jobs fit.
        variables[_ALLOCATOR[0]] = "expandable_segments:True"
    return variables


def chosen_slots(
    devices: Sequence[Device],
    needs: Sequence[MemoryNeed],
    *,
    n_jobs: int | None = None,
    slots: int | None = None,
    threads: int | None = None,
) -> Slots:
    """Choose how many jobs run at once.

    On CPUs a core a job, with one thread each: two threads of one operation wait for each other at
    every step, which costs most where other programs run. On GPUs as many as their memory holds,
    and no more than there are cores, since each keeps a thread busy. Memory counts as a whole, not
    by what is free at this moment.

    Args:
        devices: Devices, all of one kind.
        needs: What the jobs need; the largest counts. May be empty where nothing is known.
        n_jobs: Number of jobs; None if it is not known.
        slots: Jobs at once on each device; None to choose.
        threads: CPU threads of a job; None for `OMP_NUM_THREADS`, or to choose.
    """
    threads = threads or _asked_threads()
    if slots is not None:
        total = slots * len(devices)
        return Slots(on_each=slots, total=total, threads=threads or max(1, cores() // total))
    bounds = {"a core each" if not threads else "by cores": cores() // (threads or 1)}
    if needs:
        host = max(need.host_bytes for need in needs)
        bounds["by memory"] = int(_USABLE * memory_bytes() / host)
    on_each = {why: count // len(devices) for why, count in bounds.items()}
    gpu_bytes = min((device.memory_bytes or 0 for device in devices), default=0)
    if needs and gpu_bytes:
        on_each["by memory of the device"] = jobs_in_memory(needs, gpu_bytes)
    if devices[0].kind == "cuda" and mps_control() is not None:
        on_each["by MPS"] = MPS_CLIENTS
    if n_jobs is not None:
        on_each["a job each"] = -(-n_jobs // len(devices))
    why = min(on_each, key=lambda why: on_each[why])
    number = max(1, on_each[why])
    total = number * len(devices)
    if not threads:
        # On a CPU always the same, so that the jobs of a recipe, and the tries of a job, agree.
        threads = 1 if devices[0].kind == "cpu" else max(1, cores() // total)
    return Slots(on_each=number, total=total, threads=threads, bound=why)


def jobs_in_memory(needs: Sequence[MemoryNeed], gpu_bytes: int) -> int:
    """How many of the largest job the memory of a GPU holds; 1 where nothing is known of them."""
    if not needs:
        return 1
    return int(_USABLE * gpu_bytes / max(need.gpu_bytes(gpu_bytes) for need in needs))


def _asked_threads() -> int | None:
    """The number in `OMP_NUM_THREADS`, the first of a list, which has one for each level of nested
    threads; None if there is none.
    """
    first = os.environ.get(_THREADS, "").partition(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else None
