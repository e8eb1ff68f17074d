"""HTML: one page that needs no other file, with tables, figures, and the jobs behind each cell.

The page's script reads two attributes of a cell: `data-value`, the number in full precision by
which rows are sorted, and `data-jobs`, the ids of the jobs behind it.
"""

from prime_bench.report.formats.cells import printed
from prime_bench.report.formats.notes import all_notes, own_notes, shared_notes
from prime_bench.report.formats.page_jobs import jobs_json
from prime_bench.report.formats.templates import html_templates
from prime_bench.report.tables.model import Block, Report, Table, group_spans


def render(report: Report) -> str:
    """Return the whole page, ending in a newline."""
    job_ids = {job for table in report.tables for job in table.jobs}
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
            jobs=jobs_json({record.job_id: record for record in report.records}, job_ids),
        )
    )


def table_html(table: Table) -> str:
    """Return a `<section>` with the title, a `<table>` for each block, and all notes."""
    return _table(table, all_notes(table))


def _table(table: Table, notes: list[str]) -> str:
    return (
        html_templates()
        .get_template("table.html.j2")
        .render(
            table=table,
            notes=notes,
            printed=printed,
            heads={block.key: _group_heads(block) for block in table.blocks},
        )
    )


def _group_heads(block: Block) -> list[tuple[str, int]]:
    spans = group_spans(block.columns)
    return spans if any(label for label, _ in spans) else []
