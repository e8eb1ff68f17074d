"""What a report is called and how it is printed: `reports/<name>.toml`."""

import tomllib
from pathlib import Path
from typing import Literal

import pydantic

from prime_bench.base.bundled import bundled_folder
from prime_bench.base.errors import UsageError
from prime_bench.settings.model import Settings


class ReportDefinition(Settings):
    """The whole file."""

    report_schema: Literal[1] = pydantic.Field(alias="schema")
    title: str
    baseline: str
    """Name of the arm that the others are compared with."""
    decimals: int = pydantic.Field(ge=1, le=17)
    """Digits after the point in Markdown and LaTeX; JSON and CSV have all."""
    columns_side_by_side: int = pydantic.Field(ge=1)
    """Number columns up to which LaTeX sets data sets side by side."""
    latex_label: str
    caption: str
    """A Jinja2 text."""
    dataset_labels: dict[str, str] = {}
    """Printed names of data sets; one that is not listed keeps its card's name."""


def load_definition(name: str) -> ReportDefinition:
    """The bundled definition of that name. Raises UsageError for a faulty one."""
    return read_definition(bundled_folder("reports") / f"{name}.toml")


def read_definition(path: Path) -> ReportDefinition:
    """The definition in a file. Raises UsageError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read the report definition: {error}") from error
    return ReportDefinition.parse(table, where=str(path))
