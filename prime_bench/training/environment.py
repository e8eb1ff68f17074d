"""Where and with what a job runs: commit, versions, device, threads, start."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import torch

import prime_bench
from prime_bench.settings.memory import JOBS_ON_DEVICE
from prime_bench.store.record import NODE_VARIABLE, Environment
from prime_bench.training.device import device_name

# What can change a number of a run or of the table that it reads.
_PACKAGES = ("torch", "fuxictr", "numpy", "safetensors", "pydantic", "polars", "scipy")
_GIT_TIMEOUT_S = 30


def environment(device: torch.device) -> Environment:
    """Return machine, versions and settings of this process, now."""
    commit, dirty = checkout(Path(prime_bench.__file__).resolve().parent)
    return Environment(
        commit=commit,
        dirty=dirty,
        package_version=prime_bench.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        versions=_versions(),
        device=device_name(device),
        device_kind="cuda" if device.type == "cuda" else "cpu",
        threads=torch.get_num_threads(),
        at_once=int(os.environ[JOBS_ON_DEVICE]) if JOBS_ON_DEVICE in os.environ else None,
        host=platform.node() or None,
        node=os.environ.get(NODE_VARIABLE) or None,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def conditions(environment: Environment) -> dict[str, str]:
    """What two processes must share for one job to have the same bits in both, by name.

    On a GPU the CPU adds nothing up, so the number of its threads is not among them.
    """
    on_cpu = environment.device_kind == "cpu"
    return {
        "device": environment.device,
        **({"number of threads": str(environment.threads)} if on_cpu else {}),
        "Python": environment.python,
        "prime-bench": environment.package_version,
        **environment.versions,
    }


def unlike(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Which conditions differ, each in a few words; empty where none does."""
    return [
        f"{name} was {then.get(name)}, is {now.get(name)}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]


@functools.cache
def checkout(package: Path) -> tuple[str | None, bool | None]:
    """The commit that holds the folder `package`, and whether the checkout differs from it in the
    package, or in the recipes and cards that are beside it.

    (None, None) where git does not track the package's own files: a site-packages folder inside
    some other project's repository says nothing about the package. Read once a process: what is
    imported does not change with the files.
    """
    if not _git(package, "ls-files", "--", "__init__.py"):
        return None, None
    commit = _git(package, "rev-parse", "HEAD")
    root = _git(package, "rev-parse", "--show-toplevel")
    places = [package, *(package.parent / name for name in ("recipes", "datasets"))]
    # git refuses a folder outside the repository, which one beside the package may be.
    inside = [str(place) for place in places if root and place.resolve().is_relative_to(root)]
    changes = _git(package, "status", "--porcelain", "--untracked-files=all", "--", *inside)
    if not commit or changes is None:
        return None, None
    return commit, bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints in `folder`; None where it fails or is not there."""
    # Variables of a hook or a caller that name another repository must not answer for this one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            # Reading must not take the lock that a user's own git command may need.
            env=clean | {"GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@functools.cache
def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    # The distribution's version may lack the build (`+cu126`), and so does not say with which CUDA.
    return found | {"torch": torch.__version__}
