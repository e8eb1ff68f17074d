"""JSON, tables and amounts as every command prints them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click


def print_json(schema: int, content: Mapping[str, Any]) -> None:
    """Print one JSON object.

    The keys of a `schema` keep their meaning; keys may be added without a new schema.
    """
    click.echo(json.dumps({"schema": schema, **content}, indent=2, ensure_ascii=False))


def table_text(
    rows: Sequence[Sequence[object]], *, header: Sequence[str], n_words: int | None = None
) -> str:
    """Lay rows out in columns for a terminal.

    The first `n_words` columns are aligned to the left and the others to the right; with None the
    content of each column decides.
    """
    from tabulate import tabulate

    align = None
    if n_words is not None:
        align = [*["left"] * n_words, *["right"] * (len(header) - n_words)]
    return tabulate(rows, headers=header, tablefmt="plain", disable_numparse=True, colalign=align)


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 epoch`, `2 epochs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Seconds as a text in seconds, minutes or hours: `8 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def size(n_bytes: float) -> str:
    """Bytes as a text in MB or GB."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"
