"""Evidence and definitions become a report: tables with captions, notes and provenance."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jinja2

from prime_bench.base.errors import UsageError
from prime_bench.report.provenance import provenance_of
from prime_bench.report.quantities.grid import GridBlock
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.tables import (
    cost,
    family,
    gradients,
    methods,
    pivot,
    routing,
    subgroups,
)
from prime_bench.report.tables.body import TableBody
from prime_bench.report.tables.definition import TableDefinition
from prime_bench.report.tables.model import Report, Table, note

Builder = Callable[[Evidence, Any], TableBody]

BUILDERS: dict[str, Builder] = {
    "pivot": pivot.build,
    "methods": methods.build,
    "cost": cost.build,
    "routing": routing.build,
    "gradients": gradients.build,
    "subgroups": subgroups.build,
    "family": family.build,
}
"""A definition's kind -> what builds the table."""


def make_report(evidence: Evidence, *, definitions: Mapping[str, TableDefinition]) -> Report:
    """The tables of these definitions, by name, and the pairs behind the evidence.

    Raises UsageError for a caption that a definition gets wrong.
    """
    contents = {
        name: BUILDERS[definition.kind](evidence, definition)
        for name, definition in definitions.items()
    }
    first = next(iter(definitions.values()))
    grid = evidence.grid(baseline=first.baseline)
    records = {item.job_id: item for content in contents.values() for item in content.records}
    return Report(
        title=evidence.cells.title if evidence.cells else first.title,
        tables=tuple(
            _table(name, content, evidence=evidence, definition=definitions[name])
            for name, content in contents.items()
        ),
        pairs=tuple(pair for block in grid.blocks for pair in _pairs(block)),
        dropped_pairs=tuple(dropped for block in grid.blocks for dropped in _dropped(block)),
        records=tuple(records.values()),
    )


def _table(
    name: str, content: TableBody, *, evidence: Evidence, definition: TableDefinition
) -> Table:
    unreadable = [
        note("unreadable", f"A record that cannot be read counts as missing: {fault}")
        for fault in evidence.unreadable
    ]
    return Table(
        name=name,
        title=definition.title,
        caption=_caption(definition, content),
        blocks=tuple(content.blocks),
        notes=(*unreadable, *content.notes),
        provenance=provenance_of(content.records, recipe=evidence.recipe),
        label=definition.latex_label,
        side_by_side=definition.columns_side_by_side,
    )


def _caption(definition: TableDefinition, content: TableBody) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    try:
        text = environment.from_string(definition.caption).render(content.words)
    except jinja2.TemplateError as error:
        raise UsageError(f"the report definition's caption: {error}") from error
    if content.mixed_pairs:
        text += (
            f" Mixed on request: {content.mixed_pairs} pairs are of runs that differ in more than "
            "the arm, which the notes name."
        )
    return " ".join(text.split())


def _pairs(block: GridBlock) -> Iterator[dict[str, Any]]:
    for pair in block.pairs:
        yield {
            "dataset": block.layout.dataset,
            "table": block.layout.label,
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


def _dropped(block: GridBlock) -> Iterator[dict[str, Any]]:
    for dropped in block.dropped:
        yield {
            "dataset": dropped.block.dataset,
            "table": dropped.block.label,
            "backbone": dropped.row.backbone,
            "row": dropped.row.label,
            "arm": dropped.arm.name,
            "seed": dropped.unpaired.seed,
            "reason": dropped.unpaired.reason,
        }
