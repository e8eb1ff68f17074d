"""What a table shows and how it is printed: `reports/<name>.toml`, a class a kind."""

import tomllib
from pathlib import Path
from typing import Literal

import pydantic

from prime_bench.base.bundled import bundled_folder
from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.settings.model import Settings


class TableDefinition(Settings):
    """What every kind of table is told."""

    report_schema: Literal[1] = pydantic.Field(alias="schema")
    kind: str
    """How the table is built: a name in `KINDS`."""
    title: str
    caption: str
    """A Jinja2 text."""
    decimals: int = pydantic.Field(ge=1, le=17)
    """Digits after the point; CSV and JSON have all digits beside them."""
    latex_label: str
    recipe: str
    """Bundled recipe whose records the paper's table of that name is made from."""
    baseline: str = "dense"
    """Name of the arm that others are compared with."""
    columns_side_by_side: int = pydantic.Field(0, ge=0)
    """Number columns up to which LaTeX sets data sets side by side."""


class MainDefinition(TableDefinition):
    """Levels and differences of every arm on every backbone, a block a data set."""

    kind: Literal["main"]


KINDS: dict[str, type[TableDefinition]] = {
    "main": MainDefinition,
}


def shipped_tables() -> list[str]:
    """Names of the bundled definitions."""
    return sorted(path.stem for path in bundled_folder("reports").glob("*.toml"))


def load_definition(name: str) -> TableDefinition:
    """The bundled definition of that name. Raises UsageError for a faulty or unknown one."""
    known = shipped_tables()
    if name not in known:
        raise UsageError(
            f"no table `{name}`{did_you_mean(name, known)}", hint=f"tables: {', '.join(known)}"
        )
    return read_definition(bundled_folder("reports") / f"{name}.toml")


def read_definition(path: Path) -> TableDefinition:
    """The definition in a file. Raises UsageError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read the report definition: {error}") from error
    kind = table.get("kind")
    if kind not in KINDS:
        raise UsageError(f"{path}: kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind].parse(table, where=str(path))


def dataset_labels() -> dict[str, str]:
    """Printed names of data sets; one that is not listed keeps its card's name."""
    path = bundled_folder("reports") / "labels" / "datasets.toml"
    return {name: str(label) for name, label in tomllib.loads(path.read_text("utf-8")).items()}
