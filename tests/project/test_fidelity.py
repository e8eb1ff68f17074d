"""Every choice has a section, every reference to one leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
SECTIONS = {
    int(number): body
    for number, body in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", TEXT, flags=re.M | re.S)
}
SOURCES = [
    path
    for folder in ("prime_bench", "recipes", "datasets", "reports", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".toml", ".md", ".j2")
]


def test_sections_are_numbered_in_order() -> None:
    assert list(SECTIONS) == list(range(1, len(SECTIONS) + 1))
    assert len(SECTIONS) >= 39


@pytest.mark.parametrize("number", SECTIONS)
def test_a_section_can_be_checked_or_says_that_it_is_not_built(number: int) -> None:
    assert "*Check:*" in SECTIONS[number] or "ot built yet" in SECTIONS[number]


def test_references_lead_to_sections() -> None:
    pattern = re.compile(r"fidelity((?:,? (?:and )?\d+)+)")
    referred = {
        int(number)
        for path in SOURCES
        for group in pattern.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+", group)
    }

    assert len(referred) >= 10
    assert referred <= set(SECTIONS)


def test_named_checks_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    paths = set(re.findall(r"`((?:tests|prime_bench|datasets|recipes)/[\w/]+(?:\.\w+)?)`", TEXT))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))

    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    assert len(named) >= 5
    assert len(paths) >= 10
