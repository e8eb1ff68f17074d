"""Devices of this machine: which ones `--device` names, and how a process is given one."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prime_bench.base import machine
from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.base.frozen import Frozen
from prime_bench.base.machine import cpu_name, unused_gpu
from prime_bench.recipe.job import check_device
from prime_bench.store.record import DeviceKind

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ASK = """
import json, torch, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    n = torch.cuda.device_count() if torch.cuda.is_available() else 0
found = [torch.cuda.get_device_properties(number) for number in range(n)]
print(json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "warning": " ".join(str(warning.message).splitlines()[0] for warning in caught),
    "devices": [{"name": one.name, "memory_bytes": one.total_memory} for one in found],
}))
"""
# Of AMD; without this one or NVIDIA's torch sees no GPU.
_AMD_DRIVER = Path("/dev/kfd")
_ADVICE = "use `auto` or `cpu`, or install a torch build for this machine's driver"
_MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY"
_MPS_DEFAULT = "/tmp/nvidia-mps"  # NVIDIA's


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device: its name in a process that has these environment variables."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    label: str = "cpu"
    """What `--device` calls it: `cpu`, `cuda:0`, `cuda:1`, ..."""
    title: str = ""
    """Its name as the vendor gives it."""
    memory_bytes: int | None = None
    """Memory of a GPU; None for the CPU."""

    @property
    def kind(self) -> DeviceKind:
        """`cpu` or `cuda`. Runs on different kinds are not compared."""
        return "cpu" if self.name == "cpu" else "cuda"


CPU = Device(name="cpu", title=cpu_name())


def check_devices(text: str) -> list[str]:
    """Split `--device`: `auto`, `cpu`, `cuda` (all GPUs) or a list such as `cuda:0,cuda:1`.

    Does not check whether the devices exist. Raises UsageError for any other text.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        check_device(name)
    if len(names) > 1 and not all(name.startswith("cuda:") for name in names):
        raise UsageError(f"--device {text}: only cuda:INDEX can stand in a list")
    if len(set(names)) < len(names):
        raise UsageError(f"--device {text}: a device is named twice")
    return names


def find_devices(text: str) -> list[Device]:
    """Return the devices of this machine that `text` names.

    Raises:
        UsageError: If `text` does not name devices.
        EnvironmentFault: If a device does not exist.
    """
    names = check_devices(text)
    if names == ["cpu"] or (names == ["auto"] and not _has_driver()):
        return [CPU]
    seen = _seen_by_torch()
    if not seen.devices:
        unused = unused_gpu(torch=seen.torch, cuda=seen.cuda, warning=seen.warning)
        if unused is not None:
            raise unused
        if names == ["auto"]:
            return [CPU]
    if names in (["auto"], ["cuda"]):
        numbers: Sequence[int] = range(max(len(seen.devices), 1))
    else:
        numbers = [int(name.partition(":")[2]) for name in names]
    if any(number >= len(seen.devices) for number in numbers):
        raise EnvironmentFault(
            f"device {text} is not there: torch {seen.torch} sees {len(seen.devices)} CUDA devices",
            hint=_ADVICE,
        )
    return [_cuda(number, seen.devices[number]) for number in numbers]


def mps_control() -> Path | None:
    """Return the pipe of NVIDIA's Multi-Process Service, with which the processes on a GPU compute
    at the same time instead of in turns; None where it does not run. A worker uses it by itself.
    """
    pipe = Path(os.environ.get(_MPS_FOLDER) or _MPS_DEFAULT) / "control"
    return pipe if pipe.is_fifo() else None


class _SeenDevice(Frozen):
    """A GPU, as torch sees it."""

    name: str
    memory_bytes: int


class _SeenByTorch(Frozen):
    """What torch says of the GPUs of this machine."""

    torch: str
    cuda: str | None
    """The version of CUDA that torch was built for; None for a build without it."""
    warning: str
    devices: list[_SeenDevice]


def _cuda(number: int, seen: _SeenDevice) -> Device:
    """A CUDA device that is the only one its process can see, so that no other is used."""
    visible = [part for part in os.environ.get(_VISIBLE, "").split(",") if part]
    return Device(
        name="cuda:0",
        variables={_VISIBLE: visible[number] if visible else str(number)},
        label=f"cuda:{number}",
        title=seen.name,
        memory_bytes=seen.memory_bytes,
    )


def _has_driver() -> bool:
    return machine.has_nvidia_driver() or _AMD_DRIVER.exists()


def _seen_by_torch() -> _SeenByTorch:
    """Ask torch in a separate process: its import takes seconds, and may crash."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise EnvironmentFault(f"torch cannot list the devices: {last}")
    return _SeenByTorch.parse(json.loads(done.stdout.strip().splitlines()[-1]), where="")
