"""LaTeX as in the paper: booktabs, numbers in mathematics, improvements in bold."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from prime_bench.base.characters import visible
from prime_bench.report.formats.cells import MISSING, printed
from prime_bench.report.formats.notes import own_notes, shared_notes
from prime_bench.report.formats.templates import latex_templates
from prime_bench.report.tables.model import (
    Block,
    Cell,
    Column,
    Report,
    Table,
    group_spans,
    is_beside_level,
)

COLUMNS_PER_PAGE = 10
"""Columns of numbers that can be read at the width of a page; a column of words counts twice.

A table may have two more; a wider one is set in parts of about this many columns."""
ROWS_PER_PAGE = 46
"""Rows of a float as high as a page, with room for caption and notes."""
LONG_WORDS, LONG_LETTER = 60, r"p{0.42\textwidth}"
"""Letters beyond which a cell of words is broken into lines, and the letter of its column."""
RULE = r"\midrule"


@dataclass(frozen=True)
class Tabular:
    """A tabular as the template needs it."""

    letters: str
    """Alignment of the columns, as `lcc`."""
    heads: list[str]
    """Head rows and the rules between them, each a whole line."""
    rows: list[str]
    """Body rows and the rules between them, each a whole line."""


def render(report: Report) -> str:
    r"""Return a file that compiles alone and, with `\\input`, inside a document of any class.

    It needs the packages booktabs and graphicx.
    """
    tables = [
        {
            "caption": escaped(table.caption),
            "label": table.label,
            "floats": _floats([part for blocks in _groups(table) for part in _tabulars(blocks)]),
            "notes": [escaped(note) for note in own_notes(table, report)],
        }
        for table in report.tables
    ]
    shared = [
        {"tables": escaped(group.tables), "notes": [escaped(note) for note in group.notes]}
        for group in shared_notes(report)
    ]
    return latex_templates().get_template("report.tex.j2").render(tables=tables, shared=shared)


def escaped(words: str) -> str:
    r"""Return text in one line that LaTeX sets letter by letter, with any engine and any class.

    Letters of the Latin alphabet have their accents by commands, Greek letters and common signs
    are set in mathematics. Every other character that is not ASCII, such as 中, is set as its code
    point, `U+4E2D`, by `\primebenchchar{4E2D}`: pdfLaTeX has no font for it, and a missing letter
    would be lost without an error in XeLaTeX and LuaLaTeX. A document that has a font for it
    defines `\newcommand\primebenchchar[1]{\symbol{"#1}}` before its `\input`.
    """
    text = unicodedata.normalize("NFC", visible(" ".join(words.split())))
    return _LIGATURE.sub(r"\g<0>{}", "".join(map(_set, _CLUSTER.findall(text))))


# A character, or a letter with one accent that Unicode does not have as one character.
_CLUSTER = re.compile("[A-Za-z][\u0300-\u036f]|.", re.DOTALL)
# Each would begin a sign of its own: – — „ ” in the fonts of LaTeX.
_LIGATURE = re.compile(r"-(?=-)|,(?=,)|'(?=')")


def _set(cluster: str) -> str:
    """The LaTeX of one character, or of a letter with its accent."""
    if cluster in _ESCAPES:
        return _ESCAPES[cluster]
    if cluster.isascii():
        return cluster
    parts = unicodedata.normalize("NFD", cluster)
    if len(parts) == 2 and parts[1] in _ACCENTS and parts[0].isascii() and parts[0].isalpha():
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return "".join(map(_code_point, cluster))


def _code_point(character: str) -> str:
    if character.isascii():
        return character
    return rf"\primebenchchar{{{ord(character):04X}}}"


def _groups(table: Table) -> Iterator[Sequence[Block]]:
    """Blocks set side by side: neighbours with the same columns and with rows in common."""
    rest = [part for block in table.blocks for part in _narrow(block)]
    while rest:
        width = len(_numbers(rest[0]))
        most = max(1, table.side_by_side // max(1, width))
        n = 1
        while n < min(most, len(rest)) and _fit_together(rest[0], rest[n]):
            n += 1
        yield rest[:n]
        rest = rest[n:]


def _fit_together(a: Block, b: Block) -> bool:
    rows = ({row.key for row in block.rows} for block in (a, b))
    return a.columns == b.columns and bool(set.intersection(*rows))


def _narrow(block: Block) -> Iterator[Block]:
    """The block, in parts below each other where it is too wide; Δ stays beside its arm."""
    names = len(_names(block))
    if sum(map(_width, block.columns[names:])) <= COLUMNS_PER_PAGE + 2:
        yield block
        return
    parts: list[list[int]] = [[]]
    width = 0
    for index in range(names, len(block.columns)):
        column, before = block.columns[index], block.columns[index - 1]
        same = column.group == before.group
        full = width >= COLUMNS_PER_PAGE or (not same and width > COLUMNS_PER_PAGE // 2)
        if parts[-1] and full and not is_beside_level(column, before):
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
    """Tabulars by page; a table without any has one float for its caption and notes."""
    floats: list[list[Tabular]] = [[]]
    lines = 0
    for tabular in tabulars:
        own = len(tabular.heads) + len(tabular.rows)
        if floats[-1] and lines + own > ROWS_PER_PAGE:
            floats.append([])
            lines = 0
        floats[-1].append(tabular)
        lines += own
    return floats


def _tabulars(blocks: Sequence[Block]) -> Iterator[Tabular]:
    """One tabular, or as many as the rows need, each with the heads."""
    whole = _tabular(blocks)
    for start in range(0, len(whole.rows), ROWS_PER_PAGE):
        rows = whole.rows[start : start + ROWS_PER_PAGE]
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
    """The lines of the body: rows with the same key, side by side; dashes where one is missing."""
    keys = list(dict.fromkeys(row.key for block in blocks for row in block.rows))
    own = [{row.key: row for row in block.rows} for block in blocks]
    # Summaries of the first block come last, also after rows that only the second block has.
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
    """The letter of a column of names: `l`, or one that breaks lines where a name is long."""
    cells = [printed(row.cells[index]).text for block in blocks for row in block.rows]
    return LONG_LETTER if max(map(len, cells), default=0) > LONG_WORDS else "l"


def _cell(cell: Cell) -> str:
    made = printed(cell)
    if made.missing:
        return made.text
    if not made.number:
        text = escaped(made.text)
        text = rf"\textbf{{{text}}}" if made.bold else text
    elif made.bold and not made.spread:
        text = rf"\textbf{{{made.number.replace('-', '$-$')}}}"
    else:
        inner = made.number + (rf"\pm{made.spread}" if made.spread else "")
        text = rf"$\mathbf{{{inner}}}$" if made.bold else f"${inner}$"
    dagger = r"\textsuperscript{\dag}" * made.dagger
    return text + dagger + (rf"\,({escaped(made.remark)})" if made.remark else "")


def _names(block: Block) -> list[Column]:
    """The columns that name the rows: the leading ones of words."""
    first = next((i for i, column in enumerate(block.columns) if column.kind != "words"), None)
    return list(block.columns[:first])


def _numbers(block: Block) -> list[Column]:
    return list(block.columns[len(_names(block)) :])


def _spanning(spans: Sequence[tuple[str, int]], *, n_before: int) -> list[str]:
    """A row of heads, each over several columns, and the rules below those with a label."""
    heads, rules, start = [""] * n_before, "", n_before + 1
    for label, width in spans:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{label}}}")
        rules += rf"\cmidrule(lr){{{start}-{start + width - 1}}}" if label else ""
        start += width
    return [" & ".join(heads).strip() + r" \\", rules]


# What \' and its like do in every encoding; \k for an ogonek would need T1.
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING MACRON}": "=",
    "\N{COMBINING BREVE}": "u",
    "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING RING ABOVE}": "r",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
    "\N{COMBINING CARON}": "v",
    "\N{COMBINING DOT BELOW}": "d",
    "\N{COMBINING CEDILLA}": "c",
    "\N{COMBINING MACRON BELOW}": "b",
}
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi"),
    "omega",
)
"""Small letters whose command is their name."""
_GREEK_CAPITALS = (
    *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega"),
)
_LATIN_OF_GREEK = {
    **{"ALPHA": "A", "BETA": "B", "EPSILON": "E", "ZETA": "Z", "ETA": "H", "IOTA": "I"},
    **{"KAPPA": "K", "MU": "M", "NU": "N", "OMICRON": "O", "RHO": "P", "TAU": "T", "CHI": "X"},
}
"""Capitals that have no command, since they look as Latin ones."""


def _greek(case: str, name: str) -> str:
    """The letter; Unicode spells one of them LAMDA."""
    return unicodedata.lookup(f"GREEK {case} LETTER {name.upper().replace('LAMBDA', 'LAMDA')}")


# Commands of mathematics that need no package.
_MATHEMATICS = {
    "±": "pm",
    "·": "cdot",
    "\N{MULTIPLICATION SIGN}": "times",
    "÷": "div",
    "≤": "le",
    "≥": "ge",
    "≠": "ne",
    "≈": "approx",
    "≡": "equiv",
    "\N{TILDE OPERATOR}": "sim",
    "∞": "infty",
    "∈": "in",
    "∑": "sum",
    "∏": "prod",
    "∂": "partial",
    "∇": "nabla",
    "√": "surd",
    "→": "to",
    "←": "leftarrow",
    "↑": "uparrow",
    "↓": "downarrow",
    "↔": "leftrightarrow",
    "⇒": "Rightarrow",
    "⇐": "Leftarrow",
    "⇔": "Leftrightarrow",
    "†": "dagger",
    "‡": "ddagger",
    "•": "bullet",
    "°": "circ",
}
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
    "`": r"\`{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': r"\textquotedblright{}",
    # After the \\ of the row before, or a rule, LaTeX takes these for an argument.
    "[": "{[}",
    "*": "{*}",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": r"\textendash{}",
    "\N{EM DASH}": r"\textemdash{}",
    "\N{LEFT SINGLE QUOTATION MARK}": r"\textquoteleft{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "…": r"\ldots{}",
    "§": r"\S{}",
    "¶": r"\P{}",
    "©": r"\copyright{}",
    "£": r"\pounds{}",
    "¡": r"\textexclamdown{}",
    "¿": r"\textquestiondown{}",
    "¹": "$^1$",
    "²": "$^2$",
    "³": "$^3$",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "\N{LATIN SMALL LETTER DOTLESS I}": r"\i{}",
    **{sign: rf"$\{command}$" for sign, command in _MATHEMATICS.items()},
    **{_greek("SMALL", name): rf"$\{name}$" for name in _GREEK},
    **{_greek("CAPITAL", name): rf"$\{name}$" for name in _GREEK_CAPITALS},
    **{_greek("CAPITAL", name): rf"$\mathrm{{{x}}}$" for name, x in _LATIN_OF_GREEK.items()},
    _greek("SMALL", "OMICRON"): "$o$",
    "\N{GREEK SMALL LETTER FINAL SIGMA}": r"$\varsigma$",
    "\N{MICRO SIGN}": r"$\mu$",
}
