"""Tables exported for FuxiCTR: its FeatureMap loads them, and rows, ids and values are ours."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from fuxictr.features import FeatureMap

from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.cli.main import exit_code
from prime_bench.data.fuxictr_files import export_table
from prime_bench.data.manifest import SPLIT_NAMES, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable


@pytest.fixture(scope="module", params=["avazu", "criteo", "criteo log_bucket"])
def table(request, tmp_path_factory):
    """A table of 700 rows; Criteo's has numeric fields, or buckets."""
    shape, _, rule = request.param.partition(" ")
    numeric = {"numeric": rule} if rule else {}
    spec = resolve("synthetic", {"shape": shape, "rows": 700, **numeric})
    folder = tmp_path_factory.mktemp("data")
    prepare(spec, data_dir=folder)
    return PreparedTable.open(spec.folder(folder))


@pytest.fixture
def exported(table, tmp_path, monkeypatch):
    monkeypatch.setattr("prime_bench.data.fuxictr_files._GROUP_ROWS", 64)
    export_table(table, tmp_path / "root" / "our_id")
    return tmp_path / "root" / "our_id"


def test_fuxictrs_feature_map_loads(table, exported):
    feature_map = FeatureMap("our_id", str(exported))
    feature_map.load(str(exported / "feature_map.json"), {"embedding_dim": 10})
    assert list(feature_map.features) == [field.name for field in table.schema.fields]
    assert feature_map.labels == ["label"]
    assert feature_map.num_fields == feature_map.input_length == len(table.schema.fields)
    assert feature_map.sum_emb_out_dim() == 10 * len(table.schema.fields)
    sizes = {name: entry.get("vocab_size") for name, entry in feature_map.features.items()}
    assert sizes == {field.name: field.vocabulary_size for field in table.schema.fields}
    # What it would save of itself is what we wrote.
    written = json.loads((exported / "feature_map.json").read_text())
    feature_map.save(str(exported / "again" / "feature_map.json"))
    assert json.loads((exported / "again" / "feature_map.json").read_text()) == written


def test_rows_are_ours(table, exported):
    for name in ("train", "valid", "test"):
        split, frame = table.split(name), pl.read_parquet(exported / f"{name}.parquet")
        for fields, values in (
            (table.schema.categorical, split.ids),
            (table.schema.numeric, split.numerics),
        ):
            for field, column in zip(fields, values.T, strict=True):
                np.testing.assert_array_equal(frame[field.name].to_numpy(), column)
        np.testing.assert_array_equal(frame["label"].to_numpy(), split.labels)
        # The types that FuxiCTR writes.
        assert {frame[field.name].dtype for field in table.schema.categorical} == {pl.Int64()}
        assert frame.width == len(table.schema.fields) + 1


def test_vocabularies_have_the_values_of_the_ids(table, exported):
    vocabulary = json.loads((exported / "feature_vocab.json").read_text())
    assert list(vocabulary) == [field.name for field in table.schema.categorical]
    for field in table.schema.categorical:
        own = vocabulary[field.name]
        assert list(own.values()) == list(range(field.vocabulary_size))
        assert (own["__PAD__"], own["__OOV__"]) == (0, field.vocabulary_size - 1)
        lines = (table.path / "vocabulary" / f"{field.name}.txt").read_text().split("\n")[:-1]
        assert list(own)[1:-1] == lines


def test_a_folder_in_use_is_left_alone(table, exported):
    (exported / "mine").write_text("x")
    with pytest.raises(UsageError, match="is in use"):
        export_table(table, exported)
    assert (exported / "mine").read_text() == "x"


def test_an_error_leaves_nothing(table, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prime_bench.data.fuxictr_files.write_whole", fail)
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        export_table(table, tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_command(table, tmp_path, capsys):
    target = tmp_path / "root" / "mine"
    winding = f"{target.parent}/other/../mine/"
    assert exit_code(["export", "fuxictr", str(table.path), "--to", winding]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out) == {
        "mine": {
            "data_root": str(target.parent),
            "data_format": "parquet",
            **{f"{split}_data": str(target / f"{split}.parquet") for split in SPLIT_NAMES},
        }
    }
    assert err.startswith(f"{target}: dataset_id mine, data_root {target.parent}; ")
    assert json.loads((target / "feature_map.json").read_text())["dataset_id"] == "mine"
    assert exit_code(["export", "fuxictr", str(table.path), "--to", str(target)]) == 2
    empty = ["--data-dir", str(tmp_path)]
    assert exit_code(["export", "fuxictr", "avazu", "--to", str(tmp_path / "x"), *empty]) == 3


def test_a_table_without_its_vocabularies_is_3(table, tmp_path, capsys):
    folder = shutil.copytree(table.path, tmp_path / "data" / table.path.name)
    shutil.rmtree(folder / "vocabulary")
    target = tmp_path / "root" / "mine"
    assert exit_code(["export", "fuxictr", str(folder), "--to", str(target)]) == 3
    err = capsys.readouterr().err
    assert ".txt: cannot be read" in err
    assert "hint: " in err
    assert not target.parent.exists()


def test_of_several_tables_one_has_to_be_named(tmp_path, capsys):
    for seed in (1, 2):
        prepare(resolve("synthetic", {"rows": 50, "seed": seed}), data_dir=tmp_path / "data")
    where = ["--data-dir", str(tmp_path / "data"), "--to", str(tmp_path / "to")]
    assert exit_code(["export", "fuxictr", "synthetic", *where]) == 2
    err = capsys.readouterr().err
    assert "has 2 prepared tables" in err
    folders = dict(re.findall(r"(\S+) \(seed (\d)\)", err))
    assert sorted(folders) == sorted(map(str, (tmp_path / "data").iterdir()))
    # What the message names can be given, with the folder of tables and without.
    name = Path(next(iter(folders))).name
    assert exit_code(["export", "fuxictr", name, *where]) == 0


LOADER = """
import sys
import numpy as np
from fuxictr.features import FeatureMap
from fuxictr.pytorch.dataloaders import RankDataLoader
folder = sys.argv[1]
feature_map = FeatureMap("our_id", folder)
feature_map.load(folder + "/feature_map.json", {"embedding_dim": 10})
loaders = RankDataLoader(
    feature_map,
    stage="both",
    **{f"{split}_data": f"{folder}/{split}.parquet" for split in ("train", "valid", "test")},
    data_format="parquet",
    batch_size=32,
    shuffle=False,
)
for split, batches in zip(("train", "valid", "test"), loaders):
    rows = [{name: column.numpy() for name, column in batch.items()} for batch in batches]
    columns = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    np.savez(f"{folder}/{split}.npz", **columns)
"""


@pytest.mark.slow
def test_fuxictrs_loader_opens_it(table, exported):
    """In a process of its own, since ray stays and its imports warn."""
    subprocess.run([sys.executable, "-c", LOADER, str(exported)], check=True, capture_output=True)
    for name in ("train", "valid", "test"):
        split, columns = table.split(name), np.load(exported / f"{name}.npz")
        assert len(columns) == len(table.schema.fields) + 1
        for fields, values in (
            (table.schema.categorical, split.ids),
            (table.schema.numeric, split.numerics),
        ):
            for field, column in zip(fields, values.T, strict=True):
                np.testing.assert_array_equal(columns[field.name], column)
        np.testing.assert_array_equal(columns["label"], split.labels)
