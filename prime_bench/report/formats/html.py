"""HTML: one page that needs no other file, with tables, figures, and the jobs behind each cell.

The page's script reads two attributes of a cell: `data-value`, the number in full precision by
which rows are sorted, and `data-jobs`, the ids of the jobs behind it.
"""

from dataclasses import replace

from prime_bench.report.formats.cells import printed
from prime_bench.report.formats.notes import all_notes, own_notes, shared_notes
from prime_bench.report.formats.page_jobs import jobs_json
from prime_bench.report.formats.templates import html_templates
from prime_bench.report.tables.model import Block, Picture, Report, Table, group_spans

_PAGE_COLUMNS = 8
"""Columns of means with deviations, and of differences, that a window of 1280 pixels shows."""


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
            figures_of=_by_data(report.figures),
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
            blocks=[
                (block, [(part, _group_heads(part)) for part in _parts(block)])
                for block in table.blocks
            ],
        )
    )


def _by_data(figures: tuple[Picture, ...]) -> dict[str, list[Picture]]:
    found: dict[str, list[Picture]] = {}
    for figure in figures:
        found.setdefault(figure.data, []).append(figure)
    return found


def _parts(block: Block) -> list[Block]:
    """The block, or one for each group of columns (AUC, LogLoss) where all of it is too wide.

    Each has the columns before the first group.
    """
    groups = list(dict.fromkeys(column.group for column in block.columns if column.group))
    if len(groups) < 2 or len(block.columns) <= _PAGE_COLUMNS:
        return [block]
    return [
        replace(
            block,
            columns=tuple(block.columns[place] for place in places),
            rows=tuple(
                replace(row, cells=tuple(row.cells[place] for place in places))
                for row in block.rows
            ),
        )
        for group in groups
        for places in [[i for i, c in enumerate(block.columns) if c.group in ("", group)]]
    ]


def _group_heads(block: Block) -> list[tuple[str, int]]:
    spans = group_spans(block.columns)
    return spans if any(label for label, _ in spans) else []
