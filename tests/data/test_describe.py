"""Facts about a table against plain counting over the raw rows."""

import json
import math
from collections import Counter

import pytest

from prime_bench.data.describe import N_PIECES, describe
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable

SPLITS = ("train", "valid", "test")


def rows_of(folder, split):
    lines = (folder / f"{split}.csv").read_text().split("\n")[:-1]
    return [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]


@pytest.fixture(params=["all", "train"])
def scope(request):
    return request.param


@pytest.fixture
def table(tmp_path, criteo_folder, scope):
    settings = {"vocabulary": scope, "min_count": 60, "numeric": "raw"}
    spec = resolve("criteo", settings)
    prepare(spec, data_dir=tmp_path / "data", source=criteo_folder, allow_unverified=True)
    return PreparedTable.open(spec.folder(tmp_path / "data"))


def test_facts_are_those_of_the_rows(table, criteo_folder, scope, monkeypatch):
    monkeypatch.setattr("prime_bench.data.describe._ROWS_AT_ONCE", 7)
    facts = describe(table)
    raw = {split: rows_of(criteo_folder, split) for split in SPLITS}
    assert [field.name for field in facts.fields] == list(raw["train"][0])[1:]
    for field in facts.fields:
        values = {split: [row[field.name] for row in raw[split]] for split in SPLITS}
        for split in SPLITS:
            assert field.missing[split] == values[split].count("") / len(values[split])
        if field.kind == "numeric":
            assert field.out_of_vocabulary is field.untrained is field.vocabulary_size is None
            continue
        counted = values["train"] + (values["valid"] + values["test"]) * (scope == "all")
        known = {value for value, n in Counter(counted).items() if n >= 60 and value}
        assert field.vocabulary_size == len(known) + 2
        id_of = {split: [v if v in known else None for v in values[split]] for split in SPLITS}
        for split in SPLITS:
            n_rows = len(id_of[split])
            assert field.out_of_vocabulary[split] == id_of[split].count(None) / n_rows
            untrained = [v for v in id_of[split] if v not in set(id_of["train"])]
            assert field.untrained[split] == len(untrained) / n_rows


def test_an_id_that_training_rows_lack_is_untrained(tmp_path, criteo_folder, csv):
    """In validation and test, C1 has a value of its own."""
    for split in ("valid", "test"):
        path = criteo_folder / f"{split}.csv"
        rows = [line.split(",") for line in path.read_text().split("\n")[:-1]]
        csv(path, [",".join(rows[0]), *(",".join([*r[:14], "new", *r[15:]]) for r in rows[1:])])
    for scope, unknown in (("all", 0.0), ("train", 1.0)):
        spec = resolve("criteo", {"vocabulary": scope, "min_count": 1})
        prepare(spec, data_dir=tmp_path, source=criteo_folder, allow_unverified=True)
        field = describe(PreparedTable.open(spec.folder(tmp_path))).fields[13]
        assert (field.name, field.out_of_vocabulary["test"]) == ("C1", unknown)
        # The missing value of training rows has the id of unknown ones.
        assert field.untrained["test"] == (1.0 if scope == "all" else 0.0)


def test_click_rates(table, criteo_folder):
    facts = describe(table)
    labels = {s: [int(row["Label"]) for row in rows_of(criteo_folder, s)] for s in SPLITS}
    rate = {split: sum(own) / len(own) for split, own in labels.items()}
    for split in SPLITS:
        found, own = facts.splits[split], labels[split]
        assert (found.rows, found.positives) == (len(own), sum(own))
        assert found.click_rate == pytest.approx(rate[split], abs=1e-12)
        assert found.difference == pytest.approx(rate[split] - rate["train"], abs=1e-12)
        n_pieces = min(N_PIECES, len(own))
        assert len(found.click_rates) == n_pieces
        # 300 and 60 rows are cut into equal pieces, 40 rows into single ones.
        size = len(own) // n_pieces
        pieces = [own[start : start + size] for start in range(0, len(own), size)]
        assert found.click_rates == [sum(piece) / size for piece in pieces]
    both = labels["train"] + labels["test"]
    p = sum(both) / len(both)
    error = math.sqrt(p * (1 - p) / 300 + p * (1 - p) / 60)
    assert facts.splits["test"].standard_error == pytest.approx(error)
    assert facts.splits["train"].standard_error == 0


def test_a_table_without_counts_of_missing_values(table):
    path = table.path / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["missing"]
    path.write_text(json.dumps(manifest))
    facts = describe(PreparedTable.open(table.path))
    assert all(field.missing is None for field in facts.fields)
    assert facts.fields[13].out_of_vocabulary is not None
