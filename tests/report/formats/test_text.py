"""Plain text: lines fit the terminal, and every number stands in one piece in its place."""

import itertools
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from prime_bench.report.document import make_report
from prime_bench.report.formats import markdown, text
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Report
from prime_bench.report.view import compared_with
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

RECORDS = Path(__file__).parents[2] / "records"
TABLES = (
    *("main", "apg", "cost", "gradients", "routing", "subgroups"),
    *("family", "cells", "pairs"),
)
NUMBER = re.compile(r"[+-]?\d+\.\d+(?:±\d+\.\d+)?|\d+/\d+")


@pytest.fixture(scope="module")
def report() -> Report:
    """Every kind of table, from the stored records."""
    found, _ = Runs(RECORDS).readable()
    records = gather(
        [record for record in found if isinstance(record, RunRecord)],
        probes=[record for record in found if isinstance(record, ProbeRecord)],
    )
    return make_report(records, definitions={name: load_definition(name) for name in TABLES})


def main_of(records: list[RunRecord]) -> Report:
    return make_report(gather(records), definitions={"main": load_definition("main")})


def numbers_of(printed: str) -> Counter[str]:
    return Counter(NUMBER.findall(printed.replace("*", "")))


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(report: Report, width: int) -> None:
    assert max(map(len, text.render(report, width=width).splitlines())) <= width


@pytest.mark.parametrize("width", [20, 33, 80])
def test_a_table_of_words_alone_is_there_at_every_width(report: Report, width: int) -> None:
    compared, _ = compared_with(report, against="paper", check=None)
    printed = text.render(compared, width=width)
    assert compared.tables[0].name == "claims"
    assert printed.count("PRIME") >= len(compared.tables[0].blocks[0].rows)


@pytest.mark.parametrize("width", [40, 80, 400])
def test_every_number_of_markdown_is_there_as_often(report: Report, width: int) -> None:
    """Names of rows, which hold no number in these tables, are repeated in each part."""
    assert numbers_of(text.render(report, width=width)) == numbers_of(markdown.render(report))


def test_metrics_stand_below_each_other(full_set: list[RunRecord]) -> None:
    printed = text.render(main_of(full_set), width=100)
    headings = [line for line in printed.splitlines() if line.startswith(("Avazu", "Criteo"))]

    assert headings == ["Avazu: AUC", "Avazu: LogLoss", "Criteo: AUC", "Criteo: LogLoss"]


def test_a_wide_terminal_has_whole_tables(full_set: list[RunRecord]) -> None:
    lines = text.render(main_of(full_set), width=400).splitlines()

    assert [line for line in lines if line in ("Avazu", "Criteo")] == ["Avazu", "Criteo"]
    assert sum(line.split() == ["AUC", "LogLoss"] for line in lines) == 2
    assert max(map(len, lines)) > text.LONGEST_LINE
    caption = lines[3 : lines.index("Avazu") - 1]
    assert max(map(len, caption)) <= text.LONGEST_LINE


def test_a_column_is_as_wide_as_its_letters() -> None:
    """Each of the letters has two places."""
    kinds = {"words": False, "breaks": False, "continues": False}
    column = text.TextColumn(head="一个 名称", group="", cells=("0.1",), bold=(False,), **kinds)

    assert (column.widest, column.narrowest) == (9, 4)
    assert replace(column, cells=("一个 名称 长",)).widest == 12


def test_no_rule_stands_below_that_of_the_heads(full_set: list[RunRecord]) -> None:
    report = main_of(full_set)
    (table,) = report.tables
    blocks = tuple(
        replace(block, rows=tuple(row for row in block.rows if row.key == "mean"))
        for block in table.blocks
    )
    lines = text.render(replace(report, tables=(replace(table, blocks=blocks),))).splitlines()

    assert sum(line.startswith("Mean") for line in lines) >= 2
    rules = [line.startswith("--") for line in lines]
    assert not any(one and other for one, other in itertools.pairwise(rules))


def test_a_difference_stays_beside_its_arm(full_set: list[RunRecord]) -> None:
    """Parts of a narrow terminal begin with a level, never with a difference alone."""
    lines = text.render(main_of(full_set), width=50).splitlines()
    heads = [line.split() for line, rule in itertools.pairwise(lines) if rule[:2] == "--"]

    assert any(head[0] == "Backbone" for head in heads)
    assert all(head[1] != "Δ" for head in heads if head[0] == "Backbone")
    assert "Avazu: AUC (continued)" in lines


def test_digits_stand_below_each_other(full_set: list[RunRecord]) -> None:
    lines = text.render(main_of(full_set), width=400).splitlines()
    start = lines.index("Avazu")
    rows = [line for line in lines[start : start + 12] if "±" in line]
    signs = [[match.start() for match in re.finditer("±", row)] for row in rows]

    assert len(rows) == 4
    assert all(places == signs[0] for places in signs)


def test_bold_adds_escapes_and_nothing_else(report: Report) -> None:
    plain, bold = text.render(report), text.render(report, bold=True)

    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", bold) == plain
    assert "\x1b[1m+0.0022 4/5\x1b[0m" in bold


def test_ids_are_not_broken(full_set: list[RunRecord]) -> None:
    report = main_of(full_set)
    name = "0123456789abcdef-" * 8
    noted = replace(report.tables[0], caption=f"Made from {name} alone")

    assert name in text.render(replace(report, tables=(noted,))).splitlines()
