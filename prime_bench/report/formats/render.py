"""A report in one of six formats, as text and as files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from prime_bench.base.files import write_whole
from prime_bench.report.formats import csv, html, json, latex, markdown, text
from prime_bench.report.tables.model import Report

Format = Literal["text", "markdown", "latex", "html", "json", "csv"]
SUFFIXES: Mapping[Format, str] = {
    "text": "txt",
    "markdown": "md",
    "latex": "tex",
    "html": "html",
    "json": "json",
    "csv": "csv",
}
_RENDERERS: Mapping[Format, Callable[[Report], str]] = {
    "text": text.render,
    "markdown": markdown.render,
    "latex": latex.render,
    "html": html.render,
    "json": json.render,
    "csv": csv.render,
}
PAGE = "report"
"""Name of the HTML page, which holds all tables."""


def render(report: Report, format: Format) -> str:
    """Return the report in one format, ending in a newline.

    Plain text has lines of 80 letters; `text.render` makes others.
    """
    return _RENDERERS[format](report)


def write_report(report: Report, folder: Path, *, format: Format) -> dict[str, list[Path]]:
    """Write each table as `<name>.<suffix>`, and beside it `<name>.csv` with full precision.

    CSV files begin with a byte order mark. In HTML all tables are on one page, `report.html`.
    Returns the paths written, by table. Raises EnvironmentFault where the folder cannot be written
    to.
    """
    written: dict[str, list[Path]] = {}
    for table in report.tables:
        alone = replace(report, tables=(table,))
        formats: list[Format] = ["csv"] if format in ("csv", "html") else [format, "csv"]
        for file_format in formats:
            path = folder / f"{table.name}.{SUFFIXES[file_format]}"
            # A spreadsheet takes a file without the mark for one in the system's own encoding.
            mark = "\N{BYTE ORDER MARK}" if file_format == "csv" else ""
            write_whole(path, mark + render(alone, file_format))
            written.setdefault(table.name, []).append(path)
    if format == "html":
        page = folder / f"{PAGE}.{SUFFIXES[format]}"
        write_whole(page, render(report, format))
        for paths in written.values():
            paths.append(page)
    return written
