"""Names that the house style fixes, and what importing a module may not do."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "prime_bench").rglob("*.py"))
HOMELESS = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}


def test_every_module_has_a_noun() -> None:
    assert len(MODULES) > 40
    assert [path for path in MODULES if path.name in HOMELESS] == []


def test_a_class_name_exists_once() -> None:
    """One name for one idea: a reader who searches for a class or a type alias finds one."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if name := _type_name(node):
                places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())

    assert len(places) > 150
    assert {"Split", "Kind", "JsonTable", "Record", "StreamValue"} <= places.keys()
    assert not {"SCHEMAS", "_Probe", "AVAZU"} & places.keys()
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


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


def _type_name(node: ast.stmt) -> str | None:
    """Name of a class or type alias, such as `Kind = Literal[...]` or `Record = A | B`; None for
    another statement.
    """
    if isinstance(node, ast.ClassDef):
        return node.name
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return None
    name, value = node.targets[0].id, node.value
    # A constant is in capital letters, and a TypeVar is a call.
    is_type = isinstance(value, ast.Subscript | ast.BinOp | ast.Name) and not name.isupper()
    return name if is_type and name.lstrip("_")[:1].isupper() else None


def _top_level(tree: ast.Module) -> list[ast.stmt]:
    bodies = (ast.FunctionDef, ast.ClassDef)
    return [node for node in tree.body if not isinstance(node, bodies)]
