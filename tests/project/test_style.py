"""Sizes, names and words that the house style fixes."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "prime_bench").rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 400, 60
HOMELESS = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_module_is_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in functions
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]

    assert len(text.splitlines()) <= MODULE_LINES
    assert long == []
    assert path.name not in HOMELESS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_importing_does_no_work(path: Path) -> None:
    """No parsing of arguments, environment or device at import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [
        ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]

    assert calls == []
    assert "os.environ" not in ast.unparse(ast.Module(_top_level(tree), type_ignores=[]))


def _top_level(tree: ast.Module) -> list[ast.stmt]:
    bodies = (ast.FunctionDef, ast.ClassDef)
    return [node for node in tree.body if not isinstance(node, bodies)]
