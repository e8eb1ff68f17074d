"""A report as a notebook and the command line show it: frames, figures, text, files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from prime_bench.base.words import counted
from prime_bench.report.formats.csv import cells_frame, table_frames
from prime_bench.report.formats.html import table_html
from prime_bench.report.formats.render import Format, render, write_report
from prime_bench.report.manifest import earlier_files, write_manifest
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.tables.addresses import missing_because
from prime_bench.report.tables.comparison import claims_table, expected_table
from prime_bench.report.tables.expected import (
    AGREEMENTS,
    MISMATCHES,
    JudgedNumbers,
    load_bars,
    load_paper,
    read_expected,
)
from prime_bench.report.tables.model import Picture, Report

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from prime_bench.report.figures.save import NamedFigure


@dataclass(frozen=True, kw_only=True, repr=False)
class ReportView:
    """A report as a notebook and the command line show it."""

    report: Report
    """The tables as data: blocks, rows, columns, cells, notes, provenance."""
    check: "CheckedNumbers | None" = None
    """How the numbers of the file `check` compare; None where there was none."""
    _records: ReportRecords | None
    _arms: Sequence[str] = ()
    """Arms that the figures show; empty for the default."""
    _drawn: "dict[str, NamedFigure]" = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether the numbers of the file `check` agree; True where there was none."""
        return self.check is None or self.check.agrees

    @property
    def tables(self) -> "dict[str, pl.DataFrame]":
        """The tables by name, each a frame with a row for each row of the table.

        The columns are `block` (as a rule the data set), `row`, and one for each column of the
        table: numbers in full precision (of `4/5` the 4), words as text, null where a cell is
        missing.
        """
        return table_frames(self.report)

    def cells(self) -> "pl.DataFrame":
        """Every cell of every table, a row each, with the columns of `report --format csv`."""
        return cells_frame(self.report)

    @property
    def figures(self) -> "dict[str, Figure]":
        """The figures that the records can fill, by name. Drawn at the first look."""
        return {name: item.figure for name, item in self._named_figures().items()}

    def render(self, format: Format = "markdown") -> str:
        """Return the report as `text`, `markdown`, `latex`, `html`, `json` or `csv`.

        Plain text has lines of 80 letters. An HTML page has the figures in it.
        """
        return render(self.with_pictures() if format == "html" else self.report, format)

    def write(
        self,
        folder: str | Path,
        *,
        format: Format = "markdown",
        figures: bool = False,
        log: Callable[[str], None] | None = None,
    ) -> list[Path]:
        """Write each table with a CSV beside it, and a manifest that `verify` can check.

        Args:
            folder: Where to; it is made if it does not exist.
            format: Format of the tables; `html` is one page of all.
            figures: Whether to write each figure too, as SVG, PDF and PNG.
            log: Called with a line about files of an earlier report in the folder, which stay
                there and which the new manifest does not list.

        Returns:
            The files that were written.

        Raises:
            EnvironmentFault: The folder cannot be written.
        """
        from prime_bench.report.figures.save import write_figures

        shown = self.with_pictures() if figures or format == "html" else self.report
        files = write_report(shown, Path(folder), format=format)
        drawn = list(self._named_figures().values()) if figures else []
        pictures = write_figures(drawn, Path(folder))
        paths = [*(path for each in files.values() for path in each), *pictures]
        if log is not None and (left := earlier_files(Path(folder), written=paths)):
            names = ", ".join(path.name for path in left)
            log(
                f"{folder} still has files of an earlier report, which are not of this one: {names}"
            )
        paths.append(write_manifest(shown, Path(folder), files=files, figures=pictures))
        return list(dict.fromkeys(paths))

    def _named_figures(self) -> "dict[str, NamedFigure]":
        from prime_bench.report.figures.gallery import figures_of

        if not self._drawn and self._records is not None:
            found = figures_of(self._records, baseline="dense", arms=self._arms)
            self._drawn.update({item.name: item for item in found})
        return self._drawn

    def with_pictures(self) -> Report:
        """Return the report with its figures, for a format that shows them."""
        from prime_bench.report.figures.save import inline_svg

        pictures = [
            Picture(
                name=item.name,
                title=item.title,
                data=item.data,
                svg=inline_svg(item),
                width_share=item.width_share,
            )
            for item in self._named_figures().values()
        ]
        return replace(self.report, figures=tuple(pictures)) if pictures else self.report

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self.report.tables)
        return f"ReportView({self.report.title}: tables {names})"

    def __str__(self) -> str:
        return self.render("text")

    def _repr_markdown_(self) -> str:
        return self.render("markdown")

    def _repr_html_(self) -> str:
        return "\n".join(table_html(table) for table in self.report.tables)


@dataclass(frozen=True, kw_only=True)
class CheckedNumbers:
    """How the numbers of a file compare with a report."""

    file: Path
    numbers: JudgedNumbers
    """Every number with its verdict, and those that have no cell."""
    allow_missing: bool
    """Whether numbers without a cell may be there."""
    missing_because: Mapping[str, str] = field(default_factory=dict)
    """Why each of the numbers without a cell has none, by address."""

    @property
    def agrees(self) -> bool:
        """Whether no number differs, and at least one was compared."""
        return self.numbers.agrees(allow_missing=self.allow_missing)

    @property
    def faults(self) -> list[str]:
        """A line for each number that does not agree, or has no cell."""
        differing = [
            f"{item.address}: {item.verdict}: {_with_sd(item.place.cell.value, sd)} here, "
            f"{_with_sd(item.printed.value, item.printed.sd)} expected"
            for item in self.numbers.of(*MISMATCHES)
            for sd in [None if item.printed.sd is None else item.place.cell.quantity.sd]
        ]
        absent = [f"{a}: no such cell: {why}" for a, why in self.missing_because.items()]
        return [*differing, *absent]

    def __str__(self) -> str:
        """What was compared, in a line."""
        found = self.numbers
        n = len(found.judged) + len(found.missing)
        same, other = len(found.of(*AGREEMENTS)), len(found.of(*MISMATCHES))
        parts = [f"{same} agree", f"{other} differ"]
        if not_judged := len(found.of("not judged")):
            parts.append(f"{not_judged} not judged")
        if missing := len(found.missing):
            parts.append(f"{missing} without a cell{' (allowed)' * self.allow_missing}")
        return f"{self.file}: {same + other} of {counted(n, 'number')} compared: {', '.join(parts)}"


def _with_sd(value: float | None, sd: float | None) -> str:
    """A number in full precision."""
    if value is None:
        return "none"
    return str(value) if sd is None else f"{value} ± {sd}"


def compared_with(
    made: Report, *, against: str | None, check: Path | None, allow_missing: bool = False
) -> tuple[Report, CheckedNumbers | None]:
    """The report with the tables of the comparison first, and how the numbers of `check` compare.

    `allow_missing` lets numbers of `check` pass that have no cell.
    """
    first, checked = [], None
    if against == "paper":
        paper = load_paper()
        compared, _ = expected_table(made, paper, name="paper", gate=False)
        first += [claims_table(made, paper), compared]
    if against:
        bars, _ = expected_table(made, load_bars(), name="bars", gate=False)
        first += [bars] if bars.blocks or against == "bars" else []
    if check:
        table, numbers = expected_table(made, read_expected(check), name="check", gate=True)
        first.append(table)
        checked = CheckedNumbers(
            file=check,
            numbers=numbers,
            allow_missing=allow_missing,
            missing_because=missing_because(made, numbers.missing),
        )
    return replace(made, tables=(*first, *made.tables)), checked
