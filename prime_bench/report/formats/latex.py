"""LaTeX in the paper's manner: booktabs, values in mathematics, improvements bold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from prime_bench.report.formats.cells import MISSING, printed
from prime_bench.report.formats.notes import own_notes, shared_notes
from prime_bench.report.formats.templates import latex_templates
from prime_bench.report.provenance import provenance_line
from prime_bench.report.tables.model import Block, Cell, Column, Report, Table, group_spans

COLUMNS_A_LINE = 10
"""Number columns, or two more, that can be read at the width of a page; words count twice."""
LINES_A_PAGE = 46
"""Rows of a page-high float, with room for caption and notes."""
LONG_WORDS, LONG_LETTER = 60, r"p{0.42\textwidth}"
"""Letters from which on a text is broken into lines, and its column then."""
RULE = r"\midrule"


@dataclass(frozen=True)
class Tabular:
    """What the template needs of one tabular: column letters, head lines, and body lines."""

    letters: str
    heads: list[str]
    """Head rows and the rules between them, each a whole line."""
    rows: list[str]
    """Body rows and the rules between them, each a whole line."""


def render(report: Report) -> str:
    r"""One file that compiles alone and, by `\\input`, inside any class.

    It needs the packages booktabs and graphicx.
    """
    tables = [
        {
            "caption": escaped(table.caption),
            "label": table.label,
            "floats": _floats([part for blocks in _groups(table) for part in _tabulars(blocks)]),
            "notes": [
                escaped(note) for note in (*own_notes(table, report), provenance_line(table))
            ],
        }
        for table in report.tables
    ]
    shared = [
        {"tables": escaped(group.tables), "notes": [escaped(note) for note in group.notes]}
        for group in shared_notes(report)
    ]
    return latex_templates().get_template("report.tex.j2").render(tables=tables, shared=shared)


def escaped(words: str) -> str:
    """Words, with everything escaped that LaTeX would take for its own or does not have."""
    return "".join(_ESCAPES.get(letter, letter) for letter in " ".join(words.split()))


def _groups(table: Table) -> Iterator[Sequence[Block]]:
    """Blocks that stand side by side: neighbours of equal columns with rows in common."""
    rest = [part for block in table.blocks for part in _narrow(block)]
    while rest:
        width = len(_numbers(rest[0]))
        fit = max(1, table.side_by_side // max(1, width))
        alike = 1
        while alike < min(fit, len(rest)) and _side_by_side(rest[0], rest[alike]):
            alike += 1
        yield rest[:alike]
        rest = rest[alike:]


def _side_by_side(a: Block, b: Block) -> bool:
    rows = ({row.key for row in block.rows} for block in (a, b))
    return a.columns == b.columns and bool(set.intersection(*rows))


def _narrow(block: Block) -> Iterator[Block]:
    """A block that is too wide for a page in parts below each other; Δ stays with its arm."""
    names = len(_names(block))
    if sum(map(_width, block.columns[names:])) <= COLUMNS_A_LINE + 2:
        yield block
        return
    parts: list[list[int]] = [[]]
    width = 0
    for index in range(names, len(block.columns)):
        column, before = block.columns[index], block.columns[index - 1]
        same = column.group == before.group
        bound = same and column.kind == "change" and before.kind == "number"
        full = width >= COLUMNS_A_LINE or (not same and width > COLUMNS_A_LINE // 2)
        if parts[-1] and full and not bound:
            parts.append([])
            width = 0
        parts[-1].append(index)
        width += _width(column)
    for part in parts:
        kept = [*range(names), *part]
        yield replace(
            block,
            columns=tuple(block.columns[index] for index in kept),
            rows=tuple(
                replace(row, cells=tuple(row.cells[index] for index in kept)) for row in block.rows
            ),
        )


def _width(column: Column) -> int:
    return 2 if column.kind == "words" else 1


def _floats(tabulars: Sequence[Tabular]) -> list[list[Tabular]]:
    """Tabulars that share a page; a table without any has one float for its caption and notes."""
    floats: list[list[Tabular]] = [[]]
    lines = 0
    for tabular in tabulars:
        own = len(tabular.heads) + len(tabular.rows)
        if floats[-1] and lines + own > LINES_A_PAGE:
            floats.append([])
            lines = 0
        floats[-1].append(tabular)
        lines += own
    return floats


def _tabulars(blocks: Sequence[Block]) -> Iterator[Tabular]:
    """One, or as many as its rows need, each with the heads."""
    whole = _tabular(blocks)
    for start in range(0, len(whole.rows), LINES_A_PAGE):
        rows = whole.rows[start : start + LINES_A_PAGE]
        yield replace(whole, rows=rows[1:] if rows[0] == RULE else rows)


def _tabular(blocks: Sequence[Block]) -> Tabular:
    names, numbers = _names(blocks[0]), _numbers(blocks[0])
    width = len(numbers)
    heads: list[str] = []
    if any(block.label for block in blocks):
        spans = [(escaped(block.label), width) for block in blocks]
        heads += _spanning(spans, n_before=len(names))
    if any(column.group for column in numbers):
        spans = [(escaped(label), n) for _ in blocks for label, n in group_spans(numbers)]
        heads += _spanning(spans, n_before=len(names))
    labels = [*names, *(column for _ in blocks for column in numbers)]
    heads.append(" & ".join(escaped(column.label) for column in labels) + r" \\")
    return Tabular(
        letters="".join(_letter(blocks, index) for index in range(len(names)))
        + r"@{\hspace{8pt}}".join("c" * width for _ in blocks),
        heads=heads,
        rows=list(_rows(blocks, n_names=len(names), width=width)),
    )


def _rows(blocks: Sequence[Block], *, n_names: int, width: int) -> Iterator[str]:
    """Rows of one key stand on one line; a block that lacks it has dashes there."""
    keys = list(dict.fromkeys(row.key for block in blocks for row in block.rows))
    own = [{row.key: row for row in block.rows} for block in blocks]
    # A row that only the second block has would else stand below the summaries of the first.
    ruled = [key for key in keys if any(key in rows and rows[key].ruled for rows in own)]
    first = keys.index(ruled[0]) if len(blocks) > 1 and ruled else len(keys)
    summaries = [key for key in own[0] if key in keys[first:]]
    keys = [*(key for key in keys if key not in summaries), *summaries]
    for number, key in enumerate(keys):
        if key in ruled and number:
            yield RULE
        names = next(rows[key] for rows in own if key in rows).cells[:n_names]
        cells = [_cell(cell) for cell in names]
        for rows in own:
            if key in rows:
                cells += [_cell(cell) for cell in rows[key].cells[n_names:]]
            else:
                cells += [MISSING] * width
        yield " & ".join(cells) + r" \\"


def _letter(blocks: Sequence[Block], index: int) -> str:
    """A column of names: as wide as they are, or with line breaks where one is long."""
    cells = [printed(row.cells[index]).text for block in blocks for row in block.rows]
    return LONG_LETTER if max(map(len, cells), default=0) > LONG_WORDS else "l"


def _cell(cell: Cell) -> str:
    made = printed(cell)
    if made.text == MISSING:
        return MISSING
    if not made.numeric:
        text = escaped(made.text)
        text = rf"\textbf{{{text}}}" if made.bold else text
    elif made.bold and "±" not in made.text:
        text = rf"\textbf{{{escaped(made.text).replace('-', '$-$')}}}"
    else:
        inner = made.text.replace("±", r"\pm")
        text = rf"$\mathbf{{{inner}}}$" if made.bold else f"${inner}$"
    dagger = r"\textsuperscript{\dag}" * made.dagger
    return text + dagger + (rf"\,({escaped(made.remark)})" if made.remark else "")


def _names(block: Block) -> list[Column]:
    """The leading columns of words, which name the rows."""
    first = next((i for i, column in enumerate(block.columns) if column.kind != "words"), None)
    return list(block.columns[:first])


def _numbers(block: Block) -> list[Column]:
    return list(block.columns[len(_names(block)) :])


def _spanning(spans: Sequence[tuple[str, int]], *, n_before: int) -> list[str]:
    """A head row over several columns each, and the rules below those that have a label."""
    heads, rules, start = [""] * n_before, "", n_before + 1
    for label, width in spans:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{label}}}")
        rules += rf"\cmidrule(lr){{{start}-{start + width - 1}}}" if label else ""
        start += width
    return [" & ".join(heads).strip() + r" \\", rules]


_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "·": r"$\cdot$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "≥": r"$\ge$",
    "\N{MINUS SIGN}": "$-$",
    "†": r"$\dagger$",
    "\N{EN DASH}": "--",
    "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
}
