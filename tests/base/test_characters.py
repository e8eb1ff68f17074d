"""Characters that cannot be seen, and the columns of a terminal."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.characters import (
    display_width,
    has_unseen,
    visible,
    visible_json,
    visible_lines,
    wrapped,
)

EVERY = st.text(st.characters())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("\x00\x07\x7f\x9b", r"\x00\x07\x7f\x9b"),
        ("\u202e\u2066\u200f\u061c", r"\u202e\u2066\u200f\u061c"),
        ("a\nb\tc\rd\u2028", r"a\nb\tc\rd\u2028"),
        ("\udcff", r"\udcff"),
        ("Wide&Deep, β 中 é 👩\u200d🔬", "Wide&Deep, β 中 é 👩\u200d🔬"),
    ],
)
def test_what_cannot_be_seen_is_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible_lines(text) == shown.replace(r"\n", "\n").replace(r"\t", "\t")


@given(EVERY)
def test_nothing_else_changes(text: str) -> None:
    assert not has_unseen(visible(text))
    assert visible(visible(text)) == visible(text)
    assert [visible(line) for line in text.split("\n")] == visible(text).split(
        r"\n"
    ) or "\\" in text
    visible(text).encode("utf-8")


@given(EVERY)
def test_json_keeps_its_value(text: str) -> None:
    shown = visible_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(shown) == {text: [text]}
    assert not has_unseen(shown.replace("\n", ""))


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("中文", 4), ("e\u0301", 1), ("\uff46", 2), ("é±Δ", 3)],
)
def test_width_in_a_terminal(text: str, width: int) -> None:
    assert display_width(text) == width


@given(st.lists(st.text("ab中e\u0301", min_size=1, max_size=9)), st.integers(1, 30))
def test_lines_of_a_paragraph_are_full_and_fit(words: list[str], width: int) -> None:
    lines = wrapped(" ".join(words), width, first="- ", rest="  ")
    assert "".join(line[2:] + " " for line in lines).split() == words
    for line, after in itertools.pairwise(lines):
        assert display_width(line) + 1 + display_width(after.split()[0]) > width
    assert all(display_width(line) <= width or len(line.split()) <= 2 for line in lines)
