"""What commands print alike: JSON, and amounts for people."""

import json
from collections.abc import Mapping
from typing import Any

import click


def print_json(schema: int, content: Mapping[str, Any]) -> None:
    """One object. Keys of one `schema` keep their meaning; a new one may come without another."""
    click.echo(json.dumps({"schema": schema, **content}, indent=2, ensure_ascii=False))


def duration(seconds: float) -> str:
    """In the unit that suits: `8 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def size(n_bytes: float) -> str:
    """In MB or GB."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"
