"""How every command prints: lines, texts, JSON, tables and amounts.

Nothing else in `cli` writes to the terminal, so no name of a record or of a file can do more there
than be read: see `base.characters`.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from prime_bench.base.characters import display_width, visible, visible_json, visible_lines, wrapped

if TYPE_CHECKING:
    from rich.console import Console

GAP = "  "
"""Between two columns of a table."""
LINE_EVERY_S = 60.0
"""How often long work says without a terminal how far it is."""


def print_line(line: object, *, err: bool = False) -> None:
    r"""Print one line; a line break in it is shown as `\n`."""
    click.echo(visible(str(line)), err=err)


def print_text(text: str, *, err: bool = False) -> None:
    """Print a text of several lines."""
    click.echo(visible_lines(text), err=err)


def print_document(text: str) -> None:
    """Print what has a format of its own, such as LaTeX; it ends in its own newline.

    A pipe or file gets the same bytes everywhere, in UTF-8 whatever the encoding of the terminal.
    """
    if sys.stdout.isatty() or not hasattr(sys.stdout, "buffer"):
        click.echo(visible_lines(text), nl=False)
    else:
        click.echo(text.encode("utf-8", "backslashreplace"), nl=False)


def print_styled(text: str) -> None:
    """Print a text whose names are escaped already, so that it may have bold parts."""
    click.echo(text, nl=False)


def has_style() -> bool:
    """Whether stdout shows bold text: a terminal, unless NO_COLOR or TERM=dumb says otherwise."""
    return sys.stdout.isatty() and _wants_style()


def console(*, stderr: bool = False) -> "Console":
    """A rich console in which a text is a text: rich would read `[red]` and `:x:` as markup."""
    from rich.console import Console

    return Console(
        stderr=stderr,
        color_system="auto" if _wants_style() else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _wants_style() -> bool:
    # https://no-color.org: set, and not empty.
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_json(schema: int, content: Mapping[str, Any]) -> None:
    """Print one JSON object.

    The keys of a `schema` keep their meaning; keys may be added without a new schema.
    """
    text = json.dumps({"schema": schema, **content}, indent=2, ensure_ascii=False)
    print_document(visible_json(text) + "\n")


def table_text(
    rows: Sequence[Sequence[object]],
    *,
    header: Sequence[str],
    n_words: int | None = None,
    width: int | None = None,
) -> str:
    """Lay rows out in columns for a terminal.

    The first `n_words` columns are aligned to the left and the others to the right; with None all
    are on the left. With `width` the last column is broken into lines so that the table fits.
    """
    from tabulate import tabulate

    texts = [[visible(str(cell)) for cell in row] for row in (header, *rows)]
    if width is not None:
        others = list(zip(*texts, strict=True))[:-1]
        used = sum(max(map(display_width, column)) + len(GAP) for column in others)
        for row in texts[1:]:
            row[-1] = "\n".join(wrapped(row[-1], max(1, width - used)))
    n_left = len(header) if n_words is None else n_words
    return tabulate(
        texts,
        tablefmt="plain",
        disable_numparse=True,
        preserve_whitespace=True,
        colalign=[*["left"] * n_left, *["right"] * (len(header) - n_left)],
    )


def duration(seconds: float) -> str:
    """Seconds as a text in seconds, minutes or hours: `8 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def size(n_bytes: float) -> str:
    """Bytes as a text in kB, MB or GB: `12 kB`, `400 MB`, `2.3 GB`; what is there is never `0`."""
    if 0 < n_bytes < 1e6:
        return f"{max(n_bytes / 1e3, 1):.0f} kB"
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"
