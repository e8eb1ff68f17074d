"""The formats: golden files, and the traps of digits, ids and escapes."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import click
import pytest

from prime_bench.cli.report import report as report_command
from prime_bench.report.document import make_report
from prime_bench.report.formats import latex, markdown
from prime_bench.report.formats.cells import printed
from prime_bench.report.formats.render import SUFFIXES, Format, render, write_report
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Report
from prime_bench.store.record import RunRecord

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS: tuple[Format, ...] = get_args(Format)

MakeRecord = Callable[..., RunRecord]


def report_of(records: Sequence[RunRecord]) -> Report:
    return make_report(gather(records), definitions={"main": load_definition("main")})


@pytest.fixture
def two_arms(full_set: list[RunRecord]) -> list[RunRecord]:
    """As the paper's table: Dense and PRIME on two data sets, side by side."""
    return [record for record in full_set if record.arm in ("dense", "prime")]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        *((f"three/main.{SUFFIXES[format]}", format) for format in FORMATS if format != "html"),
        ("two/main.md", "markdown"),
        ("two/main.tex", "latex"),
    ],
)
def test_golden(
    full_set: list[RunRecord],
    two_arms: list[RunRecord],
    tmp_path: Path,
    name: str,
    format: Format,
) -> None:
    """To accept a change, copy the file that the message names over the golden one."""
    made, golden = tmp_path / Path(name).name, GOLDEN / name
    records = full_set if name.startswith("three") else two_arms
    made.write_text(render(report_of(records), format), encoding="utf-8")

    assert golden.is_file(), f"read {made}, and copy it to {golden}"
    assert made.read_text(encoding="utf-8") == golden.read_text(encoding="utf-8"), made


def test_the_command_offers_every_format() -> None:
    (option,) = [option for option in report_command.params if option.name == "format"]

    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == FORMATS, "the choices are in prime_bench/cli/report.py"
    assert set(SUFFIXES) == set(FORMATS)


def test_order_of_records_changes_nothing(full_set: list[RunRecord]) -> None:
    assert render(report_of(full_set[::-1]), "json") == render(report_of(full_set), "json")


@pytest.mark.parametrize("format", FORMATS)
def test_digits_and_ids_survive(make_record: MakeRecord, format: Format) -> None:
    """0.8140 keeps its zero, -0.0000 never appears, 12335e61 and 00012345 are no numbers."""
    records = [
        make_record(arm=arm, seed=seed, auc=auc, logloss=loss, fingerprint=print_ + "0" * 56)
        for print_ in ("12335e61", "00012345")
        for arm, aucs, losses in (
            ("dense", (0.8135, 0.8145), (0.4, 0.4)),
            ("prime", (0.8145, 0.8155), (0.40001, 0.40001)),
        )
        for seed, auc, loss in zip((7, 8), aucs, losses, strict=True)
    ]
    text = render(report_of(records), format)

    if format != "csv":
        assert "12335e61" in text
        assert "00012345" in text
    assert not re.search(r"-0\.0000\b", text)
    if format != "json":
        assert "0.8140" in text
        assert "+0.0010" in text


def test_a_column_of_bare_numbers_keeps_its_zeros(make_record: MakeRecord) -> None:
    """One arm and no baseline: nothing but numbers, which tabulate would rewrite."""
    records = [
        make_record(arm="prime", auc=0.814, logloss=0.4),
        make_record(arm="prime", backbone="DCNv2", auc=0.8, logloss=1.0),
    ]
    text = re.sub(" +", " ", render(report_of(records), "markdown"))

    assert "| DNN | 0.8140 | 0.4000 |" in text
    assert "| DCNv2 | 0.8000 | 1.0000 |" in text
    assert "| Mean | 0.8070 | 0.7000 |" in text


def test_json_has_every_pair_in_full_precision(full_set: list[RunRecord]) -> None:
    content = json.loads(render(report_of(full_set), "json"))
    scores = {(r.dataset, r.job.backbone, r.job.seed, r.arm): r.result.test for r in full_set}

    assert content["schema"] == 2
    assert len(content["pairs"]) == 2 * 3 * 5
    for pair in content["pairs"]:
        assert "dense" in pair["arms"]
        for arm, found in pair["arms"].items():
            expected = scores[pair["dataset"], pair["backbone"], pair["seed"], arm]
            assert found["test_auc"] == expected.auc
            assert found["test_logloss"] == expected.logloss
    (mispaired,) = [
        pair
        for pair in content["pairs"]
        if (pair["dataset"], pair["backbone"], pair["seed"]) == ("avazu", "DCNv2", 948432)
    ]
    assert set(mispaired["arms"]) == {"dense", "residual_parameters"}
    assert len(content["dropped_pairs"]) == 1 + 5


def test_csv_has_every_cell_in_full_precision(full_set: list[RunRecord]) -> None:
    report = report_of(full_set)
    lines = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    (table,) = report.tables
    place = ("table", "block", "row", "column")
    addresses = [".".join(line[key] for key in place) for line in lines]

    assert addresses == [address for address, _ in table.cells()]
    assert len(set(addresses)) == 2 * (3 + 4) * 11
    for line, (_, cell) in zip(lines, table.cells(), strict=True):
        assert line["text"] == printed(cell).text
        assert line["value"] == ("" if cell.value is None else repr(cell.value))
        assert line["sd"] == ("" if cell.quantity.sd is None else repr(cell.quantity.sd))


def test_every_format_has_the_same_digits(full_set: list[RunRecord]) -> None:
    report = report_of(full_set)
    texts = {format: render(report, format) for format in FORMATS}
    texts_of_cells = [printed(cell).text for _, cell in report.tables[0].cells()]
    digits = [text for text in texts_of_cells if re.search(r"\d", text)]

    assert len(digits) > 100
    for text in digits:
        as_latex = text.replace("±", r"\pm")
        for format, whole in texts.items():
            plain = whole.replace('<span class="spread">', "").replace("</span>", "")
            assert (as_latex if format == "latex" else text) in plain, (format, text)


def test_bold_is_raw_and_positive(make_record: MakeRecord) -> None:
    records = [
        make_record(arm=arm, seed=1, auc=0.75 + shift, logloss=0.4 + shift)
        for arm, shift in (("dense", 0.0), ("prime", 0.00001))
    ]
    worse = make_record(arm="residual_parameters", seed=1, auc=0.74, logloss=0.41)
    report = report_of([*records, worse])
    latex, markdown = render(report, "latex"), render(report, "markdown")

    assert latex.count("$-0.0100$") == 6
    assert r"\textbf{-" not in latex
    assert "**-" not in markdown
    assert latex.count(r"\textbf{+0.0000}") == 3  # the cell, Mean and paired median of AUC
    assert "**+0.0000** (1/1)" in markdown
    assert "| 0.0000 (0/1) |" in re.sub(" +", " ", markdown)


def test_missing_cells_are_dashes_and_fewer_seeds_are_said(make_record: MakeRecord) -> None:
    records = [
        *(make_record(seed=seed) for seed in (1, 2, 3)),
        *(make_record(seed=seed, arm="prime") for seed in (1, 2)),
        make_record(seed=1, backbone="DCNv2"),
    ]
    markdown = re.sub(" +", " ", render(report_of(records), "markdown"))

    assert re.search(r"\| DNN \| [\d.±]+ \| [\d.±]+ \(n=2\) \| [^|]*\d/2\) \|", markdown)
    assert re.search(r"\| DCNv2 \| 0\.\d{4} \(n=1\) \| -- \| -- \|", markdown)


@pytest.mark.parametrize("arms", ["three", "two"])
def test_latex_rows_fit_their_columns(arms: str) -> None:
    text = (GOLDEN / arms / "main.tex").read_text(encoding="utf-8")
    bare = re.sub(r"\\[&{}%_$#\\]", "", text.replace("\\\\\n", "\n"))
    tables = re.findall(r"\\begin\{tabular\}\{(.*?)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)

    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert len(tables) == {"three": 2, "two": 1}[arms]
    for letters, body in tables:
        width = len(re.sub(r"@\{.*?\}\}?", "", letters))
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert width == {"three": 11, "two": 13}[arms]
        assert len(rows) == 3 + 3 + 4
        for row in rows:
            spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
            cells = len(re.findall(r"(?<!\\)&", row)) + 1
            assert cells + sum(spans) - len(spans) == width, row


HOST = r"""
\documentclass[twocolumn]{article}
\usepackage{booktabs}
\usepackage{graphicx}
\begin{document}
\input{main.tex}
Text goes on.
\end{document}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("golden", ["three/main.tex", "two/main.tex", "records/report.tex"])
@pytest.mark.parametrize("way", ["alone", "inside"])
def test_latex_compiles(tmp_path: Path, golden: str, way: str) -> None:
    """Alone and by \\input in a document of two columns; the third has every kind of table."""
    shutil.copy(GOLDEN / golden, tmp_path / "main.tex")
    (tmp_path / "host.tex").write_text(HOST, encoding="utf-8")
    done = subprocess.run(
        [
            *("pdflatex", "-interaction=nonstopmode", "-halt-on-error"),
            {"alone": "main.tex", "inside": "host.tex"}[way],
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "incomplete" not in done.stdout
    assert len(list(tmp_path.glob("*.pdf"))) == 1


def test_csv_has_the_pairs_won_beside_the_seeds(make_record: MakeRecord) -> None:
    records = [make_record(arm=arm, seed=s) for arm in ("dense", "prime") for s in (1, 2, 3)]
    lines = csv.DictReader(io.StringIO(render(report_of(records[:-1]), "csv")))
    remarks = {(line["row"], line["column"]): line["remark"] for line in lines}

    assert remarks["DNN", "auc.prime"] == "n=2"
    assert remarks["DNN", "auc.prime.delta"] == "n=2; 2/2"


def test_words_are_escaped() -> None:
    assert latex.escaped(r"a_b & 5% {x} \y ~^ <") == (
        r"a\_b \& 5\% \{x\} \textbackslash{}y \textasciitilde{}\textasciicircum{} $<$"
    )
    assert markdown.escaped("a|b\n*c*") == r"a\|b \*c\*"


def test_an_arms_label_cannot_break_a_table(make_record: MakeRecord) -> None:
    name = "50% a|b & {x}_\\"
    records = [make_record(), make_record(arm=name, plugin="prime", plugin_settings={"k": 1})]
    report = report_of(records)

    assert r"50\% a$|$b \& \{x\}\_\textbackslash{}" in render(report, "latex")
    rows = [line for line in render(report, "markdown").splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    (pair,) = json.loads(render(report, "json"))["pairs"]
    assert set(pair["arms"]) == {"dense", name}


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_written_with_a_csv_beside(
    full_set: list[RunRecord], tmp_path: Path, format: Format
) -> None:
    report = report_of(full_set)
    folder = tmp_path / "new" / "folder"
    written = write_report(report, folder, format=format)
    name = "report.html" if format == "html" else f"main.{SUFFIXES[format]}"

    assert set(written) == {"main"}
    assert {path.name for path in folder.iterdir()} == {name, "main.csv"}
    assert {path.name for path in written["main"]} == {name, "main.csv"}
    # A spreadsheet needs the mark, which is no part of the text.
    mark = "\N{BYTE ORDER MARK}" if format == "csv" else ""
    assert (folder / name).read_text(encoding="utf-8") == mark + render(report, format)
