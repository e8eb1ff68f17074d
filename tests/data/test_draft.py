"""Drafts of cards: what is guessed from values, and that a draft is valid at once."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from prime_bench.base.errors import DataError
from prime_bench.cli.main import exit_code
from prime_bench.data import draft as draft_module
from prime_bench.data.card import read_card
from prime_bench.data.draft import card_path, draft_card
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare

ROWS = 600


def frame():
    random = np.random.default_rng(11)
    rows = np.arange(ROWS)
    size = {"size": ROWS}
    return pl.DataFrame(
        {
            "event": [f"e{i}" for i in rows],
            "click": random.integers(0, 2, **size),
            "user_id": [f"u{i}" for i in random.integers(0, 90, **size)],
            "flag": random.integers(0, 2, **size),
            "zip": [f"{i:05}" for i in random.integers(0, 200, **size)],
            "hour": [f"2410{21 + i // 100:02}{i % 24:02}" for i in rows],
            "seen_at": 1_700_000_000 + 60 * rows,
            "day": [f"2024-10-{1 + i // 30:02}" for i in rows],
            "part": np.where(rows % 5 == 0, "test", np.where(rows % 5 == 1, "valid", "train")),
            "price": random.lognormal(3, 1.5, **size).round(2),
            "age": [None if i % 8 == 0 else int(i % 50 + 18) for i in rows],
            "ctr": random.beta(2, 30, **size).round(4),
            "delay": np.where(rows % 40 == 0, -5_000, random.normal(0, 3, **size).round(2)),
            "stars": random.integers(1, 6, **size),
            "site": ["ours"] * ROWS,
            "spare": [None] * ROWS,
        }
    )


EXPECTED = {
    "event": ("dropped", None, "a value a row: 600 values"),
    "click": ("label", None, "by its name and values"),
    "user_id": ("categorical", None, 'in [defaults] gauc_by = "user_id" gives a group AUC'),
    "flag": ("categorical", None, "whole numbers, few values: 2"),
    "zip": ("categorical", None, "numbers that are names"),
    "hour": ("hour", None, "YYMMDDHH"),
    "seen_at": ("dropped", None, "seconds since 1970"),
    "day": ("dropped", None, "a date or time"),
    "part": ("dropped", None, "seems to say each row's split"),
    "price": ("numeric", "log1p", "a long tail"),
    "age": ("numeric", "standard", "18 to 67, median"),
    "ctr": ("numeric", "raw", "small as they are"),
    "delay": ("numeric", "quantile", "far outliers"),
    "stars": ("categorical", None, "whole numbers, few values: 5"),
    "site": ("dropped", None, "constant: `ours`"),
    "spare": ("dropped", None, "no value"),
}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "my log.csv"
    frame().write_csv(path)
    return path


def test_roles_rules_and_reasons(log):
    found = draft_card(log)
    assert {column.name: (column.role, column.numeric) for column in found.columns} == {
        name: (role, rule) for name, (role, rule, _) in EXPECTED.items()
    }
    for column in found.columns:
        assert EXPECTED[column.name][2] in column.why
    assert "12 % missing" in next(column.why for column in found.columns if column.name == "age")
    assert (found.name, found.kind, found.rows) == ("my-log", "log", {"my log.csv": ROWS})


@pytest.mark.parametrize("form", ["csv", "tsv", "gz", "parquet", "quoted"])
def test_a_draft_is_valid_and_prepares(tmp_path, log, form, capsys):
    path = {"csv": log, "gz": tmp_path / "a.csv.gz"}.get(form, tmp_path / f"a.{form}")
    if form == "parquet":
        pl.read_csv(log).write_parquet(path)
    elif form in ("tsv", "quoted"):
        style = "always" if form == "quoted" else "necessary"
        pl.read_csv(log).write_csv(
            path, separator="\t" if form == "tsv" else ";", quote_style=style
        )
    elif form == "gz":
        import gzip

        path.write_bytes(gzip.compress(log.read_bytes()))

    assert exit_code(["card", str(path), "--json"]) == 0

    out, err = capsys.readouterr()
    content = json.loads(out)
    assert err == ""
    assert content["rows"] == {path.name: ROWS}
    spec = resolve(content["path"], {})
    manifest = prepare(spec, data_dir=tmp_path / "data", source=path)
    assert manifest.rows.total == ROWS
    assert manifest.n_fields == sum(
        role not in ("label", "dropped") for role, _, _ in EXPECTED.values()
    )
    # What the draft chose loses nothing.
    assert [text for text in manifest.warnings if "rule" in text] == []


def test_a_card_is_not_replaced_unasked(log, capsys):
    assert exit_code(["card", str(log)]) == 0
    card = log.with_suffix(".toml")
    card.write_text("mine")
    assert exit_code(["card", str(log)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert card.read_text() == "mine"
    assert exit_code(["card", str(log), "--force"]) == 0
    assert read_card(card).name == "my-log"
    assert exit_code(["card", str(log), "--output", str(log.parent / "b.toml")]) == 0
    assert exit_code(["card", str(log), "--output", str(log.parent / "b.tml")]) == 2


@pytest.mark.parametrize(
    ("rename", "says"),
    [
        (
            {"click": "shown", "flag": "seen"},
            ["`shown`: its values are 0 and 1", "`seen`: its val"],
        ),
        ({"click": "x", "flag": "label"}, None),
        ({}, None),
    ],
)
def test_the_label(tmp_path, rename, says, capsys):
    path = tmp_path / "log.csv"
    frame().rename(rename).write_csv(path)
    code = exit_code(["card", str(path)])
    err = capsys.readouterr().err
    if says is None:
        assert (code, err) == (0, "")
        return
    assert code == 1
    card = (tmp_path / "log.toml").read_text()
    for text in says:
        assert text in err
        assert text in card


def test_what_could_be_made_a_label(tmp_path):
    path = tmp_path / "log.csv"
    bought = pl.Series("bought", ["yes", "no"] * (ROWS // 2))
    rating = pl.Series("label", list(range(1, 7)) * (ROWS // 6))
    frame().drop("click", "flag").with_columns(bought, rating).write_csv(path)
    found = draft_card(path)
    assert not found.has_label
    assert found.could_be_label == [
        "`bought`: two values (no, yes), to be written as 0 and 1",
        "`label`: by its name, but it has 6 values",
    ]


def test_true_and_false_of_a_parquet_file_are_a_label(tmp_path):
    path = tmp_path / "log.parquet"
    frame().drop("flag").with_columns(pl.col("click") == 1).write_parquet(path)
    assert draft_card(path).has_label


@pytest.mark.parametrize(
    ("split", "role"),
    [
        ("group", '"user_id", role = "group", also = "categorical"'),
        ("time", '"seen_at", role = "time"'),
        ("time", '"day", role = "time"'),
        ("column", '"part", role = "split"'),
    ],
)
def test_a_proposed_split_is_one(tmp_path, log, split, role):
    """What a reason proposes, written on the card, is taken by `prepare`."""
    column = role.split('"')[1]
    reason = next(one.why for one in draft_card(log).columns if one.name == column)
    assert f'split = "{split}"' in reason
    assert role.partition(", ")[2] in reason
    text = draft_card(log).text.replace('split = "hash"', f'split = "{split}"')
    lines = [
        f"  {{ name = {role} }}," if f'name = "{column}"' in line else line
        for line in text.splitlines()
    ]
    (tmp_path / "log.toml").write_text("\n".join(lines))
    manifest = prepare(
        resolve(str(tmp_path / "log.toml"), {}), data_dir=tmp_path / "data", source=log
    )
    assert manifest.settings["split"] == split
    assert min(manifest.rows.plain().values()) > 20


def test_a_folder_of_splits(tmp_path):
    folder = tmp_path / "ours"
    folder.mkdir()
    for name, part in zip(("train", "valid", "test"), range(3), strict=True):
        frame()[200 * part : 200 * part + 200].write_csv(folder / f"{name}.csv")
    files = [str(folder / f"{name}.csv") for name in ("train", "valid", "test")]
    assert exit_code(["card", *files]) == 0
    card = read_card(tmp_path / "ours.toml")
    assert card.kind == "splits"
    manifest = prepare(
        resolve(str(tmp_path / "ours.toml"), {}), data_dir=tmp_path / "data", source=folder
    )
    assert manifest.rows.plain() == {"train": 200, "valid": 200, "test": 200}
    assert exit_code(["card", *files[:2]]) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0,3,4\n1,2,3\n", "line 1: looks like a row"),
        ("click\n1\n", "line 1: one column"),
        ("", "the file is empty"),
        ("click,,a\n1,2,3\n", "line 1: a column has no name"),
        ("click,a,a\n1,2,3\n", "line 1: two columns are named `a`"),
        ('click,"a\nb",c\n1,2,3\n', "line 1: a quoted name has no end"),
        ("click,a\n1,2\n1\n", "line 3 has 1"),
    ],
)
def test_a_log_that_cannot_be_read(tmp_path, text, says):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        draft_card(path)
    assert exit_code(["card", str(path)]) == 3
    assert [one.name for one in tmp_path.iterdir()] == ["log.csv"]


def test_texts_for_missing_numbers(tmp_path):
    path = tmp_path / "log.csv"
    lines = [
        f"{i % 2},{'NULL' if i % 7 == 0 else i * 1.5},{'NULL' if i % 5 else 'b'}" for i in range(99)
    ]
    path.write_text("\n".join(["click,price,text", *lines]) + "\n")
    found = draft_card(path)
    assert found.missing == ["NULL"]
    assert [column.role for column in found.columns] == ["label", "numeric", "categorical"]
    assert "16 % missing" in found.columns[1].why or "15 % missing" in found.columns[1].why


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path, quoting, end):
    path = tmp_path / "log.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file, quoting=quoting, lineterminator=end)
        rows.writerows([["click", "a"], *([i % 2, f"v{i % 7}"] for i in range(99))])
    found = draft_card(path)
    assert [column.name for column in found.columns] == ["click", "a"]
    assert found.has_label


def test_columns_without_a_text_are_left_out(tmp_path):
    """Such a draft prepares, since `prepare` leaves out what is not on the card."""
    path = tmp_path / "log.parquet"
    values = {
        "click": [0, 1, 1, 0] * 50,
        "tags": [[1], [2, 3]] * 100,
        "a": [i * 37 % 101 / 4 for i in range(200)],
    }
    pl.DataFrame(values).write_parquet(path)
    found = draft_card(path)
    assert [column.name for column in found.columns] == ["click", "a"]
    assert found.left_out == {"tags": "List(Int64)"}
    assert "# `tags` is left out: a column of type List(Int64) is not read" in found.text
    card = tmp_path / "log.toml"
    card.write_text(found.text)
    assert prepare(resolve(str(card), {}), data_dir=tmp_path / "data", source=path).n_fields == 1


def test_numbers_but_for_few_texts(tmp_path):
    """The draft says how such a column becomes numeric, and so does `prepare`."""
    path = tmp_path / "log.csv"
    rows = [f"{i % 2},{'soon' if i == 50 else (i * 37 % 101) / 4}" for i in range(200)]
    path.write_text("\n".join(["click,delay", *rows]) + "\n")
    remedy = 'missing = ["soon"]'
    (column,) = draft_card(path).columns[1:]
    assert column.role == "categorical"
    assert f"numbers but for these: {remedy} in [format]" in column.why
    card = tmp_path / "log.toml"
    text = draft_card(path).text.replace(
        '"delay", role = "categorical"', '"delay", role = "numeric"'
    )
    card.write_text(text)
    with pytest.raises(DataError, match=r"line 52: `delay`: .* found `soon`") as caught:
        prepare(resolve(str(card), {}), data_dir=tmp_path / "data", source=path)
    assert remedy in caught.value.hint
    card.write_text(f"{text}\n[format]\n{remedy}\n")
    assert prepare(resolve(str(card), {}), data_dir=tmp_path / "data", source=path).n_fields == 1


@pytest.mark.parametrize(
    ("log", "card", "name"),
    [
        ("MyLog.csv", "MyLog.toml", "MyLog"),
        ("Übersicht 1.csv.GZ", "Übersicht 1.toml", "Ubersicht-1"),
        ("日本.csv", "日本.toml", "log"),
        ("avazu.tsv", "avazu.toml", "avazu-own"),
    ],
)
def test_names_of_a_log_and_its_card(tmp_path, log, card, name):
    assert card_path(tmp_path / log) == tmp_path / card
    text = b"click,a\n0,b\n1,c\n"
    (tmp_path / log).write_bytes(gzip.compress(text) if log.endswith("GZ") else text)
    draft = draft_card(tmp_path / log)
    assert draft.name == name
    # Where the file is gone, the card that a table carries is found by the file's name.
    own = tmp_path / card
    own.write_text(draft.text)
    prepared = resolve(str(own), {})
    own.unlink()
    assert resolve(str(own), {}, carried=lambda: [prepared.card]).card == prepared.card


@pytest.mark.parametrize("given", [".", "../logs.v2", "sub/.."])
def test_the_card_of_a_folder_lies_beside_it(tmp_path, monkeypatch, given):
    folder = tmp_path / "logs.v2"
    (folder / "sub").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.csv").write_text("click,a\n0,b\n1,c\n")
    monkeypatch.chdir(folder)
    assert exit_code(["card", given]) == 0
    assert read_card(tmp_path / "logs.v2.toml").name == "logs.v2"
    assert card_path(Path("/")) == Path("/log.toml")


@pytest.mark.parametrize("name", ["c7", "campaign", "user", "site_country"])
@pytest.mark.parametrize(("step", "role"), [(1, "categorical"), (0.125, "numeric")])
def test_a_name_of_ids_does_not_make_ids_of_measures(tmp_path, name, step, role):
    path = tmp_path / "log.csv"
    rows = [f"{i % 2},{i * 37 % 101 * step}" for i in range(300)]
    path.write_text("\n".join([f"click,{name}", *rows]) + "\n")
    assert draft_card(path).columns[1].role == role


def test_a_long_log_is_sampled(log, monkeypatch):
    monkeypatch.setattr(draft_module, "_FIRST_ROWS", 100)
    monkeypatch.setattr(draft_module, "_A_BLOCK_ROWS", 50)
    monkeypatch.setattr(draft_module, "MOST_SAMPLED_ROWS", 150)
    seen = []
    sample = draft_module._Sample()
    for start in range(0, ROWS, 100):
        sample.add(frame()[start : start + 100].select(pl.all().cast(pl.String)))
    assert sample.rows == ROWS
    assert 100 <= sample.frame().height <= 150
    found = draft_card(log, on_progress=seen.append)
    assert (found.sampled_rows, sum(found.rows.values())) == (100, ROWS)
    assert seen[-1].done == seen[-1].total
