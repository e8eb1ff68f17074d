"""Files beside the code that repeat a fact of it: versions, pins and pages."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from prime_bench import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Pages of the site that are made from files outside of docs/ (scripts/docs_site.py).
MADE = {"index.md", "changelog.md", "contributing.md"}


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in pairs}


def numbers(version: str) -> list[int]:
    """1.2.0 and 1.2 are one version."""
    parts = [int(part) for part in version.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return parts


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r"([\w-]+\.md)$", nav.partition("\n\n")[0], flags=re.MULTILINE)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}

    assert sorted(named) == sorted(pages | MADE), "a page has one line in the nav of mkdocs.yml"


def test_workflow_runs_the_pythons_that_are_promised() -> None:
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    prefix = "Programming Language :: Python :: 3."
    promised = [name.removeprefix(prefix) for name in PROJECT["classifiers"] if prefix in name]

    jobs = yaml.safe_load(text)["jobs"]

    assert promised
    assert jobs["test"]["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in promised]


@pytest.mark.parametrize(
    "requirement",
    [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["tensorboard"]],
)
def test_lowest_version_is_the_one_that_was_checked(requirement: str) -> None:
    match = re.fullmatch(r"([\w-]+)(?:>=|==)([\d.]+)", requirement)

    assert match, requirement
    package = re.sub(r"[-_.]+", "-", match[1]).lower()
    assert numbers(pins("constraints-lowest.txt")[package]) == numbers(match[2])


def test_version_is_in_citation_and_changelog() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert citation["version"] == __version__
    assert f"\n## [{__version__}] - {citation['date-released']}\n" in changelog
