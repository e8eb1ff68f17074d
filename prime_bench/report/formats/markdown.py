"""GitHub's Markdown: a table for each block, and the notes as a list below."""

import re

from tabulate import tabulate

from prime_bench.base.characters import visible
from prime_bench.report.formats.cells import printed
from prime_bench.report.formats.notes import own_notes, shared_notes
from prime_bench.report.formats.templates import text_templates
from prime_bench.report.tables.model import Block, Cell, Column, Report, is_beside_level


def render(report: Report) -> str:
    """Return the whole report, ending in a newline."""
    tables = [
        {
            "title": escaped(table.title),
            "caption": escaped(table.caption),
            "blocks": [
                {"label": escaped(block.label), "text": _block(block)} for block in table.blocks
            ],
            "notes": [escaped(note) for note in own_notes(table, report)],
        }
        for table in report.tables
    ]
    shared = [
        {"tables": escaped(group.tables), "notes": [escaped(note) for note in group.notes]}
        for group in shared_notes(report)
    ]
    return text_templates().get_template("report.md.j2").render(tables=tables, shared=shared)


def escaped(words: str) -> str:
    """Return text in one line in which everything is escaped that would be read as markup.

    That is markup of CommonMark, and of GitHub: tables, ~~struck~~ text, $formulas$ and bare URLs.
    """
    text = _MARKUP.sub(r"\\\g<0>", visible(" ".join(words.split())))
    return _LIST_NUMBER.sub(r"\g<0>\\", text)


# Each is escaped by a backslash before its first letter.
_MARKUP = re.compile(
    r"""
    [\\`*\[\]<|~$\#]
    | (?<![A-Za-z0-9])_ | _(?![A-Za-z0-9])      # inside a word it is a letter: residual_parameters
    | &(?=\#?\w+;)                              # of an entity: &lt;
    | :(?=//) | (?<=www)\.                      # of a URL that GitHub makes a link
    | ^> | ^[-+](?=\ |$) | ^-(?=(\ *-){2,}\ *$)  # a quotation, a list, a rule
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LIST_NUMBER = re.compile(r"^\d{1,9}(?=[.)](?: |$))")


def _block(block: Block) -> str:
    heads = [
        _head(column, before)
        for column, before in zip(block.columns, (None, *block.columns), strict=False)
    ]
    rows = [list(map(_cell, row.cells)) for row in block.rows]
    # Without disable_numparse, tabulate rewrites digits and ids: 0.8140 becomes 0.814.
    return tabulate(
        rows,
        headers=heads,
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["left" if column.kind == "words" else "right" for column in block.columns],
    )


def _head(column: Column, before: Column | None) -> str:
    # The head of the level has the group.
    group = "" if is_beside_level(column, before) else column.group
    label = f"{group} {column.label}".strip()
    return escaped(f"{label} ({column.aside})" if column.aside else label)


def _cell(cell: Cell) -> str:
    made = printed(cell)
    text = escaped(made.text)
    if made.missing:
        return text
    remark = made.aside or made.remark
    return (
        (f"**{text}**" if made.bold else text)
        + "†" * made.dagger
        + (f" ({escaped(remark)})" if remark else "")
    )
