"""Devices of this machine: which ones `--device` names, and how a process is given one."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.recipe.job import check_device
from prime_bench.store.record import DeviceKind

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ASK_NUMBER = """
import json, torch
n = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([torch.__version__, n]))
"""
_ASK_NAME = """
import sys
from prime_bench.training.device import device_name, resolve_device
print(device_name(resolve_device(sys.argv[1])))
"""
# Drivers of NVIDIA, of NVIDIA under WSL, and of AMD: without one of them torch sees no GPU.
_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
_ADVICE = "use `auto` or `cpu`, or install a torch build for this machine's driver"


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device: its name in a process that has these environment variables."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> DeviceKind:
        """`cpu` or `cuda`. Runs on different kinds are not compared."""
        return "cpu" if self.name == "cpu" else "cuda"


CPU = Device(name="cpu")


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
    version, n_devices = _seen_by_torch()
    if names == ["auto"] and n_devices == 0:
        return [CPU]
    if names in (["auto"], ["cuda"]):
        numbers: Sequence[int] = range(max(n_devices, 1))
    else:
        numbers = [int(name.partition(":")[2]) for name in names]
    missing = [number for number in numbers if number >= n_devices]
    if missing:
        raise EnvironmentFault(
            f"device {text} is not there: torch {version} sees {n_devices} CUDA devices",
            hint=_ADVICE,
        )
    return [_cuda(number) for number in numbers]


def vendors_name(device: Device) -> str:
    """Return the device's name as its vendor gives it. Raises EnvironmentFault."""
    fault = f"{device.name}: its name cannot be read"
    return _asked(_ASK_NAME, device.name, variables=device.variables, fault=fault)


def _cuda(number: int) -> Device:
    """A CUDA device that is the only one its process can see, so that no other is used."""
    visible = [part for part in os.environ.get(_VISIBLE, "").split(",") if part]
    return Device(name="cuda:0", variables={_VISIBLE: visible[number] if visible else str(number)})


def _has_driver() -> bool:
    return any(path.exists() for path in _DRIVERS)


def _seen_by_torch() -> tuple[str, int]:
    """Version of torch, and number of CUDA devices that it sees."""
    answer = _asked(_ASK_NUMBER, fault="torch cannot list the devices")
    version, n_devices = json.loads(answer)
    return str(version), int(n_devices)


def _asked(
    code: str, *arguments: str, variables: Mapping[str, str] | None = None, fault: str
) -> str:
    """The last line that Python code prints in a separate process.

    Importing torch takes seconds, and may crash. Raises EnvironmentFault with the message `fault`.
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise EnvironmentFault(f"{fault}: {last}")
    return done.stdout.strip().splitlines()[-1]
