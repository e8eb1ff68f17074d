"""HTML: one page that needs no other file, with tables to sort, figures, and jobs to open.

A cell carries what the page's script needs: `data-value` (full precision, to sort by) and
`data-jobs`.
"""

from prime_bench.report.formats.cells import note_text, printed
from prime_bench.report.formats.notes import own_notes, shared_notes
from prime_bench.report.formats.page_jobs import jobs_json
from prime_bench.report.formats.templates import html_templates
from prime_bench.report.provenance import provenance_line
from prime_bench.report.tables.model import Block, Report, Table, group_spans


def render(report: Report) -> str:
    """The whole page, ending in a newline."""
    behind = {job for table in report.tables for job in table.jobs}
    return (
        html_templates()
        .get_template("page.html.j2")
        .render(
            title=report.title,
            tables=[
                {
                    "name": table.name,
                    "title": table.title,
                    "html": _table(table, own_notes(table, report)),
                }
                for table in report.tables
            ],
            shared=shared_notes(report),
            figures=report.figures,
            jobs=jobs_json({record.job_id: record for record in report.records}, behind),
        )
    )


def table_html(table: Table) -> str:
    """One `<section>` with the title, the blocks' `<table>`s and all notes of the table."""
    return _table(table, [note_text(note) for note in table.notes])


def _table(table: Table, notes: list[str]) -> str:
    return (
        html_templates()
        .get_template("table.html.j2")
        .render(
            table=table,
            notes=notes,
            printed=printed,
            heads={block.key: _group_heads(block) for block in table.blocks},
            provenance=provenance_line(table),
        )
    )


def _group_heads(block: Block) -> list[tuple[str, int]]:
    spans = group_spans(block.columns)
    return spans if any(label for label, _ in spans) else []
