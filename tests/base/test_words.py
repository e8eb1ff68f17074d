"""Numbers with their nouns, and that no message has a plural of its own for one."""

import re
from pathlib import Path

import pytest

import prime_bench
from prime_bench.base.words import counted

NOUNS = (
    "arm|backbone|candidate|checkpoint|epoch|figure|job|number|pair|point|record|run|seed|source"
)
OWN_PLURAL = re.compile(rf"\{{[^{{}}]+\}} (?:{NOUNS})s\b")
"""A value of an f-string, and a noun in the plural after it."""
NEVER_ONE = {
    "{100 * split['difference']:+.2f} points",
    "{N_BACKBONES} backbones",
    "{N_GAPS} checkpoints",
    "{MARGIN_PERCENT:g} points",
    "{len(found)} jobs",
    "{len(tried)} candidates",
    "{n_jobs:,} jobs",
    "{n_jobs} jobs",
    "{of} backbones",
    "{other.result.epochs} epochs",
    "{sweep.n_points:,} points",
}
"""Those that stand where the number is at least two, or has digits after the point."""


@pytest.mark.parametrize(
    ("number", "most", "text"),
    [
        (0, None, "0 jobs"),
        (1, None, "1 job"),
        (1200, None, "1,200 jobs"),
        (1, 1, "1 job"),
        (3, 3, "3 jobs"),
        (0, 1, "0 to 1 job"),
        (3, 1500, "3 to 1,500 jobs"),
    ],
)
def test_a_noun_is_plural_where_its_number_is(number: int, most: int | None, text: str) -> None:
    assert counted(number, "job", most=most) == text


def test_a_number_that_may_be_one_gets_its_noun_from_counted() -> None:
    sources = Path(prime_bench.__file__).parent.rglob("*.py")
    found = {plural for path in sources for plural in OWN_PLURAL.findall(path.read_text("utf-8"))}
    assert found == NEVER_ONE
