"""Numbers to compare a report with, from a file, and a verdict for each."""

import fnmatch
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic

from prime_bench.base.errors import UsageError
from prime_bench.base.files import bundled_folder
from prime_bench.base.frozen import Frozen
from prime_bench.report.tables.definition import shipped_tables
from prime_bench.report.tables.model import Block, Cell, Column, Report, Row, Table

NumberVerdict = Literal[
    "inside seed noise", "inside", "outside", "no value", "not judged", "not above", "above"
]
MISMATCHES: tuple[NumberVerdict, ...] = ("outside", "above", "no value")
NOISE_DEVIATIONS = 2
"""Seed noise: this many standard deviations of our number over repetitions with other seeds."""


class ExpectedNumbers(Frozen):
    """The whole file."""

    expected_schema: Literal[1] = pydantic.Field(alias="schema")
    title: str
    software: str = ""
    accelerator: str = ""
    tolerance: float = pydantic.Field(ge=0)
    """Absolute difference that passes where seed noise does not reach, or is not known."""
    decimals: int = pydantic.Field(4, ge=1, le=17)
    """Digits in which the numbers are compared in print."""
    not_judged: list[str] = []
    """Addresses, with `*`, of numbers that no verdict is given on."""
    one_sided: list[str] = []
    """Addresses, with `*`, of costs: only more than expected, beyond the tolerance, is wrong."""
    values: dict[str, Any]
    """Nested tables that end in a number or in `[mean, SD]`; their keys joined by `.` address a
    cell: table, block, row, column."""

    def printed(self) -> dict[str, "PrintedNumber"]:
        """All numbers by address. Raises UsageError for what is none."""
        return dict(_flattened(self.values, ""))


@dataclass(frozen=True)
class PrintedNumber:
    """A number as printed, with its standard deviation where that is printed too."""

    value: float
    sd: float | None = None


@dataclass(frozen=True, kw_only=True)
class JudgedNumber:
    """One number of the file, the cell of the report with the same address, and the verdict."""

    address: str
    table: Table
    block: Block
    row: Row
    column: Column
    cell: Cell
    printed: PrintedNumber
    verdict: NumberVerdict

    @property
    def difference(self) -> float | None:
        """Ours less theirs."""
        return None if self.cell.value is None else self.cell.value - self.printed.value


def load_paper() -> ExpectedNumbers:
    """The paper's printed numbers."""
    return read_expected(bundled_folder("reports") / "paper" / "prime2026.toml")


def load_bars() -> ExpectedNumbers:
    """Public scores of the Dense arm."""
    return read_expected(bundled_folder("reports") / "paper" / "bars.toml")


def read_expected(path: Path) -> ExpectedNumbers:
    """The numbers in a file. Raises UsageError with every fault."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot read the expected numbers: {error}") from error
    expected = ExpectedNumbers.parse(table, where=str(path))
    try:
        expected.printed()
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from error
    return expected


def judge(report: Report, expected: ExpectedNumbers) -> tuple[list[JudgedNumber], list[str]]:
    """Every number of the file whose table is in the report, and addresses that name no cell.

    Numbers of tables and blocks that the report does not have are left out: a report of Avazu alone
    says nothing about Criteo. An address of a table that does not exist names no cell.
    """
    places = {
        ".".join((table.name, block.key, row.key, column.key)): (table, block, row, column, cell)
        for table in report.tables
        for block in table.blocks
        for row in block.rows
        for column, cell in zip(block.columns, row.cells, strict=True)
    }
    shown = tuple(f"{t.name}.{b.key}." for t in report.tables for b in t.blocks)
    tables = {*shipped_tables(), *(table.name for table in report.tables)}
    judged, unknown = [], []
    for address, printed in expected.printed().items():
        if address in places:
            table, block, row, column, cell = places[address]
            judged.append(
                JudgedNumber(
                    address=address,
                    table=table,
                    block=block,
                    row=row,
                    column=column,
                    cell=cell,
                    printed=printed,
                    verdict=_verdict(address, cell, printed, expected),
                )
            )
        elif address.startswith(shown) or address.partition(".")[0] not in tables:
            unknown.append(address)
    return judged, unknown


def _verdict(
    address: str, cell: Cell, printed: PrintedNumber, expected: ExpectedNumbers
) -> NumberVerdict:
    if any(fnmatch.fnmatchcase(address, pattern) for pattern in expected.not_judged):
        return "not judged"
    if cell.value is None:
        return "no value"
    # A difference of exactly the tolerance passes, whatever its last binary digit.
    slack = expected.tolerance + 1e-9
    if any(fnmatch.fnmatchcase(address, pattern) for pattern in expected.one_sided):
        return "not above" if cell.value - printed.value <= slack else "above"
    difference = abs(cell.value - printed.value)
    if cell.quantity.noise is not None and difference <= NOISE_DEVIATIONS * cell.quantity.noise:
        return "inside seed noise"
    return "inside" if difference <= slack else "outside"


def _flattened(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, PrintedNumber]]:
    for key, value in values.items():
        address = f"{above}.{key}" if above else key
        if isinstance(value, Mapping):
            yield from _flattened(value, address)
        elif _is_number(value):
            yield address, PrintedNumber(float(value))
        elif isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)):
            yield address, PrintedNumber(float(value[0]), float(value[1]))
        else:
            raise UsageError(f"values.{address}: expected a number or [mean, SD], got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
