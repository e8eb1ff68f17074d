"""What a table shows and how it is printed: `reports/<name>.toml`, a class a kind."""

import tomllib
from pathlib import Path
from typing import Literal

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.files import bundled_folder
from prime_bench.base.frozen import Frozen
from prime_bench.report.tables.model import Better


class TableDefinition(Frozen):
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
    recipe: str | None = None
    """Bundled recipe that the paper's table is made from; None: any recipe's."""
    baseline: str = "dense"
    """Name of the arm that others are compared with."""
    columns_side_by_side: int = pydantic.Field(0, ge=0)
    """Number columns up to which LaTeX sets data sets side by side."""


Measured = Literal["auc", "logloss", "parameters", "latency"]
Routed = Literal["entropy", "largest_load"]


class MainDefinition(TableDefinition):
    """Levels and differences of every arm on every backbone, a block a data set."""

    kind: Literal["main"]


class DatasetsDefinition(TableDefinition):
    """The main table's Mean row of each data set, data sets below each other."""

    kind: Literal["datasets"]


class MethodsDefinition(TableDefinition):
    """A row a method below its backbone, and what the first of `delta` changes on the second."""

    kind: Literal["methods"]
    arms: list[str]
    delta: tuple[str, str]
    """Δ is the first arm less the second, in every column."""
    directions: dict[Measured, Better]
    """The columns with numbers, in their order, and which way each is better."""


class CostDefinition(TableDefinition):
    """What arms cost in parameters, time and memory, a block a data set and device."""

    kind: Literal["cost"]
    arms: list[str]
    compared: list[str]
    """The lowest cost among these arms is bold."""


class Compared(Frozen):
    """One comparison of two arms."""

    key: str
    label: str
    arm: str
    versus: str
    """Its difference is `arm` less `versus` for AUC, the other way for LogLoss."""


class DifferencesDefinition(TableDefinition):
    """A row a comparison of two arms, over all backbones and on each."""

    kind: Literal["differences"]
    comparisons: list[Compared]


class LevelColumn(Frozen):
    """One column of levels, averaged over backbones."""

    key: str
    label: str
    group: str = ""
    shows: Literal["auc", "logloss", "entropy", "largest_load"]
    split: Literal["test", "valid"] = "test"
    seed: int | None = None
    """One seed alone; None: all."""
    by_backbone: bool = False
    """Whether a column a backbone follows."""


class ArmsDefinition(TableDefinition):
    """A row an arm, with levels over all backbones, and settings in words."""

    kind: Literal["arms"]
    arms: list[str]
    labels: dict[str, str] = {}
    """What the table calls an arm that it does not call by its own label."""
    settings: dict[str, str] = {}
    """Columns of words: the head, and the plug-in's key that it shows."""
    values: dict[str, str] = {}
    """What such a value is called."""
    columns: list[LevelColumn]


class SeedsDefinition(TableDefinition):
    """A row a seed, a column an arm."""

    kind: Literal["seeds"]
    arms: list[str]
    labels: dict[str, str] = {}
    metric: Literal["auc", "logloss"] = "auc"


class WinsDefinition(TableDefinition):
    """A row an arm: pairs in which both validation metrics are better than the baseline's."""

    kind: Literal["wins"]
    arms: list[str]
    best_of: dict[str, list[str]] = {}
    """Label of one more row: the best of these arms by mean validation AUC."""


class RoutingDefinition(TableDefinition):
    """What routers do on rows that were not trained on, a row a backbone."""

    kind: Literal["routing"]


class GradientsDefinition(TableDefinition):
    """The competition gap of every arm, a row a backbone."""

    kind: Literal["gradients"]
    arms: list[str]


class SubgroupsDefinition(TableDefinition):
    """Scores and calibration of every semantic group, a block a backbone and field."""

    kind: Literal["subgroups"]
    arm: str
    """The arm that is compared with the baseline."""


class CellsDefinition(TableDefinition):
    """Statistics of each cell, a row a backbone and arm."""

    kind: Literal["cells"]


class PairsDefinition(TableDefinition):
    """Every paired difference, a row a backbone and arm, a column a seed."""

    kind: Literal["pairs"]


class FamilyDefinition(TableDefinition):
    """Statistics over architectures, a row a comparison of the recipe's family and a metric."""

    kind: Literal["family"]
    margin: float = pydantic.Field(gt=0)
    """Difference that is small enough to call two arms equivalent."""


KINDS: dict[str, type[TableDefinition]] = {
    "main": MainDefinition,
    "datasets": DatasetsDefinition,
    "methods": MethodsDefinition,
    "cost": CostDefinition,
    "differences": DifferencesDefinition,
    "arms": ArmsDefinition,
    "seeds": SeedsDefinition,
    "wins": WinsDefinition,
    "routing": RoutingDefinition,
    "gradients": GradientsDefinition,
    "subgroups": SubgroupsDefinition,
    "cells": CellsDefinition,
    "pairs": PairsDefinition,
    "family": FamilyDefinition,
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
