"""Which device a job runs on, and the arithmetic that every job is promised."""

import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from prime_bench.base.errors import EnvironmentFault
from prime_bench.plugins.interface import Plugin
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


_Function = TypeVar("_Function", bound=Callable[..., Any])


def require_compiler(device: torch.device) -> None:
    """Compile an addition. Raises EnvironmentFault where that does not work on `device`."""
    try:
        # Warnings of torch's own modules, as they are imported, are nothing for a user to act on.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled(_add_one, device=device)(torch.ones(2, device=device))
    except Exception as error:
        # Each part of torch's tool chain has errors of its own, without a base class.
        reason = next(line for line in str(error).splitlines() if not line.startswith("backend="))
        raise EnvironmentFault(
            f"training.compile: torch.compile does not work on {device.type}: {reason}",
            hint="install a C++ compiler, such as g++, or name yours in the variable CXX"
            if device.type == "cpu"
            else "install the triton that this torch build wants",
        ) from error


def compiled(function: _Function, *, device: torch.device) -> _Function:
    """`function` compiled for the shapes that it is called with, with CUDA graphs on CUDA.

    Random numbers stay those of torch's own generators, as without a compiler. Where torch would
    give up after a number of compilations and go on without, it raises RuntimeError.
    """
    options: dict[str, Any] = {"fallback_random": True, "triton.cudagraphs": device.type == "cuda"}
    # No argument of torch.compile says so.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    made: Any = torch.compile(function, dynamic=False, options=options)
    return cast(_Function, made)


def leave_out(plugin: Plugin | None) -> None:
    """Let the methods that `plugin` names run as they are, wherever they are called."""
    disable: Any = torch.compiler.disable  # torch gives the function no types
    for name in () if plugin is None else plugin.uncompiled:
        setattr(plugin, name, disable(getattr(plugin, name)))


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1
