"""`compile = true`: parts of a step through torch.compile, or an error, never something slower."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from prime_bench.base.errors import EnvironmentFault
from prime_bench.plugins.interface import Plugin

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
