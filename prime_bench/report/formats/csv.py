"""Cells as rows: CSV, and data frames, with printed digits and numbers in full precision."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from prime_bench.base.characters import visible
from prime_bench.findings import ALL_METRICS
from prime_bench.report.formats.cells import printed
from prime_bench.report.quantities.values import Better
from prime_bench.report.tables.model import Report
from prime_bench.store.pairing import arm_key
from prime_bench.store.record import RunRecord

if TYPE_CHECKING:
    import polars as pl

RUN_COLUMNS = (
    *(f"valid_{metric}" for metric in ALL_METRICS),
    *("epochs", "best_epoch", "wall_s", "epoch_s"),
)
"""Validation metrics and training of the runs behind a cell: their mean, over the runs that have
the number. Empty for a cell of several arms, such as a difference."""
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
    *RUN_COLUMNS,
)


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """A cell with its address and its text."""

    table: str
    block: str
    row: str
    column: str
    text: str
    value: float | None
    """Before rounding; None where the cell has words or is missing."""
    sd: float | None
    better: Better | None
    """Which direction of the column is an improvement; None where neither is."""
    remark: str
    degenerate: bool
    jobs: tuple[str, ...]
    of_runs: tuple[float | None, ...]
    """The values of `RUN_COLUMNS`."""
    missing: bool
    """Whether the cell has neither a number nor words; `text` is a dash then."""

    def fields(self) -> tuple[str | float | None, ...]:
        """The values of `COLUMNS`; None where there is none."""
        return (
            self.table,
            self.block,
            self.row,
            self.column,
            self.text or None,
            self.value,
            self.sd,
            self.better,
            self.remark or None,
            "†" if self.degenerate else None,
            " ".join(self.jobs) or None,
            *self.of_runs,
        )


def cell_rows(report: Report) -> Iterator[CellRow]:
    """Yield every cell of every table, in the order in which they are printed."""
    runs = {record.job_id: record for record in report.records if isinstance(record, RunRecord)}
    for table in report.tables:
        for block in table.blocks:
            for row in block.rows:
                for column, cell in zip(block.columns, row.cells, strict=True):
                    text = printed(cell)
                    yield CellRow(
                        table=table.name,
                        block=block.key,
                        row=row.key,
                        column=column.key,
                        text=text.text,
                        value=cell.value,
                        sd=cell.quantity.sd,
                        better=column.better,
                        remark="; ".join(filter(None, (text.remark, text.aside))),
                        degenerate=text.dagger,
                        jobs=cell.jobs,
                        of_runs=_of_runs([runs[job] for job in cell.jobs if job in runs]),
                        missing=text.missing,
                    )


def _of_runs(runs: Sequence[RunRecord]) -> tuple[float | None, ...]:
    """The values of `RUN_COLUMNS` for runs of one arm; none for those of several."""
    if len({arm_key(run) for run in runs}) != 1:
        return (None,) * len(RUN_COLUMNS)
    rows = [
        (
            *(getattr(run.result.valid, metric) for metric in ALL_METRICS),
            *(run.result.epochs, run.result.best_epoch, run.wall_s, run.epoch_s),
        )
        for run in runs
    ]
    known = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    return tuple(fmean(values) if values else None for values in known)


def render(report: Report) -> str:
    """Return all cells of all tables; a field without a value is empty.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in cell_rows(report):
        fields = row.fields()
        writer.writerow([escaped(f) if isinstance(f, str) else f for f in fields])
    return buffer.getvalue()


def escaped(text: str) -> str:
    """Return text in one line that a spreadsheet shows and does not compute."""
    shown = visible(text)
    return f"'{shown}" if shown[:1] in _FORMULA and not _PRINTED_NUMBER.fullmatch(shown) else shown


# The full-width forms are signs of a formula too, in the Japanese and Chinese Excel.
_FORMULA = (*"=+-@\t\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# What `cells.printed` makes of numbers: -0.0010±0.0003, +0.0001 to +0.0020 (95.0%), and a dash.
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
_PRINTED_NUMBER = re.compile(rf"{_NUMBER}(?:±{_NUMBER}| to {_NUMBER}(?: \({_NUMBER}%\))?)?|--")


def cells_frame(report: Report) -> "pl.DataFrame":
    """Return all cells of all tables, a row each, with the columns `COLUMNS`."""
    import polars as pl

    numbers = ("value", "sd", *RUN_COLUMNS)
    types = {name: pl.Float64 if name in numbers else pl.String for name in COLUMNS}
    rows = [row.fields() for row in cell_rows(report)]
    return pl.DataFrame(rows, schema=types, orient="row")


def table_frames(report: Report) -> "dict[str, pl.DataFrame]":
    """Return each table by its name, as a frame with a row for each row of the table.

    The columns are `block`, `row`, and one for each column of the table: of numbers, or of texts
    where one of its cells has words. A missing cell is null.
    """
    import polars as pl

    cells: dict[str, list[CellRow]] = {}
    for cell in cell_rows(report):
        cells.setdefault(cell.table, []).append(cell)
    frames = {}
    for name, own in cells.items():
        of_words = {cell.column for cell in own if cell.value is None and not cell.missing}
        rows: dict[tuple[str, str], dict[str, str | float | None]] = {}
        for cell in own:
            key = cell.block, cell.row
            row = rows.setdefault(key, {"block": cell.block, "row": cell.row})
            content = (cell.text or None) if cell.column in of_words else cell.value
            row[cell.column] = None if cell.missing else content
        frames[name] = pl.DataFrame(list(rows.values()), infer_schema_length=None)
    return frames
