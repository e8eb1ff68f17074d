"""A report in one of five formats, as text and as files."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from prime_bench.base.files import write_whole
from prime_bench.report.formats import csv, html, json, latex, markdown
from prime_bench.report.table import Report

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


def render(report: Report, format: Format) -> str:
    """The report in one format, ending in a newline."""
    return _RENDERERS[format](report)


def write_report(report: Report, folder: Path, *, name: str, format: Format) -> list[Path]:
    """Write `<name>.<suffix>` and the full-precision `<name>.csv` beside it; the paths written."""
    formats: list[Format] = [format] if format == "csv" else [format, "csv"]
    paths = [folder / f"{name}.{SUFFIXES[each]}" for each in formats]
    for path, each in zip(paths, formats, strict=True):
        write_whole(path, render(report, each))
    return paths
