"""Plain text for a terminal: what is wider than the terminal is printed in parts below each other.

Without a terminal, lines have 80 letters. Numbers and ids are never broken over two lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prime_bench.base.characters import display_width, visible, wrapped
from prime_bench.report.formats.cells import PrintedCell, printed
from prime_bench.report.formats.notes import own_notes, shared_notes
from prime_bench.report.tables.model import Block, Column, Report, Table, is_beside_level

GAP = "  "
"""Between two columns."""
LONGEST_LINE = 100
"""Letters of the longest line of a paragraph, however wide the terminal is."""
LONGEST_WORDS = 30
"""Letters of a cell, such as an interval, that is never broken over several lines."""
_BOLD, _NORMAL = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, kw_only=True)
class TextColumn:
    """A column of a table as text."""

    head: str
    group: str
    """Head above neighbouring columns."""
    words: bool
    """Whether its cells stand on the left of the column."""
    breaks: bool
    """Whether its cells may be broken over several lines."""
    continues: bool
    """Whether it must stay beside the column before: a difference beside its arm's level."""
    cells: tuple[str, ...]
    """One a row; those of numbers have one width, so that digits stand below each other."""
    bold: tuple[bool, ...]

    @property
    def widest(self) -> int:
        """Letters of the column when nothing is broken."""
        return max(map(display_width, (self.head, *self.cells)))

    @property
    def narrowest(self) -> int:
        """Letters of the column when all that may be broken is broken at every space."""
        cells = (
            [word for cell in self.cells for word in cell.split()] if self.breaks else self.cells
        )
        return max(map(display_width, (*self.head.split(), *cells)), default=0)


def render(report: Report, *, width: int = 80, bold: bool = False) -> str:
    """Return the whole report, ending in a newline.

    Args:
        report: Its tables are printed one after another.
        width: Columns of the terminal that a line has at most; a wide letter, such as 中, takes
            two. A table is wider only where a single column of it is.
        bold: Whether to print bold cells with the escape sequences of a terminal.
    """
    parts = [
        "\n".join(_table(table, own_notes(table, report), width=width, bold=bold))
        for table in report.tables
    ]
    if shared := "\n".join(_shared(report, width=width)):
        parts.append(shared)
    return "\n\n\n".join(parts) + "\n"


def _shared(report: Report, *, width: int) -> Iterator[str]:
    """Notes that several tables have, once, below all tables."""
    groups = shared_notes(report)
    if groups:
        yield from _title("Notes on several tables")
    for group in groups:
        yield from ("", *_paragraph(f"{group.tables}:", width), "")
        for note in group.notes:
            yield from _paragraph(note, width, first="- ", rest="  ")


def _table(table: Table, notes: Sequence[str], *, width: int, bold: bool) -> Iterator[str]:
    yield from (*_title(table.title), "", *_paragraph(table.caption, width))
    for block in table.blocks:
        ruled = [row.ruled for row in block.rows]
        headings: set[str] = set()
        for columns in _parts(_columns(block), width):
            groups = [group for group in dict.fromkeys(column.group for column in columns) if group]
            only_group = groups[0] if len(groups) == 1 else ""
            heading = ": ".join(text for text in (block.label, only_group) if text)
            yield ""
            if heading or headings:
                again = "(continued)" if heading in headings else ""
                yield from (*_paragraph(f"{heading} {again}".strip(), width), "")
            headings.add(heading)
            yield from _lines(columns, ruled, width=width, bold=bold, grouped=not only_group)
    yield from ("", "Notes", "")
    for note in notes:
        yield from _paragraph(note, width, first="- ", rest="  ")


def _title(text: str) -> tuple[str, str]:
    shown = escaped(text)
    return shown, "=" * display_width(shown)


def escaped(words: str) -> str:
    """Return text in one line without a character that a terminal would obey."""
    return visible(" ".join(words.split()))


def _paragraph(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    return wrapped(escaped(text), min(width, LONGEST_LINE), first=first, rest=rest)


def _columns(block: Block) -> list[TextColumn]:
    n_names = _n_names([column.kind == "words" for column in block.columns])
    columns = []
    for index, column in enumerate(block.columns):
        before = block.columns[index - 1] if index else None
        cells = [printed(row.cells[index]) for row in block.rows]
        columns.append(
            TextColumn(
                head=escaped(f"{column.label} {column.aside}"),
                group=escaped(column.group),
                words=column.kind == "words",
                breaks=column.kind == "words"
                and (
                    index < n_names
                    or any(display_width(cell.text) > LONGEST_WORDS for cell in cells)
                ),
                continues=is_beside_level(column, before),
                cells=tuple(_texts(cells, column)),
                bold=tuple(cell.bold for cell in cells),
            )
        )
    return columns


def _texts(cells: Sequence[PrintedCell], column: Column) -> Iterator[str]:
    """The cells as text; what follows a number, such as `†` or `4/5`, has places of its own."""
    numbers = [escaped(cell.text) for cell in cells]
    if column.kind == "words":
        yield from numbers
        return
    remarks = [_remark(cell, column) for cell in cells]
    n_number, n_remark = (max(map(display_width, texts), default=0) for texts in (numbers, remarks))
    for number, remark in zip(numbers, remarks, strict=True):
        before, behind = n_number - display_width(number), n_remark - display_width(remark)
        yield " " * before + number + remark + " " * behind


def _remark(cell: PrintedCell, column: Column) -> str:
    """What is printed after the number; without brackets where the head names it, as in `Δ won`."""
    if cell.missing:
        return ""
    remark = escaped(cell.aside or cell.remark)
    named = bool(cell.aside and column.aside)
    return "†" * cell.dagger + (f" {remark}" if named else f" ({remark})" if remark else "")


def _parts(columns: Sequence[TextColumn], width: int) -> Iterator[list[TextColumn]]:
    """The columns in parts that fit, each with those that name the rows in front.

    A group of columns is in one part, or in parts of its own where it is too wide.
    """
    n_names = _n_names([column.words for column in columns])
    names, rest = list(columns[:n_names]), columns[n_names:]

    def fits(part: Sequence[TextColumn]) -> bool:
        return _narrowest([*names, *part]) <= width

    # Where every column names the rows there is nothing to print in parts.
    if not rest or fits(rest):
        yield list(columns)
        return
    part: list[TextColumn] = []
    for group in _runs(rest, by_group=True):
        if part and not fits([*part, *group]):
            yield [*names, *part]
            part = []
        if fits(group):
            part += group
            continue
        for piece in _runs(group, by_group=False):
            if part and not fits([*part, *piece]):
                yield [*names, *part]
                part = []
            part += piece
        # What is left of a group in parts does not share one with the next group.
        yield [*names, *part]
        part = []
    if part:
        yield [*names, *part]


def _n_names(are_words: Sequence[bool]) -> int:
    """How many columns name the rows: the leading ones of words."""
    return are_words.index(False) if False in are_words else len(are_words)


def _runs(columns: Sequence[TextColumn], *, by_group: bool) -> Iterator[list[TextColumn]]:
    """Neighbours of one group, or those of them that must stay together."""
    run: list[TextColumn] = []
    for column in columns:
        together = column.group == run[-1].group if run and by_group else column.continues
        if run and not together:
            yield run
            run = []
        run.append(column)
    if run:
        yield run


def _narrowest(columns: Sequence[TextColumn]) -> int:
    return sum(column.narrowest for column in columns) + len(GAP) * (len(columns) - 1)


def _lines(
    columns: Sequence[TextColumn],
    ruled: Sequence[bool],
    *,
    width: int,
    bold: bool,
    grouped: bool,
) -> Iterator[str]:
    """A part's lines: heads, and every row with a rule above where `ruled` says so."""
    widths = _widths(columns, width)
    rule = GAP.join("-" * own for own in widths)
    if grouped and any(column.group for column in columns):
        yield from _group_lines(columns, widths)
    heads = [wrapped(column.head, own) for column, own in zip(columns, widths, strict=True)]
    height = max(map(len, heads))
    bottom = [[""] * (height - len(head)) + head for head in heads]
    yield from _row(bottom, columns, widths, bold=[False] * len(columns))
    yield rule
    for index, is_ruled in enumerate(ruled):
        if is_ruled and index:
            yield rule
        cells = [
            wrapped(column.cells[index], own) if column.breaks else [column.cells[index]]
            for column, own in zip(columns, widths, strict=True)
        ]
        yield from _row(cells, columns, widths, bold=[bold and c.bold[index] for c in columns])


def _widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """Column widths: each at its narrowest; the rest of the line goes to the narrowest."""
    widths = [column.narrowest for column in columns]
    spare = width - _narrowest(columns)
    while spare > 0:
        growing = [i for i, column in enumerate(columns) if widths[i] < column.widest]
        if not growing:
            break
        widths[min(growing, key=widths.__getitem__)] += 1
        spare -= 1
    return widths


def _group_lines(columns: Sequence[TextColumn], widths: Sequence[int]) -> Iterator[str]:
    """The upper heads, each in the middle above its columns, with a rule below."""
    heads, rules, start = [], [], 0
    for run in _runs(columns, by_group=True):
        own = sum(widths[start : start + len(run)]) + len(GAP) * (len(run) - 1)
        heads.append((wrapped(run[0].group, own), own))
        rules.append(("-" if run[0].group else " ") * own)
        start += len(run)
    height = max(len(lines) for lines, _ in heads)
    for index in range(height):
        texts = []
        for lines, own in heads:
            line = index - (height - len(lines))
            text = lines[line] if line >= 0 else ""
            spare = own - display_width(text)
            texts.append(" " * (spare // 2) + text + " " * (spare - spare // 2))
        yield GAP.join(texts).rstrip()
    yield GAP.join(rules).rstrip()


def _row(
    cells: Sequence[Sequence[str]],
    columns: Sequence[TextColumn],
    widths: Sequence[int],
    *,
    bold: Sequence[bool],
) -> Iterator[str]:
    """The lines of one row: words on the left of their column, numbers on the right."""
    for index in range(max(map(len, cells))):
        texts = []
        for lines, column, own, is_bold in zip(cells, columns, widths, bold, strict=True):
            text = lines[index] if index < len(lines) else ""
            padding = " " * (own - display_width(text))
            core = text.strip()
            marked = text.replace(core, f"{_BOLD}{core}{_NORMAL}") if is_bold and core else text
            texts.append(marked + padding if column.words else padding + marked)
        yield GAP.join(texts).rstrip()
