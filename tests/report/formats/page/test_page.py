"""The page without a browser: what it refers to, what its cells carry, and what names cannot do."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from prime_bench.report.document import make_report
from prime_bench.report.figures.save import NamedFigure
from prime_bench.report.formats.page_jobs import jobs_json
from prime_bench.report.formats.render import render
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Picture, Report
from prime_bench.report.view import ReportView
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

MakeRecord = Callable[..., RunRecord]
VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = '</script><script>alert("x")</script> <img src=//example.org/x> & "quoted" {{ 7 }}'


class Page(HTMLParser):
    """Elements with their attributes, and whether every one is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def having(self, key: str) -> list[str]:
        return [str(attributes[key]) for _, attributes in self.elements if key in attributes]


def report_of(records: list[RunRecord]) -> Report:
    return make_report(gather(records), definitions={"main": load_definition("main")})


def jobs_in(text: str) -> dict[str, dict[str, object]]:
    found = re.search(r'<script type="application/json" id="jobs">(.*?)</script>', text, re.DOTALL)
    assert found
    content = json.loads(found.group(1))
    assert isinstance(content, dict)
    return content


def test_the_page_needs_no_other_file(page_file: Path) -> None:
    page = Page(page_file.read_text(encoding="utf-8"))
    links = [*page.having("src"), *page.having("href"), *page.having("xlink:href")]

    assert [link for link in links if not link.startswith("#")] == []
    assert not {"link", "iframe", "object", "embed"} & {tag for tag, _ in page.elements}
    assert "default-src 'none'" in " ".join(page.having("content"))


def test_ids_are_unique_and_links_lead_somewhere(full_set: list[RunRecord]) -> None:
    drawn = '<svg role="img"><g id="a-axes"/></svg>'
    figures = (Picture(name="a", title="A figure", data="avazu", svg=drawn),)
    page = Page(render(replace(report_of(full_set), figures=figures), "html"))

    ids = Counter(page.having("id"))
    assert max(ids.values()) == 1
    assert {link.removeprefix("#") for link in page.having("href")} <= set(ids)
    assert "figure-a" in ids


def test_sections_come_in_the_order_of_the_contents(full_set: list[RunRecord]) -> None:
    figures = tuple(
        Picture(name=f"{name}-{data}", title=name, data=data, svg="<svg></svg>")
        for data in ("avazu", "criteo")
        for name in ("pairs", "forest")
    )
    definitions = {name: load_definition(name) for name in ("main", "pairs")}
    report = make_report(gather(full_set), definitions=definitions)
    page = Page(render(replace(report, figures=figures), "html"))

    links = [link.removeprefix("#") for link in page.having("href") if link.startswith("#")]
    sections = [str(own["id"]) for tag, own in page.elements if tag == "section"]
    assert links == sections
    assert len(sections) == 2 + 1 + 4


def test_every_job_of_a_cell_can_be_opened(full_set: list[RunRecord]) -> None:
    text = render(report_of(full_set), "html")
    named = {job for jobs in Page(text).having("data-jobs") for job in jobs.split()}
    content = jobs_in(text)

    assert named == set(content["jobs"]) == {record.job_id for record in full_set}
    record = full_set[0]
    job = content["jobs"][record.job_id]
    assert isinstance(job, dict)
    assert job["seed"] == record.job.seed
    assert (job["auc"], job["logloss"]) == (record.result.test.auc, record.result.test.logloss)
    assert job["best"] == record.result.best_epoch
    flags = {job_id: own["flag"] for job_id, own in content["jobs"].items()}
    assert flags == {own.job_id: own.degenerate for own in full_set}
    parts = content["parts"]
    configuration = parts[job["parts"]["Configuration"]]
    assert configuration["data fingerprint"] == record.job.fingerprint
    assert configuration["training.batch_size"] == record.job.training.batch_size
    assert parts[job["parts"]["Environment"]]["torch"] == "2.13.0"


def test_a_job_has_the_curve_of_its_validations(page_file: Path) -> None:
    jobs = jobs_in(page_file.read_text(encoding="utf-8"))["jobs"].values()
    curves = [own["curve"] for own in jobs if isinstance(own, dict)]

    assert [[1, 0.751, 0.4], [2, 0.752, 0.4], [3, 0.753, 0.4]] in curves
    assert sum(curve[0] == [1, None, None] for curve in curves) == 1  # of the degenerate run


def test_the_settings_of_a_job_are_whole(make_record: MakeRecord) -> None:
    record = make_record(
        dataset="clicks",
        arm="mine",
        plugin="own_mod:Gate",
        plugin_settings={"rank": 3},
        backbone_settings={"hidden_units": [8]},
        verified="own",
        host="node",
        at_once=2,
    )
    job = record.job.model_copy(update={"code": {"own_mod:Gate": "1" * 64}})
    content = json.loads(jobs_json({"a": record.model_copy(update={"job": job})}, ["a", "b"]))

    (found,) = content["jobs"].values()
    configuration, arm, environment = (content["parts"][i] for i in found["parts"].values())
    assert list(found["parts"]) == ["Configuration", "Arm", "Environment"]
    training = {f"training.{key}": value for key, value in job.training.plain().items()}
    assert configuration == {
        "kind": "train",
        "data set": "clicks",
        "data fingerprint": job.fingerprint,
        "data verified": "own",
        "backbone": "DNN",
        "backbone.hidden_units": [8],
        **training,
        "numerics": 1,
    }
    assert arm == {"plug-in": "own_mod:Gate", "rank": 3, "code of own_mod:Gate": "1" * 64}
    assert (environment["host"], environment["at_once"], environment["torch"]) == (
        "node",
        2,
        "2.13.0",
    )
    assert not {"started", "versions"} & environment.keys()
    assert content["baseline"] == "Dense"


def test_the_settings_of_a_probe_are_among_those_of_its_job() -> None:
    records, _ = Runs(Path(__file__).parents[3] / "records").readable()
    probe = next(record for record in records if record.job.kind == "gradients")

    content = json.loads(jobs_json({probe.job_id: probe}, [probe.job_id]))

    (found,) = content["jobs"].values()
    arm = content["parts"][found["parts"]["Arm"]]
    assert probe.job.probe
    assert probe.job.probe == {
        key.removeprefix("probe."): value for key, value in arm.items() if key.startswith("probe.")
    }
    assert (found["auc"], found["curve"]) == (None, [])


def test_figures_come_with_title_data_and_width(full_set: list[RunRecord]) -> None:
    drawn = NamedFigure(
        name="dots-avazu", title="Dots", data="Avazu", figure=Figure(figsize=(3.5, 2))
    )
    view = ReportView(report=report_of(full_set), _records=None, _drawn={"dots-avazu": drawn})

    (picture,) = view.with_pictures().figures

    assert (picture.name, picture.title, picture.data) == ("dots-avazu", "Dots", "Avazu")
    assert picture.width_share == 0.5
    assert picture.svg.startswith("<svg")
    assert view.report.figures == ()


def test_what_jobs_share_is_written_once(full_set: list[RunRecord]) -> None:
    records = [
        record.model_copy(
            update={
                "environment": record.environment.model_copy(update={"started": f"at {number}"})
            }
        )
        for number, record in enumerate(full_set)
    ]
    content = jobs_in(render(report_of(records), "html"))
    n_places = len({(record.dataset, record.job.backbone) for record in full_set})
    n_arms = len({record.arm for record in full_set})

    assert len(content["parts"]) == n_places + n_arms + 1


def test_cells_are_headed_and_sortable(page_file: Path) -> None:
    page = Page(page_file.read_text(encoding="utf-8"))
    columns = [own for tag, own in page.elements if tag == "th" and own.get("scope") == "col"]
    rows = [own for tag, own in page.elements if tag == "th" and own.get("scope") == "row"]

    assert {own["aria-sort"] for own in columns} == {"none"}
    assert len([own for tag, own in page.elements if own.get("class") == "sort"]) == len(columns)
    assert len(rows) == 2 * 2 * (3 + 4)  # AUC and LogLoss of two data sets
    values = page.having("data-value")
    assert all(float(value) == float(value) for value in values)


@pytest.mark.parametrize("name", [EVIL, "12335e61"])
def test_names_are_words_and_nothing_else(make_record: MakeRecord, name: str) -> None:
    records = [make_record(backbone=name, arm=arm, device=name) for arm in ("dense", "prime")]

    text = render(report_of(records), "html")
    page = Page(text)

    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "img" not in {tag for tag, _ in page.elements}
    assert name in [data for tag, data in page.texts if tag == "th"]
    content = jobs_in(text)
    assert any(part.get("device") == name for part in content["parts"])


def test_a_report_of_nothing_is_a_page(make_record: MakeRecord) -> None:
    page = Page(render(report_of([make_record(arm="prime")]), "html"))

    assert page.having("data-jobs")
