"""What this machine gives to a process: cores, memory, and whether there is an NVIDIA driver."""

import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.files import pins

_CPU_INFO = Path("/proc/cpuinfo")
_OWN_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# WSL's /dev/dxg is there with graphics of any vendor; its libcuda is not.
_NVIDIA_DRIVERS = (Path("/dev/nvidiactl"), Path("/usr/lib/wsl/lib/libcuda.so.1"))
# Options of glibc's mallopt (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _INT_MAX = -1, -4, (1 << 31) - 1
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def cores() -> int:
    """Return the number of CPU cores that this process may keep busy: those of its affinity, and no
    more than the quotas of its control groups (a container's limit) allow. At least 1.
    """
    # Not every system has sched_getaffinity.
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas = [_quota(text) for text in _group_files("cpu.max")]
    return max(1, int(min([count or 1, *(quota for quota in quotas if quota is not None)])))


def memory_bytes() -> int:
    """Return the memory of this machine, or what its control groups let this process have."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [int(text) for text in _group_files("memory.max") if text.isdigit()]
    return min([physical, *limits])


def keep_freed_memory() -> None:
    """Have the C library keep the memory that this process frees, for its next allocations, until
    `return_freed_memory`. Only glibc does.

    It would otherwise return large blocks to the system, so that the tensors of each training step
    begin with a page fault for every 4 KiB: up to a fifth of the CPU time of a step.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_TRIM_THRESHOLD, _INT_MAX)
        set_option(_M_MMAP_MAX, 0)


def return_freed_memory() -> None:
    """Return memory to the system that `keep_freed_memory` has kept."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def cpu_name() -> str:
    """Return the name of the CPU, as its vendor prints it."""
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def has_nvidia_driver() -> bool:
    """Whether the driver of an NVIDIA GPU is loaded."""
    return any(path.exists() for path in _NVIDIA_DRIVERS)


def unused_gpu(*, torch: str, cuda: str | None, warning: str) -> EnvironmentFault | None:
    """Return the error for a torch that sees no GPU although the machine has a driver for one; None
    where there is no driver, or where `CUDA_VISIBLE_DEVICES` hides all GPUs.

    Args:
        torch: Version of torch.
        cuda: The version of CUDA that torch was built for; None for a build without it.
        warning: What torch said when it looked for devices; may be empty.
    """
    if not has_nvidia_driver() or os.environ.get(_VISIBLE, "0").strip() in ("", "-1"):
        return None
    meant = "with `--device cpu` it runs on the CPU"
    if cuda is None:
        return EnvironmentFault(
            f"this machine has an NVIDIA driver, but torch {torch} is built without CUDA",
            # `===`, since 2.13.0+cpu satisfies `==2.13.0` and would stay.
            hint=f"install the build for CUDA, `pip install torch==={pins()['torch']}`; {meant}",
        )
    said = f": {warning}" if warning else ""
    if "too old" in warning:
        return EnvironmentFault(
            f"the NVIDIA driver of this machine is too old for torch {torch} (CUDA {cuda}){said}",
            hint=f"install a driver for CUDA {cuda} or newer (`nvidia-smi` prints which CUDA the"
            f" driver has), or a torch build for the driver's CUDA; {meant}",
        )
    return EnvironmentFault(
        f"this machine has an NVIDIA driver, but torch {torch} (CUDA {cuda}) sees no GPU{said}",
        hint=f"`nvidia-smi` tells whether the driver works; {meant}",
    )


def _group_files(name: str) -> Iterator[str]:
    """The content of a file of this process's control group, and of each one around it."""
    try:
        lines = _OWN_GROUP.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    # In a container the path may be one of the host, which is not there; its group is the top one.
    place = _GROUPS / own.strip("/")
    places = [part for part in (place, *place.parents) if part.is_relative_to(_GROUPS)]
    for place in places:
        try:
            yield (place / name).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue  # there is no such limit, or it cannot be read


def _quota(text: str) -> float | None:
    """The cores that a line of `cpu.max` allows: 1.5 for `150000 100000`, None for `max`."""
    quota, _, period = text.partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None
