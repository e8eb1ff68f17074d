"""Where recipes, dataset cards, report templates and pins lie: beside the package, or inside a
wheel.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def bundled_folder(name: str) -> Path:
    """The folder `recipes`, `datasets` or `reports` that came with this installation."""
    return _bundled(name)


def pins() -> dict[str, str]:
    """Package -> the version that this release was checked with, from `constraints.txt`."""
    lines = _bundled("constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, _, version in pairs}


def _bundled(name: str) -> Path:
    inside = _PACKAGE / "bundled" / name
    return inside if inside.exists() else _PACKAGE.parent / name
