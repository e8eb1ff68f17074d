"""Checks of this machine: Python, packages, compiler, memory, disk, tables and devices."""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.files import check_can_write, nearest_folder, pins
from prime_bench.base.frozen import Frozen
from prime_bench.base.machine import memory_bytes, unused_gpu
from prime_bench.base.sources import search_path
from prime_bench.data.manifest import MANIFEST_NAME, Manifest
from prime_bench.schedule.devices import mps_control

COMMAND = (sys.executable, "-P", "-m", "prime_bench.training.tryout")
# The dependencies of pyproject.toml; other packages are installed with these.
PACKAGES = (
    *("torch", "fuxictr", "polars", "numpy", "scipy", "safetensors", "click", "pydantic"),
    *("filelock", "jinja2", "tabulate", "wcwidth", "rich", "matplotlib", "huggingface_hub", "ray"),
)
_MINIMUM_PYTHON = (3, 11)
_LEAST_BYTES = 4 << 20  # the state of a small job
_LOW_DISK_BYTES = 20e9  # Criteo_x4 with its download
_LOW_MEMORY_BYTES = 4e9  # to prepare and train at full size on a CPU
_TRY_TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """The result of one check."""

    topic: str
    state: Literal["ok", "note", "fault"]
    """`ok`; `note`: it may matter; `fault`: something does not work."""
    found: str
    """What was found."""
    advice: str = ""
    """What to do; empty if there is nothing to do."""

    def plain(self) -> dict[str, str]:
        """Return the fields as JSON values."""
        return {
            "topic": self.topic,
            "state": self.state,
            "found": self.found,
            "advice": self.advice,
        }


def examine(
    *, data_dir: Path, runs_dir: Path, command: tuple[str, ...] = COMMAND
) -> Iterator[HealthCheck]:
    """Run all checks, and yield the result of each.

    The check of the devices takes some seconds: `command` trains briefly on each.
    """
    yield _python()
    packages = [_package(package) for package in PACKAGES]
    yield from packages
    yield _compiler()
    yield _memory()
    yield _folder("prepared tables", data_dir)
    yield _folder("records", runs_dir)
    yield from _tables(data_dir)
    bad = [check.topic for check in packages if check.state == "fault"]
    first = (
        f"first install {', '.join(bad)} as said above"
        if bad
        else f"pip install torch=={pins()['torch']}"
    )
    yield from _devices(command, advice=first)


def _python() -> HealthCheck:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < _MINIMUM_PYTHON:
        wanted = ".".join(map(str, _MINIMUM_PYTHON))
        return HealthCheck(
            topic="python", state="fault", found=found, advice=f"install Python {wanted} or newer"
        )
    return HealthCheck(topic="python", state="ok", found=found)


def _package(name: str) -> HealthCheck:
    pinned = {package.lower(): version for package, version in pins().items()}[name]
    install = f"pip install {name}=={pinned}"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return HealthCheck(topic=name, state="fault", found="not installed", advice=install)
    release = version.partition("+")[0]  # a local part, such as +cpu, names the build
    bound, needed = _bounds().get(name, ("", ""))
    if (bound == ">=" and _order(release) < _order(needed)) or (
        bound == "==" and release != needed
    ):
        wanted = f"{needed} or newer" if bound == ">=" else needed
        return HealthCheck(
            topic=name,
            state="fault",
            found=f"{version}; this release needs {wanted}",
            advice=install,
        )
    if release != pinned:
        return HealthCheck(
            topic=name,
            state="note",
            found=f"{version}; this release was checked with {pinned}",
            advice=install,
        )
    return HealthCheck(topic=name, state="ok", found=version)


def _bounds() -> dict[str, tuple[str, str]]:
    """Package -> `>=` or `==`, and the version that the installed release requires; empty where
    prime-bench is a folder on the path and not installed.
    """
    try:
        lines = importlib.metadata.requires("prime-bench") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = (re.fullmatch(r"([\w-]+)(>=|==)([\d.]+)", line) for line in lines)
    return {one[1].replace("-", "_").lower(): (one[2], one[3]) for one in found if one}


def _order(version: str) -> list[int]:
    """What orders versions; a beta version counts as its release."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _compiler() -> HealthCheck:
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        return HealthCheck(
            topic="C++ compiler",
            state="note",
            found=f"no {name}: --compile does not work on the CPU",
            advice="install g++, or name your compiler in the variable CXX",
        )
    return HealthCheck(topic="C++ compiler", state="ok", found=path)


def _memory() -> HealthCheck:
    total = memory_bytes()
    found = f"{total / 1e9:.1f} GB in all"
    if total < _LOW_MEMORY_BYTES:
        advice = "`plan` says what a job needs; use one slot"
        return HealthCheck(topic="memory", state="note", found=found, advice=advice)
    return HealthCheck(topic="memory", state="ok", found=found)


def _folder(topic: str, folder: Path) -> HealthCheck:
    """Whether files can be made in `folder`, which need not exist yet, and how much is free."""
    try:
        check_can_write(folder, n_bytes=_LEAST_BYTES)
    except EnvironmentFault as fault:
        return HealthCheck(topic=topic, state="fault", found=fault.message, advice=fault.hint or "")
    there = nearest_folder(folder)
    free = shutil.disk_usage(there).free
    found = f"{folder}: {free / 1e9:.1f} GB free"
    if free < _LOW_DISK_BYTES:
        advice = f"Criteo at full size wants {_LOW_DISK_BYTES / 1e9:.0f} GB"
        return HealthCheck(topic=topic, state="note", found=found, advice=advice)
    return HealthCheck(topic=topic, state="ok", found=found)


def _tables(data_dir: Path) -> Iterator[HealthCheck]:
    folders = sorted(path.parent for path in data_dir.glob(f"*/{MANIFEST_NAME}"))
    if not folders:
        yield HealthCheck(
            topic="tables",
            state="note",
            found=f"none in {data_dir}",
            advice="prime-bench prepare synthetic",
        )
    for folder in folders:
        try:
            manifest = Manifest.read(folder)
        except DataError as error:
            yield HealthCheck(
                topic="table", state="fault", found=error.message, advice=error.hint or ""
            )
            continue
        verified = {True: "verified", False: "not verified", "own": "own data"}[manifest.verified]
        yield HealthCheck(
            topic="table",
            state="ok",
            found=f"{folder}: {manifest.rows.total:,} rows, {verified}",
        )


class _TriedDevice(Frozen):
    """A device on which `training.tryout` has trained, or tried to."""

    device: str
    name: str = ""
    step_ms: float | None = None
    """Milliseconds of a training step; None if it failed."""
    fault: str | None = None
    """Why it failed; None if it did not."""


class _TriedTorch(Frozen):
    """The line of JSON that `training.tryout` prints."""

    torch: str
    """Version of torch."""
    cuda: str | None
    """Version of CUDA for which torch was built; None for a build without CUDA."""
    warning: str = ""
    """What torch warns of when it looks for GPUs."""
    devices: list[_TriedDevice]
    """The CPU first."""


def _devices(command: tuple[str, ...], *, advice: str) -> Iterator[HealthCheck]:
    """What the devices are; `advice` is for a fault of the packages."""
    answer = _tried(command)
    if isinstance(answer, str):
        yield HealthCheck(
            topic="devices",
            state="fault",
            found=f"torch cannot train here: {answer}",
            advice=advice,
        )
        return
    yield _cuda(answer)
    if len(answer.devices) > 1:
        yield _mps()
    for device in answer.devices:
        if device.step_ms is None:
            yield HealthCheck(
                topic=device.device,
                state="fault",
                found=device.fault or "no reason given",
                advice=advice if device.device == "cpu" else "check the driver with nvidia-smi",
            )
        else:
            found = f"{device.name}: a DNN step of 4,096 rows takes {device.step_ms:.1f} ms"
            yield HealthCheck(topic=device.device, state="ok", found=found)


def _cuda(answer: _TriedTorch) -> HealthCheck:
    built = f"for CUDA {answer.cuda}" if answer.cuda else "without CUDA"
    found = f"torch {answer.torch} {built}"
    if len(answer.devices) > 1:
        return HealthCheck(topic="CUDA", state="ok", found=found)
    unused = unused_gpu(torch=answer.torch, cuda=answer.cuda, warning=answer.warning)
    if unused is not None:
        return HealthCheck(topic="CUDA", state="fault", found=unused.message, advice=unused.hint)
    advice = "" if answer.cuda else "for a GPU, install a torch build for its driver"
    return HealthCheck(topic="CUDA", state="note", found=found, advice=advice)


def _mps() -> HealthCheck:
    """Whether jobs that share a GPU compute at the same time."""
    pipe = mps_control()
    if pipe is not None:
        return HealthCheck(topic="MPS", state="ok", found=f"runs ({pipe.parent}); workers use it")
    return HealthCheck(
        topic="MPS",
        state="note",
        found="does not run: jobs on one GPU compute in turns",
        advice="start it with `nvidia-cuda-mps-control -d`, end it with `echo quit | "
        "nvidia-cuda-mps-control`",
    )


def _tried(command: tuple[str, ...]) -> _TriedTorch | str:
    """What the child process has found, or why it has found nothing."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TRY_TIMEOUT_S,
            env={**os.environ, "PYTHONPATH": search_path()},
        )
    except subprocess.TimeoutExpired:
        return f"training for a second did not end within {_TRY_TIMEOUT_S} s"
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()
        return last[-1] if last else f"exit code {done.returncode}"
    return _TriedTorch.parse(json.loads(done.stdout), where="")
