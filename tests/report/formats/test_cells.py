"""Typed cells as text, and notes that several tables share."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from prime_bench.report.document import make_report
from prime_bench.report.formats import latex
from prime_bench.report.formats.cells import interval_text, note_text, printed
from prime_bench.report.formats.render import render
from prime_bench.report.quantities.formulas import SeedInterval, Tally, t_interval
from prime_bench.report.quantities.records import gather
from prime_bench.report.quantities.values import (
    MISSING,
    Count,
    Difference,
    EquivalenceVerdict,
    Extent,
    Level,
    Quantity,
    count,
)
from prime_bench.report.tables.comparison import claims_table, expected_table
from prime_bench.report.tables.expected import ExpectedNumbers
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Cell, Report, note, shown, words
from prime_bench.store.record import RunRecord

MakeRecord = Callable[..., RunRecord]
INTERVAL = SeedInterval(n=3, mean=0.002, low=-0.0005, high=0.0045, confidence=0.95)
INTERVAL_TEXT = "n=3, 95 % interval -0.0005 to +0.0045"
TALLY = Tally(wins=3, ties=1, losses=1)


@pytest.mark.parametrize(("value", "text"), [(0, "+0"), (3, "+3"), (-2, "-2")])
def test_a_difference_of_counts_has_a_sign_even_where_it_is_zero(value: int, text: str) -> None:
    assert printed(shown(Difference(value=value), 0)).text == text


@pytest.mark.parametrize(
    ("sd", "emphasised", "text"),
    [
        (None, False, "$-0.814$"),
        (0.001, False, r"$-0.814\pm0.001$"),
        (None, True, r"\textbf{$-$0.814}"),
        (0.001, True, r"$\mathbf{-0.814\pm0.001}$"),
    ],
)
def test_a_number_in_latex_is_bold_with_its_spread(
    sd: float | None, emphasised: bool, text: str
) -> None:
    cell = Cell(quantity=Level(value=-0.814, sd=sd), decimals=3, emphasised=emphasised)
    assert latex._cell(cell) == text


@pytest.mark.parametrize(
    ("quantity", "text", "remark", "aside"),
    [
        (Level(value=0.814, sd=0.001), "0.8140±0.0010", "", ""),
        (Level(value=0.814, n=4, planned=5), "0.8140", "n=4", ""),
        (Level(value=0.814, n=5, planned=5), "0.8140", "", ""),
        (
            Level(value=0.814, interval=INTERVAL),
            "0.8140",
            "",
            "n=3, 95 % interval -0.0005 to +0.0045",
        ),
        (MISSING, "--", "", ""),
        (Level(n=0, planned=5, degenerate=True), "--", "", ""),
        (Difference(value=0.00001, sd=0.1), "+0.0000", "", ""),
        (Difference(value=-0.00001), "0.0000", "", ""),
        (Difference(value=0.001, tally=TALLY), "+0.0010", "", "3/5, 1 tied"),
        (count(4, 5), "4/5", "", ""),
        (count(3, 5, ties=1), "3/5", "1 tied", ""),
        (count(1000), "1,000", "", ""),
        (count(0, 0), "--", "", ""),
        (Count(value=4), "4", "", ""),
        (Count(value=4, of=5), "4/5", "", ""),
        (Extent(low=-0.001, high=0.002), "-0.0010 to +0.0020", "", ""),
        (Extent(low=-0.001, high=0.002, confidence=0.9375), "-0.0010 to +0.0020 (93.8%)", "", ""),
        (EquivalenceVerdict(verdict="unclear", margin=0.001), "unclear (0.0010)", "", ""),
    ],
)
def test_a_quantity_is_printed(quantity: Quantity, text: str, remark: str, aside: str) -> None:
    made = printed(shown(quantity, 4))

    assert (made.text, made.remark, made.aside) == (text, remark, aside)


@pytest.mark.parametrize(
    ("value", "better", "bold"),
    [
        (1e-9, "higher", True),
        (0.0, "higher", False),
        (-1e-9, "lower", True),
        (None, "lower", False),
    ],
)
def test_bold_is_decided_from_the_number(value: float | None, better: str, bold: bool) -> None:
    assert shown(Difference(value=value, better=better), 4).emphasised == bold


def test_words_and_notes_have_the_text_of_their_cells() -> None:
    cell = shown(Level(value=0.5), 2)

    assert printed(words("a {b} ", cell, " c")).text == "a {b} 0.50 c"
    assert note_text(note("data", "of ", cell)) == "of 0.50"


@pytest.fixture
def report(make_record: MakeRecord) -> Report:
    records = [
        make_record(arm=arm, seed=seed, notes=("a fact of the data",), verified=False)
        for arm in ("dense", "prime")
        for seed in (1, 2)
    ]
    names = ("main", "family", "cells")
    return make_report(gather(records), definitions={n: load_definition(n) for n in names})


@pytest.mark.parametrize("format", ["text", "markdown", "latex", "html"])
def test_a_note_of_several_tables_is_printed_once(report: Report, format: str) -> None:
    text = " ".join(render(report, format).split())

    for words_of_note in ("a fact of the data", "2 of 2 pairs compared", "Holm p counts"):
        assert text.count(words_of_note) == 1
    alone = replace(report, tables=report.tables[1:2])
    assert "a fact of the data" in " ".join(render(alone, format).split())


def test_the_comparison_takes_notes_by_their_kind(report: Report) -> None:
    """Whatever their words: a note of the data, but none on how many pairs there are."""
    table = {
        "schema": 1,
        "title": "numbers",
        "tolerance": 0.001,
        "values": {"main.avazu.DNN.auc.dense": 0.7},
    }
    expected = ExpectedNumbers.parse(table, where="")
    made, _ = expected_table(report, expected, name="check", gate=True)

    assert {each.kind for each in made.notes} == {"comparison", "bold", "data"}
    assert any(note_text(each).endswith("a fact of the data") for each in made.notes)
    assert "comparison" in {each.kind for each in claims_table(report, expected).notes}


def test_a_grid_is_computed_once(make_record: MakeRecord) -> None:
    records = gather([make_record(arm=arm) for arm in ("dense", "prime")])

    assert records.grid(baseline="dense") is records.grid(baseline="dense")
    assert records.grid(baseline="dense") is not records.grid(baseline="prime")
    assert records.grid(baseline="dense").split == "test"


def test_an_interval_has_its_n_and_its_confidence() -> None:
    found = t_interval([0.001, 0.002, 0.003])
    assert found

    assert interval_text(found, 4) == "n=3, 95 % interval -0.0005 to +0.0045"
