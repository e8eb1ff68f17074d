"""Cards, table specs and the tables that others open."""

import errno
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.files import bundled_folder
from prime_bench.cli.prepare import prepare as command
from prime_bench.data import manifest
from prime_bench.data.card import card_names, load_card
from prime_bench.data.manifest import Manifest, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable

NAMES = ("avazu", "avazu-raw", "criteo", "synthetic")


def test_cards_were_found():
    assert set(card_names()) >= set(NAMES)


@pytest.mark.parametrize("name", card_names())
def test_card_is_sound(name):
    card = load_card(name)
    assert card.name == name
    assert card.licence
    assert card.homepage
    spec = resolve(name, {})
    assert spec.settings == card.settings_class.parse(card.defaults, where="")


def test_cards_hold_the_published_facts():
    avazu, criteo = load_card("avazu"), load_card("criteo")
    assert len(avazu.fields) == 22
    assert [file.rows for file in avazu.files.values()] == [28_300_276, 4_042_897, 8_085_794]
    assert {f.name: f.semantic for f in avazu.fields if f.name in ("feat_5", "feat_22")} == {
        "feat_5": "site_category",
        "feat_22": "hour",
    }
    # One PAD and one out-of-vocabulary id a field more make the published total.
    assert sum(f.train_values + 2 for f in avazu.fields) == 1_298_621
    assert len(criteo.fields) == 39
    assert sum(file.rows for file in criteo.files.values()) == 45_840_617
    assert sum(f.train_values + 2 for f in criteo.fields if f.train_values) == 910_747 - 1_021
    assert list(criteo.files) == list(avazu.files) == ["train", "valid", "test"]
    raw = load_card("avazu-raw")
    assert len(raw.header) == 24
    assert [f.name for f in raw.fields][-1] == "hour"
    assert "not comparable with Avazu_x1" in raw.notes[0]


def test_an_unknown_dataset_has_a_suggestion():
    with pytest.raises(UsageError, match=r"no data set `crieto`; did you mean `criteo`\?"):
        resolve("crieto", {})


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("avazu", {"min_cuont": 2}, "dataset.x.min_cuont: unknown key; did you mean `min_count`?"),
        ("avazu", {"min_count": 0}, "dataset.x.min_count: input should be greater than or equal"),
        ("avazu", {"min_count": "2"}, "dataset.x.min_count: input should be a valid integer"),
        ("avazu", {"numeric": "raw"}, "dataset.x.numeric: avazu has no numeric fields"),
        ("avazu", {"split": "hash"}, "dataset.x.split: unknown key"),
        ("synthetic", {"numeric": "raw"}, "dataset.x.numeric: synthetic has no numeric fields"),
        (
            "criteo",
            {"vocabulary": "test"},
            "dataset.x.vocabulary: input should be 'all' or 'train'",
        ),
        ("criteo", {"zero_is_missing": False}, "dataset.x.zero_is_missing: has an effect with"),
        ("avazu-raw", {"split_fractions": [0.5, 0.1, 0.1]}, "split_fractions: the three fractions"),
        ("avazu-raw", {"split_fractions": [1.0, 0.0, 0.0]}, "should be greater than 0"),
    ],
)
def test_faulty_settings(name, keys, expected):
    with pytest.raises(UsageError) as error:
        resolve(name, keys, where="dataset.x")
    assert expected in str(error.value)


def test_all_faults_come_at_once():
    with pytest.raises(UsageError) as error:
        resolve("criteo", {"numeric": "log", "min_cont": 1, "vocabulary": 3})
    assert len(error.value.message.splitlines()) == 3


VARIANTS = [
    ("avazu", {}),
    ("avazu", {"vocabulary": "train"}),
    ("avazu", {"min_count": 2}),
    ("criteo", {}),
    ("criteo", {"numeric": "log_bucket"}),
    ("criteo", {"numeric": "log_bucket", "zero_is_missing": False}),
    ("criteo", {"numeric": "minmax", "min_count": 1}),
    ("avazu-raw", {}),
    ("avazu-raw", {"split": "time"}),
    ("avazu-raw", {"split_fractions": [0.7, 0.1, 0.2], "split_seed": 3}),
    ("synthetic", {}),
    ("synthetic", {"rows": 5_000, "strength": 0.25, "seed": 1}),
    ("synthetic", {"shape": "criteo", "numeric": "log1p"}),
]


def test_no_two_specs_share_a_folder():
    folders = {resolve(name, keys).folder(Path("data")) for name, keys in VARIANTS}
    assert len(folders) == len(VARIANTS)
    assert all(len(folder.name.rpartition("-")[2]) == 8 for folder in folders)


def test_a_recipe_may_call_a_variant_by_another_name():
    named = resolve("criteo_log1p", {"card": "criteo", "numeric": "log1p"})
    assert named == resolve("criteo", {"numeric": "log1p"})
    assert named.name == "criteo"
    with pytest.raises(UsageError, match="critoe"):
        resolve("criteo", {"card": "critoe"})
    with pytest.raises(UsageError, match="crad"):
        resolve("criteo", {"crad": "criteo"})


def test_a_default_written_out_is_the_same_variant():
    for name, keys in VARIANTS:
        spec = resolve(name, keys)
        plain = spec.settings.plain()
        if name in ("avazu", "avazu-raw") or plain.get("shape") == "avazu":
            del plain["numeric"]
        if plain.get("numeric") != "log_bucket":
            del plain["zero_is_missing"]
        del plain["bins"]  # no effect without the rule quantile
        assert resolve(name, plain).digest == spec.digest


@pytest.mark.parametrize(("name", "keys"), VARIANTS)
def test_the_command_makes_this_very_variant(name, keys, monkeypatch):
    """`prepare_command` parsed by the real command gives the same digest."""
    spec = resolve(name, keys)
    words = shlex.split(spec.prepare_command())
    assert words[:2] == ["prime-bench", "prepare"]
    made = []

    def record(given, **_):
        made.append(given)
        raise InterruptedError

    monkeypatch.setattr("prime_bench.data.prepare.prepare", record)
    with pytest.raises(InterruptedError):
        command.main(words[2:], standalone_mode=False)
    assert made[0].digest == spec.digest
    assert ("--from" in words) == (name == "avazu-raw")


def test_the_digest_is_frozen():
    """Another digest orphans every table that was made before: raise ENCODING when you mean it."""
    assert resolve("avazu", {}).digest[:8] == "97af566c"
    assert resolve("criteo", {}).digest[:8] == "12a90bd7"


@pytest.fixture
def prepared(tmp_path, criteo_folder):
    spec = resolve("criteo", {"min_count": 1})
    manifest = prepare(
        spec, data_dir=tmp_path / "data", source=criteo_folder, allow_unverified=True
    )
    return spec, manifest, spec.folder(tmp_path / "data")


def test_open_table(prepared):
    _, manifest, folder = prepared
    table = PreparedTable.open(folder)
    assert table.manifest == manifest
    assert [field.name for field in table.schema.fields][:2] == ["I1", "I2"]
    for name, n_rows in (("train", 300), ("valid", 40), ("test", 60)):
        split = table.split(name)
        assert (split.ids.shape, split.ids.dtype) == ((n_rows, 26), np.int32)
        assert (split.numerics.shape, split.numerics.dtype) == ((n_rows, 13), np.float32)
        assert (split.labels.shape, split.labels.dtype) == ((n_rows,), np.uint8)
        assert len(split) == n_rows
        assert isinstance(split.ids, np.memmap)
        for array in (split.ids, split.numerics, split.labels):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def damage_manifest(folder):
    (folder / "manifest.json").write_text("{")


def other_version(folder):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "manifest_schema": 99}))


def missing_key(folder):
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["rows"]
    path.write_text(json.dumps(content))


def cut_array(folder):
    path = folder / "test.ids.npy"
    path.write_bytes(path.read_bytes()[:-4])


def swap_arrays(folder):
    (folder / "test.ids.npy").rename(folder / "x")
    (folder / "valid.ids.npy").rename(folder / "test.ids.npy")
    (folder / "x").rename(folder / "valid.ids.npy")


def remove(name):
    return lambda folder: (folder / name).unlink()


DAMAGE = {
    "no manifest": (remove("manifest.json"), "no prepared table here (manifest.json is missing)"),
    "no schema": (remove("schema.json"), "schema.json: cannot be read"),
    "no array": (remove("valid.labels.npy"), "valid.labels.npy: cannot be read"),
    "manifest cut": (damage_manifest, "manifest.json: cannot be read"),
    "another version": (other_version, "not a manifest of version 1"),
    "key missing": (missing_key, "manifest.json.rows: missing"),
    "array cut": (cut_array, "test.ids.npy: cannot be read"),
    "arrays swapped": (swap_arrays, "valid.ids.npy: expected int32 (40, 26), found int32 (60, 26)"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_unfit_table(prepared, name):
    spec, _, folder = prepared
    damage, expected = DAMAGE[name]
    damage(folder)
    with pytest.raises(DataError) as error:
        PreparedTable.open(folder)
    assert expected in error.value.message
    assert str(folder) in error.value.message
    assert "prime-bench prepare criteo" in error.value.hint
    if name == "no manifest":
        assert spec.manifest(folder.parent) is None


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (errno.ESTALE, EnvironmentFault),
        (errno.EIO, EnvironmentFault),
        (errno.EACCES, DataError),
        (errno.EISDIR, DataError),
    ],
)
def test_an_error_of_the_disk_is_no_fault_of_the_manifest(tmp_path, monkeypatch, number, raised):
    def read_json(path):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(manifest, "read_json", read_json)
    with pytest.raises(raised, match=f"{tmp_path}/manifest.json: "):
        Manifest.read(tmp_path)


def test_missing_table_of_defaults_names_the_whole_command(tmp_path):
    spec = resolve("avazu", {})
    for folder in (spec.folder(tmp_path), spec.folder(tmp_path / "nowhere")):
        with pytest.raises(DataError) as error:
            PreparedTable.open(folder)
        assert error.value.hint == f"prepare it with `{spec.prepare_command()}`"
    with pytest.raises(DataError, match="no prepared table here"):
        PreparedTable.open(tmp_path)


def test_manifest_round_trip(prepared):
    spec, manifest, folder = prepared
    assert Manifest.read(folder) == manifest == spec.manifest(folder.parent)
    assert manifest.settings == spec.settings.plain()
    assert manifest.variant == spec.digest


def test_bundled_cards_are_toml_with_known_keys():
    for path in bundled_folder("datasets").glob("*.toml"):
        assert tomllib.loads(path.read_text())["name"] == path.stem.replace("_", "-")


LIGHT = """
import sys
sys.modules.update(dict.fromkeys(["polars", "pyarrow", "scipy", "pandas", "sklearn", "torch"]))
from prime_bench.data import manifest, schema, table
print(len(table.PreparedTable.open(sys.argv[1]).split("train")))
"""


def test_opening_a_table_needs_no_polars(prepared):
    output = subprocess.run(
        [sys.executable, "-c", LIGHT, prepared[2]], check=True, capture_output=True, text=True
    )
    assert output.stdout.strip() == "300"
