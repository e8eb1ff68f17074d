"""Which modules of its own package a module imports, read from the sources without running them."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_LOADERS = {
    *("importlib", "pkgutil", "runpy", "imp", "zipimport"),
    *("builtins", "pkg_resources", "pydoc"),
}
"""Modules that import what a text names."""
_HARMLESS = ("importlib.metadata", "importlib.resources")
"""Parts of them that read versions and files."""
_NAMES = {
    *("__import__", "exec", "eval", "__builtins__"),
    *("__path__", "__getattr__", "__loader__", "__spec__"),
}
"""Names by which a module imports what its import statements do not tell."""
_ATTRIBUTES = {"import_module", "__import__", "entry_points", "__path__", "__loader__"}
"""The same as attributes, of whatever."""


def used_modules(modules: set[str], sources: Mapping[str, Path], *, packages: set[str]) -> set[str]:
    """Return the modules, and what they import of the same package over any number of steps.

    Every import statement counts, wherever it stands, and so do the packages on the way to a
    module, whose `__init__` runs first, and submodules that are read as attributes of a package.
    `from package import *` counts every module of that package, since its `__all__` may name them.

    All of `sources` is returned where an import cannot be read from the text of a module that is
    used: it has no file of Python, it uses `importlib`, `pkgutil`, `runpy`, `pydoc`, `builtins`,
    entry points, `sys.modules`, `__import__`, `exec` or `eval`, changes a `__path__`, or has a
    `__getattr__` of its own.

    Args:
        modules: Where to begin, by dotted names.
        sources: File of every module of the package, by dotted name.
        packages: Those that are packages.
    """
    found: set[str] = set()
    if not modules <= sources.keys():
        return set(sources)
    left = {name for module in modules for name in _on_the_way(module, sources)}
    while left:
        module = left.pop()
        found.add(module)
        try:
            tree = ast.parse(sources[module].read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return set(sources)
        imported = list(_imported(tree, module if module in packages else _parent(module)))
        if _is_dynamic(tree, imported):
            return set(sources)
        for name in (*imported, *_attributes(tree, imported, sources, packages)):
            parent, _, last = name.rpartition(".")
            if last == "*" and parent in packages:
                left |= {other for other in sources if _parent(other) == parent} - found
            left |= _on_the_way(name, sources) - found
    return found


def _on_the_way(name: str, sources: Mapping[str, Path]) -> set[str]:
    """The module of that name, and the packages that are imported before it."""
    parts = name.split(".")
    return {".".join(parts[: i + 1]) for i in range(len(parts))} & sources.keys()


def _parent(module: str) -> str:
    return module.rpartition(".")[0]


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Dotted names after `import`, and after `from` with each name that is taken from there.

    A name may be that of a module or of something in it.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                start = ".".join([*parts, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def _attributes(
    tree: ast.Module, imported: list[str], sources: Mapping[str, Path], packages: set[str]
) -> Iterator[str]:
    """Submodules of imported packages whose names the text reads as attributes of anything."""
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    left = {way for name in imported for way in _on_the_way(name, sources)} & packages
    seen: set[str] = set()
    while left:
        package = left.pop()
        seen.add(package)
        inside = {f"{package}.{attribute}" for attribute in attributes} & sources.keys()
        yield from sorted(inside)
        left |= (inside & packages) - seen


def _is_dynamic(tree: ast.Module, imported: list[str]) -> bool:
    """Whether a module may import what its import statements do not tell."""
    loaders = {
        name
        for name in imported
        if name.partition(".")[0] in _LOADERS
        and not any(f"{name}.".startswith(f"{harmless}.") for harmless in _HARMLESS)
    }
    nodes = list(ast.walk(tree))
    aliases = [
        a for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for a in node.names
    ]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {name for alias in aliases for name in (alias.name, alias.asname) if name}
    names |= {node.name for node in _of_module(tree) if isinstance(node, ast.FunctionDef)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    attributes |= {name.rpartition(".")[2] for name in imported}
    return bool(loaders or names & _NAMES or attributes & _ATTRIBUTES or _reads_modules(nodes))


def _of_module(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, but for those inside classes."""
    left: list[ast.AST] = [tree]
    while left:
        for node in ast.iter_child_nodes(left.pop()):
            if isinstance(node, ast.stmt):
                yield node
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                left.append(node)


def _reads_modules(nodes: Sequence[ast.AST]) -> bool:
    """Whether `sys.modules`, where any module may be taken or put in place of another, is used."""
    named = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "sys"
    }
    taken = [
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "sys"
        for alias in node.names
    ]
    read = [
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr == "modules"
        and isinstance(node.value, ast.Name)
    ]
    return not {"modules", "*"}.isdisjoint(taken) or not named.isdisjoint(read)
