"""The page of `browse` without a browser: heads, cells, choices, links and remarks."""

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from prime_bench import api
from prime_bench.report.browse import BrowseSource, Overview, browse
from prime_bench.report.formats.browse_page import render
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

MakeRecord = Callable[..., RunRecord]


def rows_in(text: str, table: str = "rows") -> list[list[str]]:
    """The texts of the cells of each row of a table."""
    found = re.search(rf'<table id="{table}".*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    assert found
    rows = re.findall("<tr.*?</tr>", found[1], re.DOTALL)
    return [
        [
            html.unescape(re.sub("<[^>]*>", "", cell)).strip()
            for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in rows
    ]


def choices_in(text: str) -> dict[str, list[str]]:
    """The texts of the options of each choice, by name."""
    return {
        name: [html.unescape(text) for text in re.findall("<option[^>]*>([^<]*)<", options)]
        for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', text, re.DOTALL)
    }


@pytest.fixture
def overview(tmp_path: Path, make_record: MakeRecord) -> Overview:
    """A source with Dense, PRIME of two ranks and an arm of one seed, and one with Dense alone."""
    runs = [Runs(tmp_path / name) for name in ("lab0", "lab1")]
    budget = {"backbone_parameters": 1_234_000, "backbone_macs": 5_600_000}
    for seed in (1, 2):
        for arm, auc in (("dense", 0.70), ("prime4", 0.71), ("prime8", 0.6995)):
            settings = PrimeConfig(rank=int(arm[5:])).plain() if arm != "dense" else {}
            record = make_record(
                arm=arm,
                plugin="prime" if settings else "dense",
                plugin_settings=settings,
                seed=seed,
                auc=auc + 0.001 * seed,
                logloss=0.4,
                degenerate="constant output" if (arm, seed) == ("prime8", 1) else None,
                started=f"2026-01-0{3 - seed}T00:00:00Z",
                device=f"device {seed}",
            )
            update = {"wall_s": 60.0 * seed, "budget": record.budget.model_copy(update=budget)}
            runs[0].put(record.model_copy(update=update))
    runs[1].put(make_record(dataset="criteo", backbone="DCNv2", auc=0.8, logloss=0.4))
    return browse([str(each.folder) for each in runs])


def test_a_row_has_a_cell_for_each_head(overview: Overview) -> None:
    text = render(overview)

    heads = re.findall(r'data-head="([^"]*)"', text.partition('id="sources"')[0])
    assert heads == [
        *("Data set", "Backbone", "Arm", "Differs in", "Runs"),
        *("AUC", "Δ AUC", "LogLoss", "Δ LogLoss"),
        *("Parameters (M)", "MACs (M)", "s a run", "Source"),
    ]
    dense = ["0.7015±0.0007", "--", "0.4000±0.0000", "--"]
    tied = "0.0000 0/2, 2 tied"
    four = ["0.7115±0.0007", "+0.0100 2/2", "0.4000±0.0000", tied]
    eight = ["0.7010±0.0007†", "-0.0005 0/2", "0.4000±0.0000†", tied]
    alone = ["0.8000", "--", "0.4000", "--"]
    costs = ["1.234", "5.600", "90.0", "1"]
    assert rows_in(text) == [
        ["Avazu", "DNN", "Dense", "", "2", *dense, *costs],
        ["Avazu", "DNN", "prime4", "arm.rank = 4", "2", *four, *costs],
        ["Avazu", "DNN", "prime8", "arm.rank = 8", "2", *eight, *costs],
        ["Criteo", "DCNv2", "Dense", "", "1", *alone, "0.000", "0.000", "1.0", "2"],
    ]
    assert "<title>4 results from 2 sources</title>" in text
    assert "†: a run is degenerate" in text


def test_a_cell_has_its_number_in_full_precision(overview: Overview) -> None:
    row = re.findall('<tr data-jobs="[^"]*".*?</tr>', render(overview), re.DOTALL)[1]

    values = [float(value) for value in re.findall('data-value="([^"]*)"', row)]

    assert values[0] == 2
    assert values[1:] == pytest.approx([0.7115, 0.01, 0.4, 0, 1.234001, 5.600001, 90], abs=1e-12)
    assert 'data-label="Avazu, DNN, prime4"' in row


def test_rows_open_the_jobs_of_their_source(overview: Overview) -> None:
    text = render(overview)
    found = re.search('<script type="application/json" id="jobs">(.*?)</script>', text)
    assert found
    jobs = json.loads(found[1])["jobs"]

    named = [jobs.split() for jobs in re.findall('<tr data-jobs="([^"]*)"', text)]
    assert [len(of_row) for of_row in named] == [2, 2, 2, 1]
    assert {job for of_row in named for job in of_row} == jobs.keys()
    assert [job.partition("@")[2] for of_row in named for job in of_row] == ["1"] * 6 + ["2"]
    assert [jobs[job]["seed"] for job in named[0]] == [1, 2]


def test_what_rows_differ_in_can_be_chosen(overview: Overview, tmp_path: Path) -> None:
    choices = choices_in(render(overview))

    assert list(choices) == ["dataset", "backbone", "arm", "source", "metric", "column"]
    assert choices["dataset"] == ["all", "Avazu", "Criteo"]
    assert choices["backbone"] == ["all", "DNN", "DCNv2"]
    assert choices["arm"] == ["all", "Dense", "prime4", "prime8"]
    assert choices["source"] == ["all", f"1: {tmp_path}/lab0", f"2: {tmp_path}/lab1"]
    assert choices["metric"] == ["all", "AUC", "LogLoss"]
    assert choices["column"][:2] == ["Runs", "AUC"]
    assert choices["column"][-2:] == ["MACs (M)", "s a run"]


def test_what_all_rows_share_is_no_choice(tmp_path: Path, make_record: MakeRecord) -> None:
    runs = Runs(tmp_path / "runs")
    runs.put(make_record(logloss=None))

    text = render(browse([str(runs.folder)]))

    assert list(choices_in(text)) == ["column"]
    assert "<title>1 result from 1 source</title>" in text
    # Without a pair or a LogLoss there is no column of them.
    assert "Δ AUC" not in text
    assert 'data-head="LogLoss"' not in text
    for remark in ("a run is degenerate", "Left out", "Records of probes"):
        assert remark not in text


def test_the_other_metrics_of_a_score_have_columns(tmp_path: Path, make_record: MakeRecord) -> None:
    runs = Runs(tmp_path / "runs")
    record = make_record()
    test = record.result.test.model_copy(update={"gauc": 0.6, "ece_all": 0.01})
    runs.put(record.model_copy(update={"result": record.result.model_copy(update={"test": test})}))

    text = render(browse([str(runs.folder)]))

    assert rows_in(text)[0][5:9] == [
        *(f"{v:.4f}" for v in (test.auc, test.logloss)),
        "0.6000",
        "0.0100",
    ]
    assert choices_in(text)["metric"] == ["all", "AUC", "LogLoss", "GAUC", "ECE ALL"]
    # The first of many, so that a window shows them.
    assert '<option value="auc" selected>' in text


def test_sources_say_when_on_what_and_by_whom(overview: Overview, tmp_path: Path) -> None:
    first, second = overview.sources

    def named(source: BrowseSource, by: str, page: str) -> BrowseSource:
        return replace(source, title="A title", by=by, page=page)

    sources = [
        named(first, "Lab 0", str(tmp_path / "lab0" / "a report.html")),
        named(second, "", "https://hub.org/lab1"),
        named(second, "", ""),
        BrowseSource(name="empty", title="T", records=[], digest=str),
    ]
    told = Overview(sources=sources, rows=overview.rows, left_out=["x: broken"])
    text = render(told, folder=tmp_path / "out")

    days = "2026-01-01 to 2026-01-02"
    name = f"{tmp_path}/lab1"
    assert rows_in(text, "sources") == [
        ["1", "A title", "Lab 0", f"{tmp_path}/lab0", "6", days, "device 1, device 2"],
        ["2", "A title", "--", name, "1", "2026-01-01", "a CPU"],
        ["3", "A title", "--", name, "1", "2026-01-01", "a CPU"],
        ["4", "T", "--", "empty", "0", "--", "--"],
    ]
    assert re.findall('<a href="([^"]*)">', text) == [
        "../lab0/a%20report.html",
        "https://hub.org/lab1",
    ]
    assert "<li>x: broken</li>" in text
    assert choices_in(text)["source"][1:3] == ["1: Lab 0", f"2: {name}"]


def test_probes_are_counted_and_left_out(tmp_path: Path) -> None:
    records = Path(__file__).parents[3] / "records"
    page = tmp_path / "out" / "page.html"

    found = api.browse(records, output=page)

    n_probes = sum(len(source.records) - len(source.runs) for source in found.sources)
    assert n_probes > 0
    text = page.read_text(encoding="utf-8")
    assert f"which their reports show: {n_probes}</li>" in text


def test_links_lead_from_the_folder_of_the_page(
    tmp_path: Path, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path / "runs")
    runs.put(make_record())
    found = browse([str(runs.folder)])
    sources = [replace(found.sources[0], page=str(tmp_path / "p" / "report.html"))]
    monkeypatch.setattr(
        "prime_bench.report.browse.browse", lambda _: replace(found, sources=sources)
    )

    api.browse(runs.folder, output=tmp_path / "a" / "b" / "page.html")

    text = (tmp_path / "a" / "b" / "page.html").read_text(encoding="utf-8")
    assert re.findall('<a href="([^"]*)">', text) == ["../../p/report.html"]
