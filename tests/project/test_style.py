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


def test_every_test_asserts_something() -> None:
    """Directly, by `pytest.raises` or `pytest.warns`, or in a function whose name begins with
    `assert_`: a test that only calls something passes whatever comes of it.
    """
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {node.name}": _asserts(node)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }

    assert len(found) > 1500
    assert [name for name, asserts in found.items() if not asserts] == []


def test_no_test_accepts_any_exception() -> None:
    """A misspelt name in the block would raise one, too; ruff (B017) accepts it with `match`."""
    files = sorted((ROOT / "tests").rglob("*.py"))

    assert [p.name for p in files if "raises(Exception" + "," in p.read_text("utf-8")] == []


def _asserts(test: ast.FunctionDef) -> bool:
    calls = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
    names = [call.attr for call in calls if isinstance(call, ast.Attribute)]
    names += [call.id for call in calls if isinstance(call, ast.Name)]
    return any(isinstance(node, ast.Assert) for node in ast.walk(test)) or any(
        name in ("raises", "warns") or name.startswith("assert_") for name in names
    )


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
