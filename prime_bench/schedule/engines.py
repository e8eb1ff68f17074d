"""The engines by name, each with the devices on which its jobs run."""

from dataclasses import dataclass
from typing import Literal

from prime_bench.schedule.devices import cores, find_devices
from prime_bench.schedule.engine import Backend
from prime_bench.schedule.local import LocalBackend
from prime_bench.store.record import DeviceKind


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that is ready to run jobs."""

    backend: Backend
    device_kind: DeviceKind
    """Of the devices on which its jobs run."""
    threads: int
    """CPU threads of one operation in each job."""


def open_engine(
    name: Literal["local", "ray"] = "local",
    *,
    device: str = "auto",
    slots: int = 1,
    threads: int | None = None,
    job_timeout_s: float | None = None,
    address: str = "auto",
) -> Engine:
    """Find the devices, or connect to the cluster, on which jobs are to run.

    Args:
        name: `local` for child processes on this machine, `ray` for tasks of a Ray cluster.
        device: `cpu`, `cuda` (all there are), or a list such as `cuda:0,cuda:1`; `auto` is cuda
            where there is one.
        slots: Jobs at once on each device.
        threads: CPU threads of a job. None: the slots share the cores; 1 with Ray.
        job_timeout_s: Seconds after which a job is ended; it counts as failed.
        address: Of the Ray cluster: HOST:PORT, or `auto` for the one on this machine.

    Raises:
        UsageError: `device` is not a device's name.
        EnvironmentFault: The device or the cluster is not there.
    """
    if name == "ray":
        from prime_bench.schedule.cluster import RayBackend

        cluster = RayBackend(
            address=address,
            device=device,
            slots=slots,
            threads=threads or 1,
            job_timeout_s=job_timeout_s,
        )
        return Engine(backend=cluster, device_kind=cluster.device_kind, threads=threads or 1)
    devices = find_devices(device)
    local = LocalBackend(devices=devices, slots=slots, job_timeout_s=job_timeout_s)
    share = max(1, cores() // (slots * len(devices)))
    return Engine(backend=local, device_kind=devices[0].kind, threads=threads or share)


def measuring_engine(device: str) -> Engine:
    """Run one job at a time on the first of the devices, with every core, to measure times."""
    here = find_devices(device)[0]
    return Engine(backend=LocalBackend(devices=[here]), device_kind=here.kind, threads=cores())
