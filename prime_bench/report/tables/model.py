"""A report table as data: columns, cells that hold quantities, notes. Formats make its text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from prime_bench.report.quantities.grid import GridBlock
from prime_bench.report.quantities.values import Better, Difference, Quantity
from prime_bench.store.record import ProbeRecord, RunRecord, is_generated

ColumnKind = Literal["words", "number", "change", "count"]
"""What a column holds: words, a level, a signed difference, or a count such as 4/5."""
ComparedBy = Literal["block", "column"]
"""What a comparison with expected numbers has a block for: each block of the table, or each column
of each block, where the rows are many."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column and how to read it."""

    key: str
    """Unique in its block; with the table's, block's and row's key it names a cell."""
    label: str
    kind: ColumnKind
    group: str = ""
    """Head above neighbouring columns (`AUC`); empty: none."""
    aside: str = ""
    """What the brackets in the cells contain; shown in the header where there is room."""
    better: Better | None = None
    """Which direction is an improvement; None where neither is."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One entry of a table: a quantity and how it is printed."""

    quantity: Quantity
    decimals: int = 0
    """Digits after the point."""
    emphasised: bool = False
    """Whether it is printed in bold: an improvement, the lowest cost, a number that is wrong."""

    @property
    def value(self) -> float | None:
        """The quantity's number before rounding."""
        return self.quantity.value

    @property
    def jobs(self) -> tuple[str, ...]:
        """Ids of the jobs behind the quantity."""
        return self.quantity.jobs


@dataclass(frozen=True, kw_only=True)
class Phrase(Quantity):
    """A text with quantities in it; it has no `value`."""

    parts: tuple[str | Cell, ...]


def words(*parts: str | Cell, jobs: tuple[str, ...] = (), emphasised: bool = False) -> Cell:
    """A cell of words."""
    return Cell(quantity=Phrase(parts=parts, jobs=jobs), emphasised=emphasised)


def shown(quantity: Quantity, decimals: int) -> Cell:
    """The cell of a quantity; a difference is emphasised where it is an improvement."""
    return Cell(
        quantity=quantity,
        decimals=decimals,
        emphasised=isinstance(quantity, Difference) and quantity.improves,
    )


NoteKind = Literal[
    "unreadable",
    "source",
    "conflict",
    "absent",
    "pairing",
    "missing",
    "mismatch",
    "mixed",
    "choice",
    "mean",
    "bold",
    "degenerate",
    "data",
    "recipe",
    "protocol",
    "arms",
    "budget",
    "origin",
    "statistics",
    "measurement",
    "comparison",
]
"""What a note is about: records that cannot be read, records of another version of a user's own
class, jobs whose numbers differ between sources, arms that these jobs do not have, how many pairs
there are, missing runs, runs that are not compared, runs that are compared on request, what was
chosen by validation, what means leave out, what bold cells are, degenerate runs, the data, a
recipe's own notes, the training protocol, settings of arms, what arms add to a backbone, commits,
devices and sources, how statistics are made, how a probe measures, how a comparison with other
numbers is made."""


@dataclass(frozen=True, kw_only=True)
class TableNote:
    """A sentence below a table, without a full stop."""

    kind: NoteKind
    parts: tuple[str | Cell, ...]


def note(kind: NoteKind, *parts: str | Cell) -> TableNote:
    """A note of words and of cells whose text stands between them."""
    return TableNote(kind=kind, parts=parts)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Cells in the order of the block's columns."""

    key: str
    cells: tuple[Cell, ...]
    ruled: bool = False
    """Whether a rule separates it from the row above."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part with columns of its own: one data set, as a rule."""

    key: str
    label: str
    """Heading; empty where a table is one block."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def cell(self, row: str, column: str) -> Cell:
        """The cell of that row and column. Raises KeyError."""
        position = [item.key for item in self.columns].index(column)
        found = {item.key: item for item in self.rows}
        return found[row].cells[position]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a table was made from. Every list is sorted."""

    recipe: str
    """Name of the recipe with its `--set` changes; empty: every record there was."""
    commits: tuple[str, ...]
    """Revisions of the code that trained; one with uncommitted changes ends in `+`."""
    fingerprints: dict[str, tuple[str, ...]]
    """Data set -> digests of its prepared tables."""
    versions: dict[str, tuple[str, ...]]
    """Package -> versions that trained."""
    devices: tuple[str, ...]
    """Names of the devices that trained."""
    numerics: tuple[int, ...]
    """Versions of the numerics of the records."""
    started: tuple[str, str] | None
    """UTC dates of the first and the last run; None without a run."""
    package_version: str
    """Version of this package that made the table."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Everything but the format."""

    name: str
    """Name of its definition, `main`; files are called so."""
    title: str
    caption: str
    blocks: tuple[Block, ...]
    notes: tuple[TableNote, ...]
    provenance: Provenance
    label: str = ""
    """Label in LaTeX."""
    compared_by: ComparedBy = "block"
    side_by_side: int = 0
    """Columns with numbers up to which LaTeX sets blocks of equal columns side by side."""

    def cells(self) -> Iterator[tuple[str, Cell]]:
        """Every cell under its address."""
        for block in self.blocks:
            for row in block.rows:
                for column, cell in zip(block.columns, row.cells, strict=True):
                    yield self.address(block, row, column), cell

    def address(self, block: Block, row: Row, column: Column) -> str:
        """The address of a cell, `main.avazu.DNN.auc.dense`."""
        return ".".join((self.name, block.key, row.key, column.key))

    @property
    def jobs(self) -> tuple[str, ...]:
        """Ids of all jobs behind any cell, sorted."""
        return tuple(sorted({job for _, cell in self.cells() for job in cell.jobs}))


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure as an `<svg>` element that may stand in a page with others."""

    name: str
    title: str
    """What it shows, without the data."""
    data: str
    """Printed name of the data set."""
    svg: str
    width_share: float = 1.0
    """Its width as a share of the text's."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The tables of one answer, in the order in which they are printed."""

    title: str
    tables: tuple[Table, ...]
    blocks: tuple[GridBlock, ...] = ()
    """The numbers of each data set, with all pairs of runs and those that are not compared."""
    records: tuple[RunRecord | ProbeRecord, ...] = ()
    """What stands behind the cells, for a format in which they can be opened."""
    figures: tuple[Picture, ...] = ()
    """For a format that shows them beside the tables."""
    record_digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each record.json that the tables are made from, by job id."""
    degenerate: frozenset[str] = frozenset()
    """Ids of jobs whose run is degenerate, or that probe such a run."""

    @property
    def generated(self) -> frozenset[str]:
        """Ids of jobs on generated rows."""
        return frozenset(record.job_id for record in self.records if is_generated(record))

    def quantities(self) -> dict[str, Quantity]:
        """The quantity of every cell, by the cell's address."""
        return {address: cell.quantity for table in self.tables for address, cell in table.cells()}


def is_beside_level(column: Column, before: Column | None) -> bool:
    """Whether a column has differences, and the column before it the levels of the same arm."""
    return (
        before is not None
        and (column.kind, before.kind) == ("change", "number")
        and column.group == before.group
    )


def group_spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """The upper head row: each group of neighbours with its number of columns."""
    spans: list[tuple[str, int]] = []
    for column in columns:
        if spans and spans[-1][0] == column.group:
            spans[-1] = (column.group, spans[-1][1] + 1)
        else:
            spans.append((column.group, 1))
    return spans


def series(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
