"""The device of a job: which one it is, how it computes, and how much memory it has."""

import os
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import torch

from prime_bench.base.characters import said
from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.machine import cpu_name, memory_bytes, unused_gpu
from prime_bench.plugins.interface import Plugin
from prime_bench.recipe.job import check_device
from prime_bench.settings.memory import says_out_of_memory


class NoDevice(EnvironmentFault):
    """The device does not exist here, neither for this job nor for any other."""


def resolve_device(name: str) -> torch.device:
    """The device that is called `auto` (CUDA if there is any, else the CPU), `cpu`, `cuda` or
    `cuda:<index>`. A CUDA device becomes the current one.

    Raises UsageError for any other name, and NoDevice for a device that does not exist here and for
    `auto` where a driver is there that torch cannot use.
    """
    check_device(name)
    if name == "cpu":
        return torch.device("cpu")
    n_devices, warning = cuda_devices()
    if n_devices == 0:
        unused = unused_gpu(torch=torch.__version__, cuda=torch.version.cuda, warning=warning)
        if unused is not None:
            raise NoDevice(unused.message, hint=unused.hint)
        if name == "auto":
            return torch.device("cpu")
    number = int(name.partition(":")[2] or 0)
    if number >= n_devices:
        raise NoDevice(
            f"device {name} is not there: torch {torch.__version__} sees {n_devices} CUDA devices",
            hint="use `auto` or `cpu`, or install a torch build for this machine's driver",
        )
    device = torch.device("cuda", number)
    # Streams, graphs and libraries that are not told a device use the current one.
    torch.cuda.set_device(device)
    return device


def cuda_devices() -> tuple[int, str]:
    """How many CUDA devices torch sees, and what it warns of while it looks for them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return count, " ".join(str(warning.message).splitlines()[0] for warning in caught)


def fix_arithmetic(*, threads: int, matmul: Literal["float32", "tf32"] = "float32") -> None:
    """Set the precision of matrix products (`TrainSpec.matmul`), cuDNN's deterministic kernels and
    `threads` CPU threads, and treat subnormal numbers as 0 on the CPU.

    Call it before torch starts its threads: a thread inherits the treatment of subnormal numbers
    from its creator.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    # The variable would overrule the precision, which is part of a job's identity.
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    torch.set_float32_matmul_precision("highest" if matmul == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def device_name(device: torch.device) -> str:
    """The device's name, as its vendor prints it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()


_Function = TypeVar("_Function", bound=Callable[..., Any])


def require_compiler(device: torch.device) -> None:
    """Compile an addition on `device`. Raises EnvironmentFault if that fails."""
    try:
        # torch's own modules warn while they are imported, and a user cannot act on that.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled(_add_one)(torch.ones(2, device=device))
    except Exception as error:
        # Each part of torch's tool chain has its own errors, which share no base class.
        reason = next(line for line in str(error).splitlines() if not line.startswith("backend="))
        raise EnvironmentFault(
            f"training.compile: torch.compile does not work on {device.type}: {reason}",
            hint="install a C++ compiler, such as g++, or name yours in the variable CXX"
            if device.type == "cpu"
            else "install the triton that this torch build wants",
        ) from error


def compiled(function: _Function) -> _Function:
    """Compile `function` for the shapes that it is called with.

    Random numbers come from torch's own generators, as without a compiler. No kernel is chosen by
    timing it, so that two processes choose the same ones. The compiled function raises RuntimeError
    at torch's limit of recompilations, instead of running uncompiled from then on.
    """
    # torch.compile has no argument for this.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    made: Any = torch.compile(
        function,
        dynamic=False,
        # A whole step becomes one CUDA graph elsewhere (`training.graph`).
        options={"fallback_random": True, "triton.cudagraphs": False, **_fixed_choices()},
    )
    return cast(_Function, made)


def _fixed_choices() -> dict[str, bool]:
    """Options of torch's compiler with which it times no kernel to choose one, as far as this
    version of torch has them.
    """
    wanted = {
        "deterministic": True,
        "triton.autotune_pointwise": False,
        "shape_padding": False,
    }
    known: Any = torch._inductor.list_options()
    return {name: value for name, value in wanted.items() if name in known}


def leave_out(plugin: Plugin | None) -> None:
    """Exclude the methods that `plugin.uncompiled` names from compilation."""
    disable: Any = torch.compiler.disable  # torch gives the function no types
    for name in () if plugin is None else plugin.uncompiled:
        setattr(plugin, name, disable(getattr(plugin, name)))


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def device_bytes(device: torch.device) -> int:
    """Memory of a CUDA device; on the CPU, the memory that this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return memory_bytes()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error, or one that it was raised from, is a failed allocation, on the CPU or a
    CUDA device. Only torch's allocator on a GPU has a type of its own for it.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (MemoryError, torch.OutOfMemoryError)):
            return True
        if isinstance(seen, (RuntimeError, OSError)) and says_out_of_memory(said(seen)):
            return True
        seen = seen.__cause__
    return False
