"""The packages that the GPU checks need beside torch and NumPy, without installing anything.

`pack` downloads their wheels into `.gpu_packages/` where there is a network. The folder is carried
to the machine with the GPU beside the checkout, and `provide` makes the packages importable there.
Standard library alone, since this module runs before any package is known to be there.
"""

import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKED = ROOT / ".gpu_packages"
_COMPILED = {"pydantic_core": "pydantic_core", "yaml": "PyYAML", "safetensors": "safetensors"}
_PURE = {
    "annotated_types": "annotated-types",
    "filelock": "filelock",
    "fuxictr": "fuxictr",
    "pydantic": "pydantic",
    "tqdm": "tqdm",
    "typing_extensions": "typing_extensions",
    "typing_inspection": "typing-inspection",
}
"""Module -> package. FuxiCTR's layers import yaml and tqdm, pydantic from 2.11 on
typing_inspection: its own import tells where that is lacking."""
_IMPORTED = tuple(name for name in (*_PURE, *_COMPILED) if name != "typing_inspection")
DISTRIBUTIONS = (*_COMPILED.values(), *_PURE.values())
"""The packages that `pack` downloads."""
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Versions that the machine with the GPU may have; each has compiled wheels of its own."""
_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64")


class Lacking(Exception):
    """The checks cannot start here. The text says what is missing and what to do."""


def pack(folder: Path = PACKED) -> None:
    """Download the wheels into `folder`, in place of what it holds. Raises CalledProcessError if
    pip fails.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for version in _PYTHONS:
        chosen = [f"--platform={name}" for name in _PLATFORMS]
        chosen += ["--implementation=cp", f"--python-version={version}"]
        _download(folder, [*chosen, *_COMPILED.values()])
    _download(folder, list(_PURE.values()))


def _download(folder: Path, what: list[str]) -> None:
    constraints = f"--constraint={ROOT / 'constraints.txt'}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", constraints]
    subprocess.run([*pip, "--only-binary=:all:", f"--dest={folder}", *what], check=True)


def provide(site: Path, *, packed: Path = PACKED) -> None:
    """Make the packages and the checkout importable, here and in processes that are started from
    here.

    Packed packages take precedence over installed ones, since their versions are known to fit each
    other. They are unpacked into the folder `site`, which is created and must exist as long as they
    are used.

    Raises Lacking if a package is missing.
    """
    site.mkdir()
    if packed.is_dir():
        _unpack(packed, site)
    folders = [str(site), *(str(ROOT / name) for name in ("", "scripts", "benchmarks"))]
    sys.path[:0] = folders
    importlib.invalidate_caches()
    earlier = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *([earlier] if earlier else [])])
    if faults := [fault for name in ("numpy", "torch") if (fault := _fault(name))]:
        raise Lacking(
            f"{sys.executable} cannot import {' and '.join(faults)}\n"
            "hint: name the interpreter that has torch and NumPy in the variable PYTHON"
        )
    if faults := [fault for name in _IMPORTED if (fault := _fault(name))]:
        raise Lacking(
            f"neither installed nor packed in {packed}: {', '.join(faults)}\n"
            "hint: run `scripts/gpu_check.sh --pack` where there is a network, and copy"
            f" {packed.name}/ to this machine, into the root of the checkout"
        )


def _unpack(packed: Path, site: Path) -> None:
    """Unpack the wheels that fit this Python."""
    here = "cp{}{}".format(*sys.version_info[:2])
    for wheel in sorted(packed.glob("*.whl")):
        python, abi, _ = wheel.stem.split("-")[-3:]
        if abi in ("none", "abi3") or (python, abi) == (here, here):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)


def _fault(module: str) -> str | None:
    """The module's name, with the reason where it is there and cannot be imported."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        return module if error.name == module else f"{module} ({error})"
    except ImportError as error:
        return f"{module} ({error})"
    return None
