"""CSV: a line for each cell, with the printed digits and the number in full precision."""

import csv
import io

from prime_bench.report.formats.cells import printed
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
    """Return all cells of all tables; a field without a value is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in report.tables:
        for block in table.blocks:
            for row in block.rows:
                for column, cell in zip(block.columns, row.cells, strict=True):
                    text = printed(cell)
                    writer.writerow(
                        (
                            table.name,
                            block.key,
                            row.key,
                            column.key,
                            text.text,
                            cell.value,
                            cell.quantity.sd,
                            column.better,
                            text.remark or text.aside,
                            "†" if text.dagger else "",
                            " ".join(cell.jobs),
                        )
                    )
    return buffer.getvalue()
