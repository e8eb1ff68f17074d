"""Records and definitions become a report: tables with captions, notes and provenance."""

from collections.abc import Mapping
from functools import cache

import jinja2

from prime_bench.base.errors import UsageError
from prime_bench.base.words import counted
from prime_bench.report.provenance import provenance_of
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.tables.body import TableBody
from prime_bench.report.tables.definition import TableDefinition
from prime_bench.report.tables.kinds import KINDS
from prime_bench.report.tables.model import Report, Table, note
from prime_bench.report.tables.notes import version_notes


def make_report(records: ReportRecords, *, definitions: Mapping[str, TableDefinition]) -> Report:
    """Build the tables of these definitions, by name.

    Raises UsageError for a faulty caption of a definition.
    """
    bodies = {
        name: KINDS[definition.kind].build(records, definition)
        for name, definition in definitions.items()
    }
    first = next(iter(definitions.values()))
    as_written = {other.record.job_id: other.record for other in records.accepted}
    behind = {
        item.job_id: as_written.get(item.job_id, item)
        for body in bodies.values()
        for item in body.records
    }
    return Report(
        title=records.recipe.title if records.recipe else first.title,
        tables=tuple(
            _table(name, body, records=records, definition=definitions[name])
            for name, body in bodies.items()
        ),
        blocks=records.grid(baseline=first.baseline).blocks,
        records=tuple(behind.values()),
        degenerate=records.degenerate_jobs(),
    )


def _table(
    name: str, body: TableBody, *, records: ReportRecords, definition: TableDefinition
) -> Table:
    unreadable = [
        note("unreadable", f"A record that cannot be read counts as missing: {fault}")
        for fault in records.unreadable
    ]
    shown = {record.job_id for record in body.records}
    accepted = [other for other in records.accepted if other.record.job_id in shown]
    blocks = tuple(body.blocks)
    cells = (cell for block in blocks for row in block.rows for cell in row.cells)
    bold = [note("bold", f"Bold: {body.bold}")] if any(c.emphasised for c in cells) else []
    return Table(
        name=name,
        title=definition.title,
        caption=_caption(definition, body, n_accepted=len(accepted)),
        blocks=blocks,
        notes=(*unreadable, *version_notes(records.earlier, accepted), *bold, *body.notes),
        provenance=provenance_of(body.records, recipe=records.recipe_name),
        label=definition.latex_label,
        compared_by=definition.compared_by,
        side_by_side=definition.columns_side_by_side,
    )


def _caption(definition: TableDefinition, body: TableBody, *, n_accepted: int) -> str:
    try:
        text = _template(definition.caption).render(body.words)
    except jinja2.TemplateError as error:
        raise UsageError(f"the report definition's caption: {error}") from error
    if body.mixed_pairs:
        text += (
            f" Mixed on request: {counted(body.mixed_pairs, 'pair')} of runs that differ in more "
            "than the arm, which the notes name."
        )
    if n_accepted:
        text += (
            f" Shown on request: records of another version of the source ({n_accepted}), which "
            "the notes name."
        )
    return " ".join(text.split())


@cache
def _template(caption: str) -> jinja2.Template:
    """Raises jinja2.TemplateError."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.from_string(caption)
