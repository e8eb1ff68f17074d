"""Numbers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.report.formats.numbers import fixed, signed
from prime_bench.report.tables.model import series


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.814, "0.8140"),
        (-0.00004, "0.0000"),
        (-0.0, "0.0000"),
        (-0.00006, "-0.0001"),
        (4.0806, "4.0806"),
    ],
)
def test_fixed(value: float, text: str) -> None:
    assert fixed(value, 4) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.001, "+0.0010"),
        (-0.0006, "-0.0006"),
        (0.0, "0.0000"),
        (-0.0, "0.0000"),
        (-0.00004, "0.0000"),
        (0.00004, "+0.0000"),
    ],
)
def test_signed(value: float, text: str) -> None:
    assert signed(value, 4) == text


@given(st.floats(-10, 10))
def test_text_is_the_number_to_half_a_digit(value: float) -> None:
    for text in (fixed(value, 4), signed(value, 4)):
        assert abs(float(text) - value) <= 0.5e-4 + 1e-12
        assert not text.startswith("-0.0000")


def test_series() -> None:
    assert [series(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]
