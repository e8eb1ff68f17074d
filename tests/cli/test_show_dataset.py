"""`show dataset`: JSON, text and page say the same about a prepared table."""

import json
import re
from html.parser import HTMLParser

import pytest

from prime_bench.catalog import BACKBONES
from prime_bench.cli import show_dataset
from prime_bench.cli.main import exit_code
from prime_bench.data.table import PreparedTable


@pytest.fixture
def answer(capsys, tables):
    def answer(*arguments):
        assert exit_code(["show", "dataset", *arguments, "--data-dir", str(tables)]) == 0
        return capsys.readouterr().out

    return answer


def test_json_has_every_table_of_a_name(answer, tables):
    shown = json.loads(answer("synthetic", "--json"))
    assert shown["schema"] == 1
    assert [table["path"] for table in shown["tables"]] == [
        str(f) for f in sorted(tables.iterdir())
    ]
    for facts in shown["tables"]:
        table = PreparedTable.open(facts["path"])
        assert facts["fingerprint"] == table.manifest.fingerprint
        assert {
            s: facts["splits"][s]["rows"] for s in facts["splits"]
        } == table.manifest.rows.plain()
        assert [f["name"] for f in facts["fields"]] == [f.name for f in table.schema.fields]
        for row in facts["backbones"]:
            parameters = BACKBONES[row["name"]].settings().parameters(table.schema.shape)
            assert (row["parameters"], row["bytes"]) == (parameters, 12 * parameters)
        assert [row["name"] for row in facts["backbones"]] == sorted(BACKBONES)


def test_a_name_with_several_tables_is_reported(tables, capsys):
    show = ["show", "dataset", "--data-dir", str(tables)]
    first, second = map(str, sorted(tables.iterdir()))
    assert exit_code([*show, "synthetic"]) == 0
    out, err = capsys.readouterr()
    assert err == "synthetic: has 2 prepared tables; a folder names one\n"
    assert out.index(f"synthetic: {first}\n") < out.index(f"synthetic: {second}\n")
    assert exit_code([*show, first]) == 0
    assert capsys.readouterr().err == ""


def test_text_has_the_numbers_of_json(answer, tables):
    folder = str(sorted(tables.iterdir())[1])
    text = answer(folder)
    (facts,) = json.loads(answer(folder, "--json"))["tables"]
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    for name, split in facts["splits"].items():
        assert f"{split['rows']:,}" in lines[name]
        assert f"{100 * split['click_rate']:.2f} %" in lines[name]
    for field in facts["fields"]:
        assert f"{100 * field['missing']['test']:.2f} %" in lines[field["name"]]
        if field["vocabulary_size"] is not None:
            assert f"{field['vocabulary_size']:,}" in lines[field["name"]]
            assert f"{100 * field['untrained']['test']:.2f} %" in lines[field["name"]]
    for row in facts["backbones"]:
        assert f"{row['parameters']:,}" in lines[row["name"]]
    assert all(note in text for note in facts["notes"])


def split_of(rows, rates, difference=0.0, error=0.0):
    return {
        "rows": rows,
        "positives": rows // 4,
        "click_rate": 0.25,
        "difference": difference,
        "standard_error": error,
        "click_rates": rates,
    }


MADE_UP = {
    "dataset": "mine",
    "path": "data/mine",
    "fingerprint": "f" * 64,
    "verified": "own",
    "vocabulary_total": 1234,
    "splits": {
        "train": split_of(800, [0.2, 0.4]),
        "valid": split_of(100, [0.1], 0.0125, 0.005),
        "test": split_of(100, [0.4], -0.0125),
    },
    "fields": [
        {
            "name": "c",
            "semantic": "hour",
            "kind": "categorical",
            "vocabulary_size": 1000,
            "out_of_vocabulary": {"train": 0.5, "valid": 0.01, "test": 0.02},
            "untrained": {"train": 0.5, "valid": 0.03, "test": 0.04},
            "missing": {"train": 0.05, "valid": 0.06, "test": 0.07},
        },
    ],
    "backbones": [{"name": "DNN", "parameters": 2000, "bytes": 24_000_000}],
    "notes": [],
    "warnings": ["few clicks"],
}


def test_each_number_stands_below_its_head():
    lines = [re.split(r" {2,}", line) for line in show_dataset.text(MADE_UP).splitlines()]

    assert ["fingerprint ffffffffffff, own data, 1,234 ids"] in lines
    assert [line[:4] for line in lines if line[0] == "train"] == [
        ["train", "800", "200", "25.00 %"]
    ]
    assert ["valid", "100", "25", "25.00 %", "+1.25 points (+2.5 standard errors)"] in lines
    assert ["test", "100", "25", "25.00 %", "-1.25 points"] in lines
    shares = [f"{percent}.00 %" for percent in (1, 2, 3, 4, 5, 6, 7)]
    assert ["c", "hour", "1,000", *shares] in lines
    assert ["DNN", "2,000", "24 MB"] in lines
    assert ["warning: few clicks"] in lines


@pytest.mark.parametrize(
    ("verified", "words"), [(True, "verified"), (False, "unverified"), ("own", "own data")]
)
def test_what_is_known_of_the_raw_files_is_said(verified, words):
    table = {**MADE_UP, "verified": verified}

    assert f"fingerprint ffffffffffff, {words}, 1,234 ids\n" in show_dataset.text(table)
    assert f" {words}" in show_dataset.page([table])


def test_click_rates_are_drawn_in_the_order_of_the_file():
    curve = show_dataset._curve(MADE_UP)

    assert curve["highest"] == 0.4
    assert [(line["name"], line["points"]) for line in curve["lines"]] == [
        ("train", "200.0,100.0 600.0,0.0"),
        ("valid", "850.0,150.0"),
        ("test", "950.0,0.0"),
    ]
    assert [(line["start"], line["end"]) for line in curve["lines"]] == [
        (0, 800),
        (800, 900),
        (900, 1000),
    ]


class Page(HTMLParser):
    """Checks that tags close, and keeps what a reader would look at."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.words, self.bars = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag == "rect":
            self.bars.append(float(dict(attrs)["width"]))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data.strip())


def test_the_page_has_pictures_and_needs_no_other_file(answer, tmp_path):
    file = tmp_path / "page.html"
    assert answer("synthetic", "--html", str(file)).strip() == str(file)
    content = file.read_text()
    page = Page()
    page.feed(content)
    assert page.open == []
    assert page.tags.count("h1") == 2
    assert page.tags.count("polyline") == 6
    assert not re.search(r"https?://|src=|<link|<script", content)
    for facts in json.loads(answer("synthetic", "--json"))["tables"]:
        for field in facts["fields"]:
            assert any(word.startswith(field["name"]) for word in page.words)
            if field["vocabulary_size"] is not None:
                assert f"{field['vocabulary_size']:,}" in page.words
                assert f"{100 * field['untrained']['valid']:.2f} %" in page.words
        assert f"{facts['splits']['test']['rows']:,}" in page.words
    assert max(page.bars) == 420
    assert min(page.bars) >= 0


def test_mistakes(tables, tmp_path, capsys):
    show = ["show", "dataset", "--data-dir", str(tables)]
    assert exit_code([*show, "criteo"]) == 3
    assert "prime-bench prepare criteo" in capsys.readouterr().err
    assert exit_code([*show, "crieto"]) == 3
    message = capsys.readouterr().err
    assert "prime-bench prepare" not in message
    hint = f"hint: prepared tables in {tables}: synthetic; "
    assert f"did you mean `criteo`?\n\n{hint}" in message
    assert exit_code([*show, "synthetic", "--json", "--html", str(tmp_path / "x")]) == 2
    (tmp_path / "file").touch()
    assert exit_code([*show, "synthetic", "--html", str(tmp_path / "file" / "x")]) == 4
