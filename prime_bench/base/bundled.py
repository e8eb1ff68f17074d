"""Where recipes, dataset cards and report templates lie: beside the package, or inside a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def bundled_folder(name: str) -> Path:
    """The folder `recipes`, `datasets` or `reports` that came with this installation."""
    inside = _PACKAGE / "bundled" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name
