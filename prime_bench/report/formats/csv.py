"""CSV: a line a cell, with its digits as printed and its number in full precision."""

import csv
import io

from prime_bench.report.tables.model import Report

COLUMNS = (
    "table",
    "block",
    "row",
    "column",
    "text",
    "value",
    "sd",
    "better",
    "remark",
    "degenerate",
    "jobs",
)


def render(report: Report) -> str:
    """All cells of all tables; an empty field where there is nothing to say."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in report.tables:
        for block in table.blocks:
            for row in block.rows:
                for column, cell in zip(block.columns, row.cells, strict=True):
                    writer.writerow(
                        (
                            table.name,
                            block.key,
                            row.key,
                            column.key,
                            cell.text,
                            cell.value,
                            cell.sd,
                            column.better,
                            cell.remark or cell.aside,
                            "†" if cell.flagged else "",
                            " ".join(cell.jobs),
                        )
                    )
    return buffer.getvalue()
