"""A table whose files were changed after it was prepared, or while it is in use, is not used."""

import json
import os
import shutil

import numpy as np
import pytest

from prime_bench.base.errors import DataError
from prime_bench.base.files import sha256_of
from prime_bench.data.manifest import fingerprint_of, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable, checked_table, files_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = resolve("synthetic", {"rows": 500})
    data_dir = tmp_path_factory.mktemp("data")
    prepare(spec, data_dir=data_dir)
    return spec.folder(data_dir)


def test_a_table_as_it_was_prepared_is_accepted(folder):
    table = PreparedTable.open(folder)
    table.check_contents()
    assert table._checked.keys() == table.manifest.outputs.keys(), "every file was looked at"
    assert table.is_current()
    assert checked_table(folder) is checked_table(folder)


@pytest.mark.parametrize("name", ["train.ids.npy", "test.labels.npy", "vocabulary/hour.txt"])
def test_a_changed_byte_is_found(folder, name):
    path = folder / name
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        with pytest.raises(DataError, match=f"{name}: was changed since it was prepared"):
            PreparedTable.open(folder).check_contents()
    finally:
        path.write_bytes(content)


def test_a_missing_vocabulary_is_found(folder):
    path = folder / "vocabulary" / "hour.txt"
    content = path.read_bytes()
    table = PreparedTable.open(folder)
    (hour,) = [field for field in table.schema.fields if field.name == "hour"]
    try:
        path.unlink()
        for look in (table.check_contents, lambda: table.values(hour)):
            with pytest.raises(DataError, match=r"hour\.txt: cannot be read"):
                look()
    finally:
        path.write_bytes(content)


def test_values_stand_for_the_ids_or_are_refused(folder):
    path = folder / "vocabulary" / "hour.txt"
    content = path.read_bytes()
    table = PreparedTable.open(folder)
    (hour,) = [field for field in table.schema.fields if field.name == "hour"]
    values = table.values(hour)
    assert len(values) == hour.vocabulary_size
    assert (values[0], values[-1]) == ("(padding)", "(out of vocabulary)")
    try:
        path.write_bytes(content + b"24\n")
        with pytest.raises(DataError, match=r"hour\.txt: has \d+ values, the schema \d+ ids"):
            table.values(hour)
    finally:
        path.write_bytes(content)


@pytest.fixture
def copy(folder, tmp_path):
    """The table in a folder of the test's own, written long ago."""
    path = tmp_path / folder.name
    shutil.copytree(folder, path)
    for file in path.rglob("*"):
        os.utime(file, (1e9, 1e9))
    return path


def sealed_again(folder, **changes):
    """Write the manifest that fits the files as they are now, as a careful forger would."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["outputs"] = {name: sha256_of(folder / name) for name in manifest["outputs"]}
    manifest["fingerprint"] = fingerprint_of(manifest["outputs"])
    path.write_text(json.dumps({**manifest, **changes}))


def put(folder, name, value, *, at=(3, 2)):
    """Write a value into an array in place; returns the one that was there."""
    array = np.lib.format.open_memmap(folder / name, mode="r+")
    at = at[: array.ndim]
    before = array[at].item()
    array[at] = value
    array.flush()
    return before


def test_prepare_writes_the_files_of_the_schema(folder):
    table = PreparedTable.open(folder)
    assert table.manifest.outputs.keys() == files_of(table.schema, grouped=False)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {*table.manifest.outputs, "manifest.json"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda outputs: outputs.clear(), "it does not name schema.json, which belongs to"),
        (lambda outputs: outputs.pop("test.ids.npy"), "it does not name test.ids.npy"),
        (lambda outputs: outputs.update(more="0" * 64), "it names more, which does not belong to"),
        (
            lambda outputs: outputs.update({"test.ids.npy": "0" * 64}),
            "its fingerprint is not that of the digests of its files",
        ),
    ],
)
@pytest.mark.parametrize("consistent", [False, True])
def test_a_manifest_names_the_files_of_the_schema(copy, change, expected, consistent):
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest["outputs"])
    if consistent:
        manifest["fingerprint"] = fingerprint_of(manifest["outputs"])
        if "fingerprint" in expected:
            expected = "was changed since it was prepared"
    path.write_text(json.dumps(manifest))
    put(copy, "train.ids.npy", 1)
    with pytest.raises(DataError) as error:
        PreparedTable.open(copy).check_contents()
    assert expected in error.value.message
    assert "prime-bench prepare synthetic" in error.value.hint


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.ids.npy", -1, "has ids of {} that are not within 0 and {}"),
        ("valid.ids.npy", None, "has ids of {} that are not within 0 and {}"),
        ("test.ids.npy", 2**31 - 1, "has ids of {} that are not within 0 and {}"),
        ("valid.labels.npy", 2, "has labels other than 0 and 1"),
    ],
)
def test_a_value_that_no_table_has_is_found_whatever_its_digest(copy, name, value, expected):
    field = PreparedTable.open(copy).schema.categorical[2]
    put(copy, name, field.vocabulary_size if value is None else value)
    sealed_again(copy)
    with pytest.raises(DataError) as error:
        checked_table(copy)
    last = field.vocabulary_size - 1
    assert error.value.message == f"{copy / name}: {expected.format(field.name, last)}"
    put(copy, name, last if "ids" in name else 1)
    sealed_again(copy)
    checked_table(copy)


@pytest.mark.parametrize("name", ["train.ids.npy", "train.labels.npy", "test.numerics.npy"])
@pytest.mark.parametrize("time_is_kept", [False, True])
def test_a_table_in_use_that_is_written_to_is_found(tmp_path, name, time_is_kept):
    spec = resolve("synthetic", {"rows": 200, "shape": "criteo"})
    prepare(spec, data_dir=tmp_path)
    folder = spec.folder(tmp_path)
    file = folder / name
    os.utime(file, (1e9, 1e9))
    table = checked_table(folder)
    table.check_unchanged()
    before = put(folder, name, 0)
    put(folder, name, 1 - before)
    if time_is_kept:
        os.utime(file, (1e9, 1e9))
    expected = "was changed since it was prepared" if time_is_kept else "was written to while"
    with pytest.raises(DataError, match=expected):
        table.check_unchanged()
    with pytest.raises(DataError, match="was changed since it was prepared"):
        checked_table(folder)


def test_a_table_that_was_only_touched_is_read_again(copy):
    table = checked_table(copy)
    (copy / "train.ids.npy").chmod(0o600)
    assert not table.is_current()
    table.check_unchanged()
    assert table.is_current()
    assert checked_table(copy) is table


def test_a_table_that_is_prepared_again_stays_what_it_was_where_it_is_open(copy):
    """The worker that has it open goes on, and the next job reads the new one."""
    table = checked_table(copy)
    ids = np.array(table.split("test").ids)
    other = copy.with_name("other")
    copy.rename(other)
    shutil.copytree(other, copy)
    put(copy, "test.ids.npy", 1 - int(ids[3, 2] == 1))
    sealed_again(copy)
    shutil.rmtree(other)
    table.check_unchanged()
    assert np.array_equal(table.split("test").ids, ids)
    again = checked_table(copy)
    assert again.manifest.fingerprint != table.manifest.fingerprint
    assert not np.array_equal(again.split("test").ids, ids)
