"""The device of a job: which one it is, how it computes, and how much memory it has."""

import os
import platform
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from prime_bench.base.errors import EnvironmentFault
from prime_bench.plugins.interface import Plugin
from prime_bench.recipe.job import check_device
from prime_bench.settings.interface import Budget, TableShape

_CPU_INFO = Path("/proc/cpuinfo")


class NoDevice(EnvironmentFault):
    """The device does not exist here, neither for this job nor for any other."""


def resolve_device(name: str) -> torch.device:
    """The device that is called `auto` (CUDA if there is any, else the CPU), `cpu`, `cuda` or
    `cuda:<index>`.

    Raises UsageError for any other name and NoDevice for a device that does not exist here.
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
    """Set full float32 products (no TF32), cuDNN's deterministic kernels and `threads` CPU threads,
    and treat subnormal numbers as 0 on the CPU.

    Call it before torch starts its threads: a thread inherits the treatment of subnormal numbers
    from its creator.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def device_name(device: torch.device) -> str:
    """The device's name, as its vendor prints it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


_Function = TypeVar("_Function", bound=Callable[..., Any])


def require_compiler(device: torch.device) -> None:
    """Compile an addition on `device`. Raises EnvironmentFault if that fails."""
    try:
        # torch's own modules warn while they are imported, and a user cannot act on that.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled(_add_one, device=device)(torch.ones(2, device=device))
    except Exception as error:
        # Each part of torch's tool chain has its own errors, which share no base class.
        reason = next(line for line in str(error).splitlines() if not line.startswith("backend="))
        raise EnvironmentFault(
            f"training.compile: torch.compile does not work on {device.type}: {reason}",
            hint="install a C++ compiler, such as g++, or name yours in the variable CXX"
            if device.type == "cpu"
            else "install the triton that this torch build wants",
        ) from error


def compiled(function: _Function, *, device: torch.device) -> _Function:
    """Compile `function` for the shapes that it is called with, with CUDA graphs on CUDA.

    Random numbers come from torch's own generators, as without a compiler. The compiled function
    raises RuntimeError at torch's limit of recompilations, instead of running uncompiled from then
    on.
    """
    # torch.compile has no argument for this.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    made: Any = torch.compile(
        function,
        dynamic=False,
        options={"fallback_random": True, "triton.cudagraphs": device.type == "cuda"},
    )
    return cast(_Function, made)


def leave_out(plugin: Plugin | None) -> None:
    """Exclude the methods that `plugin.uncompiled` names from compilation."""
    disable: Any = torch.compiler.disable  # torch gives the function no types
    for name in () if plugin is None else plugin.uncompiled:
        setattr(plugin, name, disable(getattr(plugin, name)))


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


# A weight, its gradient, and Adam's two moments, in float32.
_BYTES_A_PARAMETER = 4 * 4
_GIB = 1 << 30
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """The sizes that decide how much memory a training run needs, before it reads a row."""

    table_rows: int
    """Embedding rows of all fields together."""
    width: int
    """Numbers in an embedding row."""
    parameters: int
    """Trainable parameters, embedding rows included."""
    batch_size: int

    @property
    def bytes(self) -> int:
        """Bytes of weights, gradients and Adam's two moments; activations come on top."""
        return _BYTES_A_PARAMETER * self.parameters

    def fault(self, device: torch.device) -> EnvironmentFault:
        """The error for a run that does not fit on `device`: its sizes, and what would fit."""
        total = device_bytes(device)
        table = _BYTES_A_PARAMETER * self.table_rows * self.width
        return EnvironmentFault(
            f"out of memory on {device} ({total / _GIB:.1f} GiB): the embedding table of"
            f" {self.table_rows:,} rows x {self.width} x 4 bytes takes {table / _GIB:.2f} GiB with"
            f" its gradient and Adam's two moments, all {self.parameters:,} parameters"
            f" {self.bytes / _GIB:.2f} GiB; a batch of {self.batch_size:,} rows comes on top;"
            f" {self._what_fits(total)}",
            hint="give a job the machine to itself (--slots 1), lower training.batch_size or"
            " training.embedding_dim, raise the data set's min_count, or take a larger device",
        )

    def _what_fits(self, total: int) -> str:
        rest = self.parameters - self.table_rows * self.width
        numbers = (total // _BYTES_A_PARAMETER) - rest
        if self.bytes <= total:
            return f"without the batch that fits into {total / _GIB:.1f} GiB that nothing else uses"
        if numbers < self.width:
            return "no table fits beside the other parameters"
        return (
            f"at this width at most {numbers // self.width:,} rows fit, with these rows a width of"
            f" at most {numbers // self.table_rows}"
        )


def memory_need(
    budget: Budget, shape: TableShape, *, embedding_dim: int, batch_size: int
) -> MemoryNeed:
    """The memory that a run of this budget, width and batch size needs."""
    return MemoryNeed(
        table_rows=shape.embedding_rows,
        width=embedding_dim,
        parameters=budget.backbone_parameters + budget.plugin_parameters,
        batch_size=batch_size,
    )


def device_bytes(device: torch.device) -> int:
    """Memory of a CUDA device; on the CPU, the memory that this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(physical, int(_GROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return physical  # there is no limit, or it cannot be read


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error is a failed allocation, on the CPU or a CUDA device."""
    # The CPU's allocator raises a plain RuntimeError.
    on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return on_cpu or isinstance(error, (MemoryError, torch.OutOfMemoryError))
