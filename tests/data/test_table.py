"""A table whose files were changed after it was prepared is not used."""

import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = resolve("synthetic", {"rows": 500})
    data_dir = tmp_path_factory.mktemp("data")
    prepare(spec, data_dir=data_dir)
    return spec.folder(data_dir)


def test_a_table_as_it_was_prepared_is_accepted(folder):
    PreparedTable.open(folder).check_contents()


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
