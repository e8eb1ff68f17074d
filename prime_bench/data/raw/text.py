"""A text file of a card: its header, and which way each block of lines is read."""

import csv
from collections.abc import Callable, Generator, Sequence

from prime_bench.base.errors import DataError, did_you_mean
from prime_bench.data.card import CardFormat
from prime_bench.data.raw.frames import quoted_lines
from prime_bench.data.raw.lines import (
    BLOCK_BYTES,
    FORMAT_OF_CARD,
    LONGEST_LINE,
    SEPARATORS,
    Layout,
    Lines,
    blocks,
    character_fault,
    check_first_line,
    checked,
    counts,
    likeness,
)

PLAIN = CardFormat()
_SUBMISSIONS = (["id", "click"], ["id", "predicted"])
_TO_COMMA = {separator: bytes.maketrans(separator.encode(), b",") for separator in SEPARATORS}


def read_lines(
    read: Callable[[int], bytes],
    *,
    where: str,
    header: Sequence[str],
    form: CardFormat = PLAIN,
    exact: bool = False,
    on_layout: Callable[[Layout], None] = lambda _: None,
    block_bytes: int = BLOCK_BYTES,
) -> Generator[Lines, None, None]:
    """Check the header and yield blocks of the checked lines after it.

    Args:
        read: `read(n)` returns up to n bytes, none at the end, and line feeds in place of CRLF.
        where: The file's name in messages.
        header: The columns of the card.
        form: What the card says of its text files.
        exact: Whether the file must have the columns of the card alone, in its order.
        on_layout: Called once, before the first lines.
        block_bytes: Bytes of a block.

    Raises DataError, with file and line, for the first invalid line.
    """
    layout, rest, next_line = None, b"", 0
    for block in blocks(read, where=where, block_bytes=block_bytes):
        content = block
        if layout is None:
            first, _, content = content.partition(b"\n")
            layout = layout_of(first, where=where, header=header, form=form, exact=exact)
            on_layout(layout)
            next_line = 2
        if not content:
            continue
        content = rest + content
        lines, rest = _parsed(content, where=where, first_line=next_line, layout=layout)
        if lines is not None:
            if lines.numbers is None:
                next_line += len(lines.ends)
            else:
                next_line += content.count(b"\n") - rest.count(b"\n")
            yield lines
        if len(rest) > LONGEST_LINE:
            break
    if rest:
        raise DataError(
            f"{where}: line {next_line}: a quoted field that begins here, or later, has no end",
            hint="write a quotation mark inside a quoted field twice; or, if marks are ordinary"
            f' characters of this file, set quote = "" {FORMAT_OF_CARD}',
        )
    if next_line == 0:
        raise DataError(f"{where}: the file is empty")
    if next_line == 2:
        raise DataError(f"{where}: has a header and no rows")


def _parsed(
    content: bytes, *, where: str, first_line: int, layout: Layout
) -> tuple[Lines | None, bytes]:
    """The lines of a block, and the bytes of a row that goes on in the next one."""
    if not layout.is_plain(content):
        return quoted_lines(content, where=where, first_line=first_line, layout=layout)
    lines = checked(
        content,
        where=where,
        first_line=first_line,
        width=layout.width,
        separator=layout.separator,
        quote=layout.quote,
    )
    if layout.separator != ",":
        plain = content.translate(_TO_COMMA[layout.separator])
        lines = Lines(content=plain, first_line=first_line, ends=lines.ends)
    return lines, b""


def layout_of(
    line: bytes, *, where: str, header: Sequence[str], form: CardFormat, exact: bool
) -> Layout:
    """The layout of a file whose first line, without its line feed, is `line`.

    Raises DataError where it lacks a column of the card, has one twice or, if the layout has to be
    `exact`, has anything else than the card's columns in their order.
    """
    check_first_line(line, where=where, quote="" if exact else form.quote)
    fault = character_fault(line, quote=form.quote if exact else "")
    if fault is not None:
        raise DataError(f"{where}: line 1 {fault[0]}", hint=fault[1])
    text = line.decode()
    separators = [","] if exact else [form.separator] if form.separator else list(SEPARATORS)
    names = {separator: _fields(text, separator, form.quote) for separator in separators}
    # The separator with the most columns of the card; of equally good ones the first.
    separator = max(separators, key=lambda one: len(set(names[one]) & set(header)))
    found = names[separator]
    fits = found == list(header) if exact else all(found.count(name) == 1 for name in header)
    if not fits:
        raise _header_fault(text, found, list(header), where=where, separator=separator)
    return Layout(
        separator=separator,
        quote=form.quote,
        missing=tuple(form.missing),
        width=len(found),
        positions=tuple(found.index(name) for name in header),
        extra=tuple(name for name in found if name not in header),
    )


def _fields(line: str, separator: str, quote: str) -> list[str]:
    if not quote:
        return line.split(separator)
    (fields,) = csv.reader([line], delimiter=separator, quotechar=quote) if line else [[""]]
    return fields


def _header_fault(
    line: str, found: list[str], expected: list[str], *, where: str, separator: str
) -> DataError:
    expectation = f"{where}: {counts(len(expected), separator)}, line 1 has {len(found)}"
    if len(found) == len(expected) and 0 < len(set(found) & set(expected)) < len(found):
        expectation = f"{where}: line 1 has other columns than the card"
    if [name.lower() for name in found] in _SUBMISSIONS:
        return DataError(
            f"{expectation}; this is Kaggle's sample submission",
            hint="the log is the file train.gz or train.csv (Avazu), train.txt (Criteo)",
        )
    if not line:
        return DataError(f"{where}: line 1 is blank, expected the header")
    if looks := likeness(line, len(found)):
        return DataError(f"{expectation}{looks}")
    if found[1:] == expected and not found[0]:
        return DataError(
            f"{expectation}; the first column has no name", hint="remove the first column"
        )
    return column_fault(found, expected, expectation=expectation)


def column_fault(found: list[str], expected: list[str], *, expectation: str) -> DataError:
    """The error about a file with the columns `found`."""
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if len(missing) == len(expected):
        return DataError(
            f"{expectation}; no header, or that of another file",
            hint=f"header: {','.join(expected)}",
        )
    twice = sorted({name for name in found if found.count(name) > 1 and name in expected})
    parts = [
        f"{what} {', '.join(f'`{name}`' for name in names[:5])}" + (", ..." if names[5:] else "")
        for what, names in (("missing", missing), ("unexpected", extra), ("twice", twice))
        if names
    ]
    likely = did_you_mean(missing[0], extra) if missing else ""
    differs = "; ".join(parts) or "the columns are in another order"
    return DataError(f"{expectation}; {differs}{likely}")
