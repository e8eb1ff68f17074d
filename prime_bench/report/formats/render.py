"""A report in one of five formats, as text and as files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from prime_bench.base.files import write_whole
from prime_bench.report.formats import csv, html, json, latex, markdown
from prime_bench.report.tables.model import Report

Format = Literal["markdown", "latex", "html", "json", "csv"]
SUFFIXES: dict[Format, str] = {
    "markdown": "md",
    "latex": "tex",
    "html": "html",
    "json": "json",
    "csv": "csv",
}
_RENDERERS: dict[Format, Callable[[Report], str]] = {
    "markdown": markdown.render,
    "latex": latex.render,
    "html": html.render,
    "json": json.render,
    "csv": csv.render,
}
PAGE = "report"
"""The HTML page's name: it holds all tables."""


def render(report: Report, format: Format) -> str:
    """The report in one format, ending in a newline."""
    return _RENDERERS[format](report)


def write_report(report: Report, folder: Path, *, format: Format) -> dict[str, list[Path]]:
    """Write each table as `<name>.<suffix>` with a full-precision `<name>.csv` beside it.

    HTML is one page of all tables, `report.html`. Returns the paths written, by table.
    """
    written: dict[str, list[Path]] = {}
    for table in report.tables:
        alone = replace(report, tables=(table,))
        formats: list[Format] = ["csv"] if format in ("csv", "html") else [format, "csv"]
        for each in formats:
            path = folder / f"{table.name}.{SUFFIXES[each]}"
            write_whole(path, render(alone, each))
            written.setdefault(table.name, []).append(path)
    if format == "html":
        page = folder / f"{PAGE}.{SUFFIXES[format]}"
        write_whole(page, render(report, format))
        for paths in written.values():
            paths.append(page)
    return written
