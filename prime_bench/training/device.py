"""Which device a job runs on, and the arithmetic that every job is promised."""

import platform
from pathlib import Path

import torch

from prime_bench.base.errors import EnvironmentFault
from prime_bench.recipe.job import check_device

_CPU_INFO = Path("/proc/cpuinfo")


class NoDevice(EnvironmentFault):
    """The device is not there, for this job or any other."""


def resolve_device(name: str) -> torch.device:
    """`auto` (cuda where there is one), `cpu`, `cuda` or `cuda:<index>`.

    Raises UsageError for another text, NoDevice for a device that is not there.
    """
    check_device(name)
    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and n_devices == 0):
        return torch.device("cpu")
    number = int(name.partition(":")[2] or 0)
    if number >= n_devices:
        raise NoDevice(
            f"device {name} is not there: torch {torch.__version__} sees {n_devices} CUDA devices",
            hint="use `auto` or `cpu`, or install a torch build for this machine's driver",
        )
    return torch.device("cuda", number)


def fix_arithmetic(*, threads: int) -> None:
    """Full float32 products (no TF32), cuDNN's deterministic kernels, `threads` CPU threads, and
    subnormal numbers as zeros on the CPU.

    To be called before torch's threads are there: they take the last over from the caller when they
    are made.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def device_name(device: torch.device) -> str:
    """The device as its vendor prints it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
