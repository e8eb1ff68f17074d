"""The formats: golden files, and the traps of digits, ids and escapes."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from prime_bench.report.definition import load_definition
from prime_bench.report.document import Report, make_report
from prime_bench.report.render import (
    SUFFIXES,
    Format,
    render,
    render_csv,
    render_json,
    render_latex,
    render_markdown,
    write_report,
)
from prime_bench.report.typeset import Latex, Markdown
from prime_bench.store.record import RunRecord

GOLDEN = Path(__file__).parent / "golden"
FORMATS: tuple[Format, ...] = ("markdown", "latex", "json")

MakeRecord = Callable[..., RunRecord]


def report_of(records: Sequence[RunRecord]) -> Report:
    return make_report(records, definition=load_definition("main"))


@pytest.fixture
def two_arms(full_set: list[RunRecord]) -> list[RunRecord]:
    """As the paper's table: Dense and PRIME on two data sets, side by side."""
    return [record for record in full_set if record.arm in ("dense", "prime")]


@pytest.mark.parametrize(
    ("name", "text_of"),
    [
        ("three/main.md", render_markdown),
        ("three/main.tex", render_latex),
        ("three/main.json", render_json),
        ("three/main.csv", render_csv),
        ("two/main.md", render_markdown),
        ("two/main.tex", render_latex),
    ],
)
def test_golden(
    full_set: list[RunRecord],
    two_arms: list[RunRecord],
    tmp_path: Path,
    name: str,
    text_of: Callable[[Report], str],
) -> None:
    """To accept a change, copy the file that the message names over the golden one."""
    made = tmp_path / Path(name).name
    records = full_set if name.startswith("three") else two_arms
    made.write_text(text_of(report_of(records)), encoding="utf-8")

    assert made.read_text(encoding="utf-8") == (GOLDEN / name).read_text(encoding="utf-8"), made


def test_order_of_records_changes_nothing(full_set: list[RunRecord]) -> None:
    assert render_json(report_of(full_set[::-1])) == render_json(report_of(full_set))


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
    text = re.sub(" +", " ", render_markdown(report_of(records)))

    assert "| DNN | 0.8140 | 0.4000 |" in text
    assert "| DCNv2 | 0.8000 | 1.0000 |" in text
    assert "| Mean | 0.8070 | 0.7000 |" in text


def test_json_has_every_pair_in_full_precision(full_set: list[RunRecord]) -> None:
    content = json.loads(render_json(report_of(full_set)))
    scores = {(r.dataset, r.job.backbone, r.job.seed, r.arm): r.result.test for r in full_set}

    assert content["schema"] == 1
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


def test_csv_is_the_table_in_full_precision(full_set: list[RunRecord]) -> None:
    report = report_of(full_set)
    lines = list(csv.DictReader(io.StringIO(render_csv(report))))
    panel = report.table.panels[0]

    assert len(lines) == 2 * (3 + 1) * 3 * 2
    (line,) = [
        line
        for line in lines
        if (line["dataset"], line["row"], line["arm"], line["metric"])
        == ("Avazu", "DCNv2", "prime", "auc")
    ]
    moments = panel.cells["DCNv2", "prime", "auc"].moments
    comparison = panel.comparisons["DCNv2", "prime", "auc"]
    assert moments is not None
    assert (float(line["mean"]), float(line["sd"])) == (moments.mean, moments.sd)
    assert (float(line["delta_mean"]), float(line["delta_median"])) == (
        comparison.mean,
        comparison.median,
    )
    assert (line["n"], line["pairs"], line["wins"], line["smallest_p"]) == ("5", "4", "4", "0.125")


def test_bold_is_raw_and_positive(make_record: MakeRecord) -> None:
    records = [
        make_record(arm=arm, seed=1, auc=0.75 + shift, logloss=0.4 + shift)
        for arm, shift in (("dense", 0.0), ("prime", 0.00001))
    ]
    worse = make_record(arm="residual_parameters", seed=1, auc=0.74, logloss=0.41)
    report = report_of([*records, worse])
    latex, markdown = render_latex(report), render_markdown(report)

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
    markdown = re.sub(" +", " ", render_markdown(report_of(records)))

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


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("arms", ["three", "two"])
def test_latex_compiles(tmp_path: Path, arms: str) -> None:
    table = (GOLDEN / arms / "main.tex").read_text(encoding="utf-8")
    head = "\\documentclass[twocolumn]{article}\n\\usepackage{booktabs}\n\\usepackage{graphicx}\n"
    (tmp_path / "t.tex").write_text(
        f"{head}\\begin{{document}}\n{table}\n\\end{{document}}\n", encoding="utf-8"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert (tmp_path / "t.pdf").stat().st_size > 0


def test_words_are_escaped() -> None:
    assert Latex(decimals=4).text(r"a_b & 5% {x} \y ~^ <") == (
        r"a\_b \& 5\% \{x\} \textbackslash{}y \textasciitilde{}\textasciicircum{} $<$"
    )
    assert Markdown(decimals=4).text("a|b\n*c*") == r"a\|b \*c\*"


def test_an_arms_label_cannot_break_a_table(make_record: MakeRecord) -> None:
    name = "50% a|b & {x}_\\"
    records = [make_record(), make_record(arm=name, plugin="prime", plugin_settings={"k": 1})]
    report = report_of(records)

    assert r"50\% a$|$b \& \{x\}\_\textbackslash{}" in render_latex(report)
    rows = [line for line in render_markdown(report).splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert json.loads(render_json(report))["arms"][1]["name"] == name


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_written_with_a_csv_beside(
    full_set: list[RunRecord], tmp_path: Path, format: Format
) -> None:
    report = report_of(full_set)
    paths = write_report(report, tmp_path / "new" / "folder", name="main", format=format)

    assert [path.name for path in paths] == [f"main.{SUFFIXES[format]}", "main.csv"]
    assert paths[0].read_text(encoding="utf-8") == render(report, format)
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(
        path.name for path in paths
    )
