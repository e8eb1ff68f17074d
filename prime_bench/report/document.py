"""Evidence and definitions become a report: tables with captions, notes and provenance."""

from collections.abc import Callable, Iterator
from typing import Any

import jinja2

from prime_bench.base.errors import UsageError
from prime_bench.report.definition import TableDefinition
from prime_bench.report.evidence import Evidence
from prime_bench.report.grid import Panel
from prime_bench.report.provenance import provenance_of
from prime_bench.report.table import Report, Table
from prime_bench.report.tables import (
    arms,
    cells,
    cost,
    differences,
    family,
    gradients,
    main,
    methods,
    routing,
    seeds,
    subgroups,
    wins,
)
from prime_bench.report.tables.content import Content

Builder = Callable[[Evidence, Any], Content]

BUILDERS: dict[str, Builder] = {
    "main": main.build,
    "datasets": main.build_datasets,
    "methods": methods.build,
    "cost": cost.build,
    "differences": differences.build,
    "arms": arms.build,
    "seeds": seeds.build,
    "wins": wins.build,
    "routing": routing.build,
    "gradients": gradients.build,
    "subgroups": subgroups.build,
    "cells": cells.build,
    "pairs": cells.build_pairs,
    "family": family.build,
}
"""A definition's kind -> what builds the table."""


def make_report(
    evidence: Evidence, *, definitions: dict[str, TableDefinition], title: str = ""
) -> Report:
    """The tables of these definitions, by name, and the pairs behind the evidence.

    Raises UsageError for a caption that a definition gets wrong.
    """
    tables = tuple(
        make_table(name, evidence, definition=definition)
        for name, definition in definitions.items()
    )
    grid = evidence.grid(baseline=next(iter(definitions.values())).baseline)
    own = evidence.cells.title if evidence.cells else next(iter(definitions.values())).title
    return Report(
        title=title or own,
        tables=tables,
        pairs=tuple(pair for panel in grid.panels for pair in _pairs(panel)),
        dropped_pairs=tuple(dropped for panel in grid.panels for dropped in _dropped(panel)),
        records=(*grid.records, *evidence.probes),
    )


def make_table(name: str, evidence: Evidence, *, definition: TableDefinition) -> Table:
    """One table. Raises UsageError for a caption that the definition gets wrong."""
    content = BUILDERS[definition.kind](evidence, definition)
    return Table(
        name=name,
        title=definition.title,
        caption=_caption(definition, content),
        blocks=tuple(content.blocks),
        notes=tuple(content.notes),
        provenance=provenance_of(content.records, recipe=evidence.recipe),
        label=definition.latex_label,
        side_by_side=definition.columns_side_by_side,
    )


def _caption(definition: TableDefinition, content: Content) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    try:
        text = environment.from_string(definition.caption).render(content.words)
    except jinja2.TemplateError as error:
        raise UsageError(f"the report definition's caption: {error}") from error
    return " ".join(text.split())


def _pairs(panel: Panel) -> Iterator[dict[str, Any]]:
    for pair in panel.pairs:
        yield {
            "dataset": panel.design.dataset,
            "table": panel.design.label,
            "backbone": pair.row.backbone,
            "row": pair.row.label,
            "seed": pair.seed,
            "arms": {
                name: {
                    "test_auc": run.result.test.auc,
                    "test_logloss": run.result.test.logloss,
                    "degenerate": run.result.degenerate,
                    "job_id": run.job_id,
                }
                for name, run in pair.runs.items()
            },
        }


def _dropped(panel: Panel) -> Iterator[dict[str, Any]]:
    for dropped in panel.dropped:
        yield {
            "dataset": dropped.panel.dataset,
            "table": dropped.panel.label,
            "backbone": dropped.row.backbone,
            "row": dropped.row.label,
            "arm": dropped.arm.name,
            "seed": dropped.unpaired.seed,
            "reason": dropped.unpaired.reason,
        }
