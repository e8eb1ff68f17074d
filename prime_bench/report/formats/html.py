"""HTML: the tables as plain elements, to stand in a page or alone.

A cell carries what a script needs: `data-value` (full precision, to sort by) and `data-jobs`.
"""

from prime_bench.report.formats.templates import html_templates
from prime_bench.report.provenance import provenance_line
from prime_bench.report.table import Block, Report, Table, group_spans


def table_html(table: Table) -> str:
    """One `<section>` with the title, the blocks' `<table>`s and the notes."""
    return (
        html_templates()
        .get_template("table.html.j2")
        .render(
            table=table,
            heads={block.key: _group_heads(block) for block in table.blocks},
            provenance=provenance_line(table),
        )
    )


def render(report: Report) -> str:
    """A page without style or script."""
    return (
        html_templates()
        .get_template("tables.html.j2")
        .render(title=report.title, tables=[table_html(table) for table in report.tables])
    )


def _group_heads(block: Block) -> list[tuple[str, int]]:
    spans = group_spans(block.columns)
    return spans if any(label for label, _ in spans) else []
