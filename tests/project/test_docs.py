"""Documentation is made from the code, or checked against it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from prime_bench.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_made_parts_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "write_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_is_in_the_readme(name: str) -> None:
    assert f"prime-bench {name}" in README


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    missing = [link for link in links if not (path.parent / link).exists()]

    assert missing == []


def test_readme_has_links() -> None:
    assert len(re.findall(r"\]\((?!https?://|#)([^)#]+)", README)) >= 5


def test_numerics_has_a_line_for_each_version() -> None:
    from prime_bench.base.numerics import NUMERICS

    text = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
    versions = [int(number) for number in re.findall(r"^## (\d+)", text, flags=re.MULTILINE)]

    assert versions == list(range(1, NUMERICS + 1)) or versions == list(range(NUMERICS, 0, -1))
