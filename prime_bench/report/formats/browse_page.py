"""HTML: one page over many sources that needs no other file, with filters and the jobs of each row.

Sorting, the dialog of jobs and the theme are those of a report's page (`page.js.j2`).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from prime_bench.base.words import counted
from prime_bench.recipe.differences import value_text
from prime_bench.report.browse import BrowseRow, BrowseSource, Overview
from prime_bench.report.formats.cells import MISSING, moments_text, tally_text
from prime_bench.report.formats.numbers import fixed, signed
from prime_bench.report.formats.page_jobs import jobs_json
from prime_bench.report.formats.templates import html_templates
from prime_bench.report.quantities.layout import arm_label, backbone_label, dataset_labels

_DECIMALS = 4


@dataclass(frozen=True, kw_only=True)
class BrowseColumn:
    """A column of the page's table."""

    key: str
    label: str
    kind: str = ""
    """Its class in the style: `words`, `differs`, or that of a metric."""
    number: bool = True


@dataclass(frozen=True, kw_only=True)
class BrowseCell:
    """A cell of the page's table."""

    text: str
    value: float | None = None
    """The number by which rows are sorted and filtered, in full precision."""


_WORDS = (
    BrowseColumn(key="dataset", label="Data set", kind="words", number=False),
    BrowseColumn(key="backbone", label="Backbone", kind="words", number=False),
    BrowseColumn(key="arm", label="Arm", kind="words", number=False),
    BrowseColumn(key="differs", label="Differs in", kind="differs", number=False),
)
_COSTS = (
    BrowseColumn(key="parameters", label="Parameters (M)"),
    BrowseColumn(key="macs", label="MACs (M)"),
    BrowseColumn(key="wall", label="s a run"),
)
_SOURCE_HEADS = ("Source", "Title", "By", "From", "Runs", "Started", "Device")
_SOURCE = BrowseColumn(key="source", label="Source", kind="words", number=False)


def render(overview: Overview, *, folder: Path = Path()) -> str:
    """Return the whole page, ending in a newline. Links lead from `folder` to pages of sources."""
    labels = dataset_labels()
    columns = _columns(overview)
    rows = [_row(row, columns, labels.get(row.dataset, row.dataset)) for row in overview.rows]
    records = {_token(run.job_id, row): run for row in overview.rows for run in row.runs}
    n_probes = sum(len(source.records) - len(source.runs) for source in overview.sources)
    return (
        html_templates()
        .get_template("browse.html.j2")
        .render(
            title=_title(overview),
            columns=columns,
            n_words=len(_WORDS),
            metrics=[(name, _label(name)) for name in overview.metrics],
            choices=list(_choices(rows, overview.sources)),
            rows=rows,
            source_heads=_SOURCE_HEADS,
            daggers=any(row.degenerate for row in overview.rows),
            sources=[
                _source(number, source, folder)
                for number, source in enumerate(overview.sources, start=1)
            ],
            left_out=overview.left_out,
            n_probes=n_probes,
            jobs=jobs_json(records, records),
        )
    )


def _title(overview: Overview) -> str:
    n_rows, n_sources = len(overview.rows), len(overview.sources)
    return f"{counted(n_rows, 'result')} from {counted(n_sources, 'source')}"


def _label(metric: str) -> str:
    """The name of a metric in a head; scores may have others than the two of every report."""
    return {"logloss": "LogLoss"}.get(metric, metric.upper().replace("_", " "))


def _columns(overview: Overview) -> list[BrowseColumn]:
    of_metrics = [
        BrowseColumn(key=f"{kind}{name}", label=f"{sign}{_label(name)}", kind=f"metric-{name}")
        for name in overview.metrics
        for kind, sign in (("test ", ""), ("change ", "Δ "))
        if not sign or any(name in row.changes for row in overview.rows)
    ]
    runs = BrowseColumn(key="runs", label="Runs")
    return [*_WORDS, runs, *of_metrics, *_COSTS, _SOURCE]


@dataclass(frozen=True, kw_only=True)
class _Row:
    cells: tuple[BrowseCell, ...]
    jobs: str
    sources: str
    label: str
    """Title of the dialog with its jobs."""


def _row(row: BrowseRow, columns: Sequence[BrowseColumn], dataset: str) -> _Row:
    made = {
        "dataset": BrowseCell(text=dataset),
        "backbone": BrowseCell(text=backbone_label(row.backbone)),
        "arm": BrowseCell(text=arm_label(row.arm)),
        "differs": BrowseCell(
            text=", ".join(f"{key} = {value_text(value)}" for key, value in row.differs.items())
        ),
        "runs": BrowseCell(text=str(len(row.runs)), value=len(row.runs)),
        "parameters": _millions(row.parameters),
        "macs": _millions(row.macs),
        "wall": BrowseCell(text=fixed(row.wall_s, 1), value=row.wall_s),
        "source": BrowseCell(text=", ".join(map(str, row.sources))),
    }
    for name, level in row.test.items():
        dagger = "†" if row.degenerate else ""
        text = moments_text(level, decimals=_DECIMALS) + dagger
        made[f"test {name}"] = BrowseCell(text=text, value=level.mean)
    for name, change in row.changes.items():
        text = f"{signed(change.mean.mean, _DECIMALS)} {tally_text(change.tally)}"
        made[f"change {name}"] = BrowseCell(text=text, value=change.mean.mean)
    return _Row(
        cells=tuple(made.get(column.key, BrowseCell(text=MISSING)) for column in columns),
        jobs=" ".join(_token(run.job_id, row) for run in row.runs),
        sources=" ".join(map(str, row.sources)),
        label=f"{dataset}, {made['backbone'].text}, {made['arm'].text}",
    )


def _millions(number: int) -> BrowseCell:
    return BrowseCell(text=fixed(number / 1e6, 3), value=number / 1e6)


def _token(job_id: str, row: BrowseRow) -> str:
    """A job of a source: two people may have records of one job."""
    return f"{job_id}@{row.sources[0]}"


def _choices(
    rows: Sequence[_Row], sources: Sequence[BrowseSource]
) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Name, label and values of each choice that narrows the rows."""
    for index, column in enumerate(_WORDS[:3]):
        values = dict.fromkeys(row.cells[index].text for row in rows)
        if len(values) > 1:
            yield column.key, column.label, [(value, value) for value in values]
    if len(sources) > 1:
        numbered = [
            (str(number), f"{number}: {source.by or source.name}")
            for number, source in enumerate(sources, start=1)
        ]
        yield _SOURCE.key, _SOURCE.label, numbered


def _source(number: int, source: BrowseSource, folder: Path) -> dict[str, object]:
    days = sorted(run.environment.started[:10] for run in source.runs)
    devices = sorted({run.environment.device for run in source.runs})
    return {
        "number": number,
        "title": source.title,
        "by": source.by,
        "name": source.name,
        "link": _link(source.page, folder),
        "runs": len(source.runs),
        "started": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else MISSING,
        "devices": ", ".join(devices) or MISSING,
    }


def _link(page: str, folder: Path) -> str:
    """The address of a page; that of a file from `folder`."""
    if not page or page.startswith(("https://", "http://")):
        return page
    return quote(os.path.relpath(page, folder))
