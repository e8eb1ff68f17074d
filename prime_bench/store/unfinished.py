"""Files of a job's folder that may be missing or half there, as of a worker at work or killed."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard


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
    except (ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def read_history(path: Path) -> list[dict[str, Any]]:
    """The validations of history.jsonl, up to the first line that is none."""
    return list(itertools.takewhile(_is_validation, _values(path)))


def read_progress(path: Path) -> dict[str, Any]:
    """Epoch, rows, rows_total and rows_per_s of progress.json; empty where one is no number."""
    found = read_object(path)
    numbers = [found.get(key) for key in ("epoch", "rows", "rows_total", "rows_per_s")]
    sound = all(_is_number(number) and number > 0 for number in numbers)
    return found if sound else {}


def _values(path: Path) -> Iterator[Any]:
    for line in read_text(path).splitlines():
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            return


def _is_validation(line: object) -> bool:
    if not isinstance(line, Mapping) or not _is_number(line.get("wall_s")):
        return False
    scores = [line.get(key) for key in ("train_loss", "valid_auc", "valid_logloss")]
    return all(score is None or _is_number(score) for score in scores)


def _is_number(value: object) -> TypeGuard[float]:
    # A whole number may be too large for a float.
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 63
    return isinstance(value, float) and math.isfinite(value)
