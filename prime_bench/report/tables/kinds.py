"""Kinds of report tables: the keys of a definition, and the function that builds its table."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.files import bundled_folder
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.tables import (
    cost,
    family,
    gradients,
    methods,
    pivot,
    routing,
    sensitivity,
    subgroups,
)
from prime_bench.report.tables.body import TableBody
from prime_bench.report.tables.definition import (
    CostDefinition,
    FamilyDefinition,
    GradientsDefinition,
    MethodsDefinition,
    PivotDefinition,
    RoutingDefinition,
    SensitivityDefinition,
    SubgroupsDefinition,
    TableDefinition,
    shipped_tables,
)

D = TypeVar("D", bound=TableDefinition)


@dataclass(frozen=True)
class TableKind(Generic[D]):
    """A kind of table."""

    definition: type[D]
    """Class of the definitions, whose fields are the keys of their files."""
    build: Callable[[ReportRecords, D], TableBody]


KINDS: dict[str, TableKind[Any]] = {
    "pivot": TableKind(PivotDefinition, pivot.build),
    "methods": TableKind(MethodsDefinition, methods.build),
    "cost": TableKind(CostDefinition, cost.build),
    "routing": TableKind(RoutingDefinition, routing.build),
    "gradients": TableKind(GradientsDefinition, gradients.build),
    "sensitivity": TableKind(SensitivityDefinition, sensitivity.build),
    "subgroups": TableKind(SubgroupsDefinition, subgroups.build),
    "family": TableKind(FamilyDefinition, family.build),
}
"""Each kind by the value of `kind` in a definition."""


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
    definition: type[TableDefinition] = KINDS[kind].definition
    return definition.parse(table, where=str(path))
