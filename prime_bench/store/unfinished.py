"""Files of a job's folder that may be missing or half there, as of a worker at work or killed."""

import json
from pathlib import Path
from typing import Any


def read_text(path: Path) -> str:
    """What is there of a text; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where none is there that is whole."""
    try:
        table = json.loads(read_text(path))
    except ValueError:
        return {}
    return table if isinstance(table, dict) else {}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, up to the first line that is not whole."""
    found = []
    for line in read_text(path).splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
