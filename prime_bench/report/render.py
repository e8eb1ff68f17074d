"""A report as Markdown, LaTeX, JSON or CSV text, and as files."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import jinja2
from tabulate import tabulate

from prime_bench.base.bundled import bundled_folder
from prime_bench.base.files import write_whole
from prime_bench.report.document import Report
from prime_bench.report.export import CSV_COLUMNS, csv_rows, report_content
from prime_bench.report.notes import METRIC_LABELS
from prime_bench.report.stats import METRICS
from prime_bench.report.tables import Panel
from prime_bench.report.typeset import (
    MISSING,
    Latex,
    Markdown,
    body_row,
    columns,
    row_labels,
    summary_rows,
)

Format = Literal["markdown", "latex", "json"]
SUFFIXES: dict[Format, str] = {"markdown": "md", "latex": "tex", "json": "json"}


def render(report: Report, format: Format) -> str:
    """The report in one format, ending in a newline."""
    makers: dict[Format, Callable[[Report], str]] = {
        "markdown": render_markdown,
        "latex": render_latex,
        "json": render_json,
    }
    return makers[format](report)


def write_report(report: Report, folder: Path, *, name: str, format: Format) -> list[Path]:
    """Write `<name>.<suffix>` and the full-precision `<name>.csv` beside it; the paths written."""
    files = {
        folder / f"{name}.{SUFFIXES[format]}": render(report, format),
        folder / f"{name}.csv": render_csv(report),
    }
    for path, text in files.items():
        write_whole(path, text)
    return list(files)


def render_markdown(report: Report) -> str:
    """One table a data set, AUC and LogLoss side by side."""
    style = Markdown(decimals=report.definition.decimals)
    table = report.table
    heads = [
        f"{METRIC_LABELS[metric]} {head}" if head != "Δ" else "Δ (won)"
        for metric in METRICS
        for head in columns(table, style)
    ]
    panels = []
    for panel in table.panels:
        rows = [
            [style.text(label), *body_row(table, panel, label, style)]
            for label in row_labels([panel])
        ]
        rows += [[name, *cells] for name, cells in summary_rows(table, panel, style)]
        # Without disable_numparse, tabulate rewrites digits and ids: 0.8140 becomes 0.814.
        text = tabulate(
            rows,
            headers=["Backbone", *heads],
            tablefmt="github",
            disable_numparse=True,
            colalign=["left"] + ["right"] * len(heads),
        )
        panels.append({"label": style.text(panel.design.label), "text": text})
    return (
        _markdown_environment()
        .get_template("main.md.j2")
        .render(
            title=style.text(report.title),
            caption=style.text(report.caption),
            panels=panels,
            notes=[style.text(note) for note in report.notes],
        )
    )


def render_latex(report: Report) -> str:
    """One `table*` environment in the paper's form; it needs the packages booktabs and graphicx."""
    style = Latex(decimals=report.definition.decimals)
    return (
        _latex_environment()
        .get_template("main.tex.j2")
        .render(
            caption=style.text(report.caption),
            label=report.definition.latex_label,
            blocks=[_latex_block(report, group, style) for group in _groups(report)],
            notes=[style.text(note) for note in report.notes],
        )
    )


def render_json(report: Report) -> str:
    """All numbers in full precision."""
    content = report_content(report)
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_csv(report: Report) -> str:
    """A line a data set, row, arm and metric, in full precision."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(csv_rows(report.table))
    return buffer.getvalue()


def _groups(report: Report) -> Iterator[Sequence[Panel]]:
    """Panels that stand side by side."""
    panels = report.table.panels
    width = len(METRICS) * len(columns(report.table, Latex(decimals=1)))
    fit = max(1, report.definition.columns_side_by_side // width)
    for start in range(0, len(panels), fit):
        yield panels[start : start + fit]


def _latex_block(report: Report, panels: Sequence[Panel], style: Latex) -> dict[str, object]:
    """One tabular: its column letters, the three head rows with their rules, and the rows."""
    table = report.table
    heads = columns(table, style)
    per_panel = len(METRICS) * len(heads)
    metrics = [METRIC_LABELS[metric] for _ in panels for metric in METRICS]
    rows = []
    for label in row_labels(panels):
        cells = [
            cell
            for panel in panels
            for cell in (
                body_row(table, panel, label, style)
                if label in row_labels([panel])
                else [MISSING] * per_panel
            )
        ]
        rows.append([style.text(label), *cells])
    summaries = [
        [style.text(parts[0][0]), *(cell for _, cells in parts for cell in cells)]
        for parts in zip(*(summary_rows(table, panel, style) for panel in panels), strict=True)
    ]
    return {
        "letters": "l" + r"@{\hspace{8pt}}".join("c" * per_panel for _ in panels),
        "panels": _spanning([style.text(panel.design.label) for panel in panels], per_panel),
        "panel_rules": _rules(len(panels), per_panel),
        "metrics": _spanning(metrics, len(heads)),
        "metric_rules": _rules(len(metrics), len(heads)),
        "heads": " & ".join(["Backbone", *heads * len(metrics)]),
        "rows": [" & ".join(row) for row in rows],
        "summaries": [" & ".join(row) for row in summaries],
    }


def _spanning(labels: Sequence[str], width: int) -> str:
    return "".join(rf" & \multicolumn{{{width}}}{{c}}{{{label}}}" for label in labels).strip()


def _rules(count: int, width: int) -> str:
    starts = [2 + index * width for index in range(count)]
    return "".join(rf"\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts)


def _markdown_environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(bundled_folder("reports") / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # not HTML; every text goes through `Style.text`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _latex_environment() -> jinja2.Environment:
    """Delimiters that LaTeX does not use: its own braces and percent signs stay as they are."""
    return _markdown_environment().overlay(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
