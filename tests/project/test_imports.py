"""Imports go one way: the table of allowed edges, and layers that load without heavy packages."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "prime_bench"
MODULES = sorted(PACKAGE.rglob("*.py"))

BUILT_ON = {
    "base": set(),
    "settings": {"base"},
    "findings": {"base", "settings"},
    "catalog": {"base", "settings"},
    "recipe": {"base", "settings", "findings", "catalog"},
    "data": {"base", "settings"},
    "store": {"base", "settings", "findings", "recipe"},
    "schedule": {"base", "settings", "findings", "catalog", "recipe", "store", "data"},
    "report": {"base", "settings", "findings", "catalog", "recipe", "store", "data"},
    "backbones": {"base", "settings", "data"},
    "plugins": {"base", "settings", "backbones"},
    "assemble": {"base", "settings", "catalog", "recipe", "data", "backbones", "plugins"},
    "training": {
        *("base", "settings", "findings", "recipe", "store", "data", "assemble", "backbones"),
        "plugins",
    },
    "probes": {
        *("base", "settings", "recipe", "store", "data", "assemble", "backbones", "plugins"),
        *("training", "findings"),
    },
    "worker": {
        *("base", "settings", "catalog", "recipe", "store", "data", "assemble", "training"),
        "probes",
    },
    "contract": {
        "base",
        "settings",
        "catalog",
        "recipe",
        "data",
        "assemble",
        "backbones",
        "plugins",
    },
    "integrations": {"base", "settings", "data", "backbones", "plugins"},
    "__main__": {"cli"},
    "api": {
        *("base", "settings", "catalog", "recipe", "store", "data", "schedule", "report"),
        *("training", "contract"),
    },
    "cli": {
        *("base", "settings", "catalog", "recipe", "store", "data", "schedule", "report", "api"),
        "findings",
    },
}
"""Layer -> the layers it may import. The command line starts workers; it never imports them. What
reads the weights of a finished job imports `training` inside its function.
"""

DATA_PARTS = {
    "report": {"manifest"},
    "schedule": {"manifest", "schema", "table"},
    "backbones": {"schema"},
    "assemble": {"schema"},
    "integrations": {"schema"},
    "training": {"prefetch", "schema", "table", "manifest"},
    "worker": {"schema", "table", "manifest"},
    "probes": {"schema", "table", "manifest"},
    "contract": {"schema"},
}
"""What of `data` these layers may use: the prepared table and its description, not the readers."""

ONE_IMPORTER = {
    "fuxictr": {"backbones/fuxi.py"},
    "ray": {"schedule/cluster.py"},
    "tensorboard": {"schedule/tensorboard.py"},
}
"""Foreign package -> the only files that may import it."""

TORCH_FREE = (
    "base",
    "settings",
    "findings",
    "catalog",
    "recipe",
    "store",
    "schedule",
    "report",
    "data",
    "api",
)
HEAVY = ("torch", "ray", "fuxictr")
TABLE_TOOLS = ("polars", "pyarrow", "scipy", "pandas", "sklearn")
SMALL = (
    "prime_bench.backbones.dnn",
    "prime_bench.backbones.dcnv2",
    "prime_bench.plugins.prime",
    "prime_bench.plugins.apg",
    "prime_bench.plugins.attach",
    "prime_bench.integrations.fuxictr",
    "prime_bench.training.loop",
    "prime_bench.data.table",
    "prime_bench.assemble",
    "prime_bench.worker",
    "prime_bench.probes.gradients",
    "prime_bench.probes.routing",
    "prime_bench.probes.subgroups",
)
"""Modules that a GPU machine loads with little more than torch installed."""


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@cache
def nodes(path: Path) -> tuple[ast.Import | ast.ImportFrom | ast.Constant, ...]:
    kinds = (ast.Import, ast.ImportFrom, ast.Constant)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))


def imports(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            if module == "prime_bench":
                yield from (f"prime_bench.{alias.name}" for alias in node.names)
            else:
                yield module


def named(path: Path, package: str) -> list[str]:
    """Modules of a package that stand in the code as text, for `importlib`."""
    return [
        node.value
        for node in nodes(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(rf"{package}(\.\w+)+", node.value)
    ]


def edges() -> list[tuple[Path, str]]:
    return [
        (path, name)
        for path in MODULES
        for name in imports(path)
        if name.startswith("prime_bench.") and layer_of(path) != "__init__"
    ]


def test_modules_and_edges_were_found() -> None:
    assert len(MODULES) > 40
    assert len(edges()) > 80


def test_every_layer_has_a_row() -> None:
    layers = {layer_of(path) for path in MODULES} - {"__init__"}

    assert layers == set(BUILT_ON)


def test_imports_go_down() -> None:
    wrong = []
    for path, name in edges():
        own, parts = layer_of(path), name.split(".")
        target = parts[1]
        if target in ("__version__", own):
            continue
        if target not in BUILT_ON[own] or (
            target == "data" and own in DATA_PARTS and parts[2] not in DATA_PARTS[own]
        ):
            wrong.append(f"{path.relative_to(PACKAGE)} may not import {name}")

    assert wrong == []


@pytest.mark.parametrize("package", sorted(ONE_IMPORTER))
def test_a_foreign_package_has_one_importer(package: str) -> None:
    importers = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if any(name.split(".")[0] == package for name in [*imports(path), *named(path, package)])
    }

    assert importers == ONE_IMPORTER[package]


LOAD_BLOCKED = """
import importlib, json, os, sys
common, groups, blocked = json.loads(sys.argv[1])
for name in blocked: sys.modules[name] = None
for name in common: importlib.import_module(name)
for group, modules in groups.items():
    if os.fork() == 0:
        try:
            for name in modules: importlib.import_module(name)
            found = [name for name in blocked if sys.modules.get(name)]
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(1, (json.dumps([group, found]) + "\\n").encode())
        os._exit(0)
    os.wait()
"""


def load_blocked(
    groups: dict[str, list[str]], *, blocked: tuple[str, ...], common: tuple[str, ...] = ()
) -> dict[str, list[str] | str]:
    """Import the modules of each group in a process of its own, where the blocked packages cannot
    be imported; return which of these are there nevertheless, or the error.

    The processes are copies of one that has imported `common` alone, which takes longest: torch,
    and the classes of settings, which pydantic makes.
    """
    command = [sys.executable, "-c", LOAD_BLOCKED, json.dumps([common, groups, blocked])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_layers_load_without_torch() -> None:
    names = {
        path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in MODULES
        if path.relative_to(PACKAGE).as_posix() not in ONE_IMPORTER["ray"]
    }
    layers = {
        layer: [
            name.removesuffix(".__init__")
            for path, name in names.items()
            if layer_of(path) == layer
        ]
        for layer in TORCH_FREE
    }

    assert all(layers.values())
    found = load_blocked(layers, blocked=HEAVY, common=("prime_bench.recipe.job",))

    assert found == {layer: [] for layer in TORCH_FREE}


def test_the_cluster_engine_loads_without_torch() -> None:
    engine = {"cluster": ["prime_bench.schedule.cluster"]}

    assert load_blocked(engine, blocked=("torch", "fuxictr")) == {"cluster": []}


def test_gpu_side_loads_without_table_tools() -> None:
    blocked = (*TABLE_TOOLS, "ray")
    common = ("torch", "prime_bench.recipe.job")
    found = load_blocked({name: [name] for name in SMALL}, blocked=blocked, common=common)

    assert found == {name: [] for name in SMALL}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["prepare", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """What keeps the answer under 0.3 s, without a clock in a test."""
    code = (
        "import sys\n"
        "from prime_bench.cli.main import exit_code\n"
        f"assert exit_code({arguments!r}) == 0\n"
        "heavy = ('torch', 'polars', 'pydantic', 'rich', 'numpy', 'scipy', 'jinja2', 'tabulate')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"
    assert "Usage: prime-bench" in done.stdout
