"""Addresses of cells, `main.avazu.DNN.auc.dense`: what has one, and what another may have meant."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prime_bench.report.tables.definition import shipped_tables
from prime_bench.report.tables.model import Block, Cell, Column, Report, Row, Table


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cell and where it stands."""

    table: Table
    block: Block
    row: Row
    column: Column
    cell: Cell


def places_of(report: Report) -> dict[str, Place]:
    """Every cell of the report by its address."""
    return {
        table.address(block, row, column): Place(
            table=table, block=block, row=row, column=column, cell=cell
        )
        for table in report.tables
        for block in table.blocks
        for row in block.rows
        for column, cell in zip(block.columns, row.cells, strict=True)
    }


def missing_because(report: Report, addresses: Iterable[str]) -> dict[str, str]:
    """Why each of these addresses has no cell: its table is not shown, or the nearest that has."""
    shown = {table.name for table in report.tables}
    hidden = set(shipped_tables()) - shown
    reasons = {}
    for address in addresses:
        name = address.partition(".")[0]
        if name in hidden:
            reasons[address] = f"the table `{name}` is not shown; --table {name} shows it"
        else:
            near = _nearest(report, address)
            reasons[address] = f"the nearest is `{near}`" if near else "the report has no cell"
    return reasons


def _nearest(report: Report, address: str) -> str:
    """The address that is most like this one, found part by part; empty without any cell."""
    tables = {table.name: table for table in report.tables if table.blocks}
    if not tables:
        return ""
    name, rest = _closest(list(tables), address)
    blocks = {block.key: block for block in tables[name].blocks}
    block, rest = _closest(list(blocks), rest)
    row, rest = _closest([row.key for row in blocks[block].rows], rest)
    columns = [column.key for column in blocks[block].columns if column.kind != "words"]
    column = max(columns, key=lambda key: _likeness(key, rest), default="")
    return ".".join(part for part in (name, block, row, column) if part)


def _closest(keys: Sequence[str], address: str) -> tuple[str, str]:
    """The key that the address begins with, else the most similar one; and what follows.

    Keys may have dots in them, so that a key of n dots stands for n + 1 parts of the address.
    """
    begins = [key for key in keys if f"{address}.".startswith(f"{key}.")]
    parts = address.split(".")

    def split(key: str) -> tuple[str, str]:
        n = key.count(".") + 1
        return ".".join(parts[:n]), ".".join(parts[n:])

    if begins:
        key = max(begins, key=len)
        return key, address[len(key) + 1 :]
    key = max(keys, key=lambda key: _likeness(key, split(key)[0]), default="")
    return key, split(key)[1]


def _likeness(key: str, other: str) -> float:
    return difflib.SequenceMatcher(None, key.lower(), other.lower()).ratio()
