"""Inside the report: quantities are made before tables, and tables before text."""

import ast
from pathlib import Path

import pytest

REPORT = Path(__file__).parents[2] / "prime_bench" / "report"
FORBIDDEN = {
    "quantities": ("tables", "formats", "figures"),
    "tables": ("formats", "figures"),
}


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_nothing_is_made_from_what_comes_later(layer: str) -> None:
    wrong = []
    for path in sorted((REPORT / layer).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                later = [f"prime_bench.report.{name}" for name in FORBIDDEN[layer]]
                if node.module.startswith(tuple(later)):
                    wrong.append(f"{path.name}: {node.module}")
    assert wrong == []
