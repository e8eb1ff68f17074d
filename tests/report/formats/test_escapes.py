"""Hostile names in every format, read by a real reader: each is text there and nothing else."""

import csv
import functools
import io
import json
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from prime_bench.base.characters import display_width, has_unseen, visible, visible_lines
from prime_bench.report.document import make_report
from prime_bench.report.figures.gallery import figures_of
from prime_bench.report.figures.save import figure_bytes, inline_svg
from prime_bench.report.formats import csv as csv_format
from prime_bench.report.formats import latex, markdown, text
from prime_bench.report.formats.render import Format, render
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Report
from prime_bench.store.record import RunRecord

VECTORS = Path(__file__).parents[2] / "vectors" / "hostile_names.json"
HOSTILE: dict[str, str] = json.loads(VECTORS.read_text(encoding="utf-8"))
FORMATS: tuple[Format, ...] = get_args(Format)
each_name = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())

MakeRecord = Callable[..., RunRecord]


def in_a_line(name: str) -> str:
    """A name as formats print it, before their own escapes: see `base.characters`."""
    return visible(" ".join(name.split()))


@functools.cache
def markdown_reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def leaves(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from leaves(token.children) if token.children else [token]


def markdown_text(source: str, wanted: set[str]) -> list[str]:
    """The texts of a document's blocks; every element in it is one of `wanted`."""
    tokens = markdown_reader().parse(source)
    kinds = {token.type for token in leaves(tokens)}
    assert kinds <= wanted | {"text", "text_special"}, kinds
    return [
        "".join(leaf.content for leaf in leaves([token]))
        for token in tokens
        if token.type == "inline"
    ]


@each_name
@pytest.mark.parametrize(
    ("before", "behind", "kind"),
    [
        ("", "", "paragraph"),
        ("# ", "", "heading"),
        ("- ", "\n- next", "list_item"),
        ("| a | b |\n|---|---|\n| ", " | 1 |", "table"),
    ],
    ids=["paragraph", "heading", "list", "table"],
)
def test_markdown_reads_a_name_as_text(name: str, before: str, behind: str, kind: str) -> None:
    own = {
        "paragraph": {"paragraph_open", "paragraph_close"},
        "heading": {"heading_open", "heading_close"},
        "list_item": {
            *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
            *("paragraph_open", "paragraph_close"),
        },
        "table": {
            f"{part}_{end}"
            for part in ("table", "thead", "tbody", "tr", "th", "td")
            for end in ("open", "close")
        },
    }[kind]
    texts = markdown_text(f"{before}{markdown.escaped(name)}{behind}\n", own)
    assert in_a_line(name) in texts
    assert len(texts) == {"paragraph": 1, "heading": 1, "list_item": 2, "table": 4}[kind]


@pytest.mark.parametrize(
    "words", ["residual_parameters", "+0.0022 (4/5)", "-0.1", "A & B", "1.5 ms"]
)
def test_markdown_leaves_plain_words_alone(words: str) -> None:
    assert markdown.escaped(words) == words


class Elements(HTMLParser):
    """Elements, attributes and texts of a page, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def report_with(make_record: MakeRecord, *names: str) -> Report:
    """A report in which the names stand wherever one can: rows, heads, blocks, notes."""
    records = [
        make_record(
            dataset=names[0],
            backbone=name,
            arm=arm,
            plugin=plugin,
            plugin_settings={names[0]: names[0]},
            seed=seed,
            auc=0.75 + shift + 0.001 * seed,
            logloss=0.4 - shift,
            notes=(name,),
            device=name,
            commit=name,
            dirty=True,
            torch=name,
            degenerate=name if seed == 1 else None,
        )
        for name in names
        for arm, plugin, shift in (("dense", "dense", 0.0), (names[0], "prime", 0.01))
        for seed in (1, 2)
    ]
    return make_report(gather(records), definitions={"main": load_definition("main")})


@each_name
def test_html_has_the_elements_of_a_harmless_page_and_the_name_as_text(
    make_record: MakeRecord, name: str
) -> None:
    page = Elements(render(report_with(make_record, name), "html"))
    harmless = Elements(render(report_with(make_record, "harmless"), "html"))
    assert page.tags == harmless.tags
    assert page.attributes == harmless.attributes
    texts = re.sub(r"\s", "", "".join(page.texts))
    assert re.sub(r"\s", "", visible_lines(name)) in texts


@pytest.mark.parametrize("format", FORMATS)
def test_no_format_has_a_character_that_cannot_be_seen(
    make_record: MakeRecord, format: Format
) -> None:
    report = report_with(make_record, *HOSTILE.values())
    # HTML keeps line breaks and tabs, which are spaces in it.
    spaces = r"[\n\t]" if format == "html" else r"\n"
    assert not has_unseen(re.sub(spaces, "", render(report, format)))


@each_name
def test_json_keeps_a_name_exactly(make_record: MakeRecord, name: str) -> None:
    content = json.loads(render(report_with(make_record, name), "json"))
    assert {pair["dataset"] for pair in content["pairs"]} == {name}


@each_name
def test_csv_gives_a_name_back_and_no_cell_is_a_formula(make_record: MakeRecord, name: str) -> None:
    """A spreadsheet shows a cell that begins with an apostrophe as it is."""
    lines = list(csv.DictReader(io.StringIO(render(report_with(make_record, name), "csv"))))
    cells = {cell for line in lines for cell in line.values()}
    for cell in cells:
        if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\uff1d")):
            assert re.fullmatch(r"--|[-+][\d.]+", cell), cell
    assert {line["block"].removeprefix("'") for line in lines} == {visible(name)}


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        *((cell, cell) for cell in ("-0.0010", "+0.0022±0.0003", "--", "4/5", "1,234", "a=b", "")),
        ("-0.0001 to +0.0020 (95.0%)", "-0.0001 to +0.0020 (95.0%)"),
        *(
            (cell, f"'{cell}")
            for cell in ("=1", "-2+3", "+x", "-", "@a", "-1 to cmd", "\uff1d1", "---")
        ),
    ],
)
def test_a_number_is_no_formula(cell: str, written: str) -> None:
    assert csv_format.escaped(cell) == written


@each_name
def test_text_has_the_lines_of_a_harmless_report_in_columns(
    make_record: MakeRecord, name: str
) -> None:
    printed = text.render(report_with(make_record, name), width=2000)
    rule = re.compile(r"-+(  -+)+")
    lines = printed.splitlines()
    starts = [index for index, line in enumerate(lines) if rule.fullmatch(line)]
    assert starts
    for start in starts:
        width = display_width(lines[start])
        assert display_width(lines[start + 1]) <= width
        assert display_width(lines[start - 1]) <= width
    assert in_a_line(name) in printed


def test_digits_of_rows_with_wide_names_stand_below_each_other(make_record: MakeRecord) -> None:
    records = [
        make_record(backbone=backbone, arm=arm)
        for backbone in ("DNN", "中文网络", "e\u0301\u0302te\u0301", "👩‍🔬")
        for arm in ("dense", "prime")
    ]
    report = make_report(gather(records), definitions={"main": load_definition("main")})
    rows = [line for line in text.render(report, width=200).splitlines() if " 0.7" in line]
    assert len(rows) == 5
    assert len({display_width(row[: row.index("0.7")]) for row in rows}) == 1
    lines = [line for line in render(report, "markdown").splitlines() if line.startswith("|")]
    assert len({display_width(line) for line in lines}) == 1


needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")


def compiled(folder: Path, *, engine: str, name: str) -> str:
    """The log of a run of LaTeX."""
    done = subprocess.run(
        [engine, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", name],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-1500:]
    return log


@needs_latex
@pytest.mark.parametrize("first", range(0, len(HOSTILE), 13))
def test_latex_sets_every_name(tmp_path: Path, make_record: MakeRecord, first: int) -> None:
    """Alone in T1 fonts, and in a document of the plainest class with the oldest fonts, OT1."""
    names = [*HOSTILE.values()][first : first + 13]
    (tmp_path / "x.tex").write_text(
        render(report_with(make_record, *names), "latex"), encoding="utf-8"
    )
    (tmp_path / "host.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs,graphicx}"
        r"\begin{document}\input{x}\end{document}"
    )
    for name in ("x.tex", "host.tex"):
        assert "Missing character" not in compiled(tmp_path, engine="pdflatex", name=name)


# What pdftotext gives back of a sign that LaTeX sets as another one.
READ_BACK = {
    **{"\u2212": "-", "\u2217": "*", "\u02dc": "~", "\u02c6": "^", "\u2032": "'"},
    # The double quote and ligatures of a T1 font that has no table of Unicode.
    **{"\x11": '"', "\x1b": "ff", "\x1c": "fi", "\x1d": "fl", "\x1e": "ffi"},
    **{"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'},
}


@needs_latex
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext")
def test_a_reader_of_the_pdf_finds_each_name(tmp_path: Path) -> None:
    """In T1 fonts with a glyph for every ASCII sign; what is not ASCII is looked at by eye."""
    names = [in_a_line(name) for name in HOSTILE.values()]
    plain = [name for name in names if name.isascii()]
    assert len(plain) > 30
    lines = "\n\n".join(latex.escaped(name) + r"\par" for name in plain)
    document = (
        "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage[paperwidth=90cm]{geometry}"
        "\\pdfgentounicode=1\\input{glyphtounicode}\\pagestyle{empty}\\begin{document}"
        "\\providecommand\\primebenchchar[1]{\\texttt{U+#1}}\\hyphenpenalty=10000\\raggedright\n"
        f"{lines}\n\\end{{document}}\n"
    )
    (tmp_path / "x.tex").write_text(document, encoding="utf-8")
    compiled(tmp_path, engine="pdflatex", name="x.tex")
    done = subprocess.run(
        ["pdftotext", "-enc", "UTF-8", "x.pdf", "-"], cwd=tmp_path, capture_output=True, check=True
    )
    found = done.stdout.decode("utf-8")
    letters = found.translate(str.maketrans(READ_BACK))
    flat = re.sub(r"[\s`]", "", unicodedata.normalize("NFKC", letters))
    for name in plain:  # The grave accent alone has no code point in these fonts.
        assert re.sub(r"[\s`]", "", name) in flat, name


def test_a_figure_is_well_formed_and_has_its_names_as_text(make_record: MakeRecord) -> None:
    """Both as a file, which is XML, and inside the page."""
    dataset, arm_name = HOSTILE["raw HTML"], HOSTILE["end of CDATA"]
    backbones = [HOSTILE[key] for key in ("ANSI", "CJK", "LaTeX commands", "line breaks")]
    records = [
        make_record(
            dataset=dataset, backbone=name, arm=arm, plugin=plugin, plugin_settings={}, seed=seed
        )
        for name in backbones
        for arm, plugin in {"dense": "dense", arm_name: "prime"}.items()
        for seed in (1, 2)
    ]
    figures = figures_of(gather(records), baseline="dense")
    assert len(figures) >= 4
    for figure in figures:
        file = ElementTree.fromstring(figure_bytes(figure.figure, "svg", name=figure.name))
        assert file.tag == "{http://www.w3.org/2000/svg}svg"
        inside = Elements(inline_svg(figure))
        assert not {"script", "img", "b"} & {*inside.tags}
        assert not any(attribute.startswith("on") for attribute in inside.attributes)
        assert not has_unseen("".join(inside.texts).replace("\n", ""))
        figure_bytes(figure.figure, "pdf", name=figure.name)
