"""AFN's libsvm files of Avazu against the csv files that were made of them."""

import gzip
import zipfile

import numpy as np
import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.card import load_card
from prime_bench.data.prepare import prepare


def to_libsvm(folder, *, end=""):
    """The three csv files of a folder as AFN writes them, in a folder of their own."""
    other = folder.with_name("afn")
    other.mkdir()
    for path in folder.glob("*.csv"):
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
        lines = [" ".join([label, *(f"{id_}:1" for id_ in ids)]) + end for label, *ids in rows]
        (other / f"{path.stem}.libsvm").write_text("".join(line + "\n" for line in lines))
    return other


def in_zip(folder):
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, f"avazu/{file.name}")
            archive.writestr(f"__MACOSX/avazu/{file.name}", b"shadow")
    return path


KINDS = {
    "folder": lambda folder: folder,
    "one of the files": lambda folder: folder / "valid.libsvm",
    "zip": in_zip,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["", " "])
def test_libsvm_is_the_published_csv(tmp_path, avazu_folder, published_as, kind, end):
    spec = published_as(avazu_folder)
    told = []
    manifest = prepare(
        spec,
        data_dir=tmp_path / "a",
        source=KINDS[kind](to_libsvm(avazu_folder, end=end)),
        on_progress=told.append,
    )
    assert manifest.verified
    csv = prepare(spec, data_dir=tmp_path / "b", source=avazu_folder)
    assert manifest.fingerprint == csv.fingerprint
    assert [f.sha256 for f in manifest.inputs] == [f.sha256 for f in csv.inputs]
    read = [progress for progress in told if progress.stage == "reading"]
    assert read[-1].done == read[-1].total


@pytest.mark.usefixtures("small_blocks")
def test_small_blocks_and_a_rerun(tmp_path, avazu_folder, published_as, monkeypatch):
    spec = published_as(avazu_folder)
    folder = to_libsvm(avazu_folder)
    first = prepare(spec, data_dir=tmp_path / "data", source=folder)

    def refuse(*_, **__):
        raise AssertionError("nothing has to be made")

    monkeypatch.setattr("prime_bench.data.prepare.encode", refuse)
    assert prepare(spec, data_dir=tmp_path / "data", source=folder) == first
    # The same content elsewhere, and as csv.
    assert prepare(spec, data_dir=tmp_path / "data", source=in_zip(folder)) == first
    assert prepare(spec, data_dir=tmp_path / "data", source=avazu_folder) == first


def put(number, change):
    def edit(lines):
        lines[number - 1] = change(lines[number - 1])
        return lines

    return edit


FAULTS = {
    "a value other than 1": (
        put(7, lambda line: line.replace(":1 ", ":0.5 ", 1)),
        "valid.libsvm: line 7: expected `label id:1 id:1 ...`, found `",
    ),
    "no value": (put(3, lambda line: line.replace(":1 ", " ", 1)), "line 3: expected `label id:1"),
    "a value at the label": (put(3, lambda line: line[0] + ":1" + line[1:]), "line 3: expected"),
    "a comma": (put(3, lambda line: line.replace(" ", " 1,", 1)), "line 3: expected `label id:1"),
    "a field too few": (
        put(9, lambda line: line.rpartition(" ")[0]),
        "valid.libsvm: expected 23 space-separated fields, line 9 has 22",
    ),
    "a field too many": (put(1, lambda line: line + " 5:1"), "line 1 has 24"),
    "csv": (lambda lines: [line.replace(" ", ",") for line in lines], "it looks comma-separated"),
    "label": (put(5, lambda line: "2" + line[1:]), "line 5: `label`: expected 0 or 1, found `2`"),
    "blank line": (put(5, lambda _: ""), "line 5 is blank"),
    "two carriage returns": (
        put(4, lambda line: line + "\r\r"),
        "line 4: has a carriage return that no line feed",
    ),
    "two byte order marks": (
        put(1, lambda line: "\ufeff\ufeff" + line),
        "line 1: `label`: expected 0 or 1",
    ),
    "empty": (lambda _: [], "valid.libsvm: the file is empty"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_libsvm(tmp_path, avazu_folder, published_as, name):
    spec = published_as(avazu_folder)
    path = to_libsvm(avazu_folder) / "valid.libsvm"
    edit, expected = FAULTS[name]
    lines = edit(path.read_text().splitlines())
    path.write_text("".join(line + "\n" for line in lines), newline="")
    with pytest.raises(DataError) as error:
        prepare(spec, data_dir=tmp_path / "data", source=path.parent, allow_unverified=True)
    assert expected in error.value.message
    assert not (tmp_path / "data").exists()


def without_test(folder):
    (folder / "test.libsvm").unlink()
    return folder


def two_train(folder):
    (folder / "train2.libsvm").touch()
    return folder


def packed(folder):
    path = folder / "test.libsvm"
    path.write_bytes(gzip.compress(path.read_bytes()))
    return folder


WRONG = {
    without_test: "expected one te*.libsvm inside, found 0 (train.libsvm, valid.libsvm)",
    two_train: "expected one tr*.libsvm inside, found 2",
    packed: "test.libsvm: is compressed",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_libsvm_files_that_are_amiss(tmp_path, avazu_folder, published_as, change):
    folder = change(to_libsvm(avazu_folder))
    with pytest.raises(DataError) as error:
        prepare(published_as(avazu_folder), data_dir=tmp_path / "data", source=folder)
    assert WRONG[change] in error.value.message


def test_criteo_has_no_libsvm(tmp_path, avazu_folder, criteo_folder, published_as):
    spec = published_as(criteo_folder, name="criteo")
    with pytest.raises(DataError, match=r"missing train\.csv") as error:
        prepare(spec, data_dir=tmp_path / "data", source=to_libsvm(avazu_folder))
    assert "can also be read from Kaggle's train.txt" in error.value.hint


# ---- Numeric fields, and csv files that were published with CRLF

SPLITS = {"train": 40, "valid": 12, "test": 9}


def write_published(folder, name, *, seed=3):
    """Csv files with CRLF of card `name`, and AFN's libsvm files beside them, in two folders."""
    random = np.random.default_rng(seed)
    columns = load_card(name).columns[1:]
    for sort in ("csv", "libsvm"):
        (folder / sort).mkdir(parents=True)
    for split, n_rows in SPLITS.items():
        csv = [",".join(["label", *(column.name for column in columns)])]
        lines = []
        for _ in range(n_rows):
            label = str(random.integers(0, 2))
            values = [
                f"{random.random():.{random.integers(1, 8)}f}"
                if column.role == "numeric"
                else str(random.integers(5))
                for column in columns
            ]
            csv.append(",".join([label, *values]))
            fields = [
                f"{number}:{value}" if column.role == "numeric" else f"{value}:1"
                for number, (column, value) in enumerate(zip(columns, values, strict=True))
            ]
            lines.append(" ".join([label, *fields]))
        content = "".join(line + "\r\n" for line in csv)
        (folder / "csv" / f"{split}.csv").write_bytes(content.encode())
        libsvm = "".join(line + "\n" for line in lines)
        (folder / "libsvm" / f"{split}.libsvm").write_bytes(libsvm.encode())
    return folder / "csv", folder / "libsvm"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["frappe", "movielens", "criteo-x1"])
def test_libsvm_is_the_csv_that_was_published_with_crlf(tmp_path, published_as, name):
    csv, libsvm = write_published(tmp_path, name)
    spec = published_as(csv, name=name)
    made = {
        folder.name: prepare(spec, data_dir=tmp_path / f"data-{folder.name}", source=folder)
        for folder in (csv, libsvm)
    }

    assert {m.verified for m in made.values()} == {True}
    assert len({m.fingerprint for m in made.values()}) == 1
    assert [file.published for file in made["libsvm"].inputs] == ["CRLF"] * 3
    assert [file.published for file in made["csv"].inputs] == ["as stored"] * 3


def test_a_csv_whose_crlf_were_converted_is_the_published_one(tmp_path, published_as):
    csv, _ = write_published(tmp_path, "frappe")
    spec = published_as(csv, name="frappe")
    for path in csv.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))

    manifest = prepare(spec, data_dir=tmp_path / "data", source=csv)

    assert manifest.verified
    assert manifest == prepare(spec, data_dir=tmp_path / "data", source=csv), "a rerun"


def test_one_other_value_is_not_the_published_file(tmp_path, published_as):
    csv, libsvm = write_published(tmp_path, "criteo-x1")
    spec = published_as(csv, name="criteo-x1")
    path = libsvm / "valid.libsvm"
    first, _, rest = path.read_text().partition(" 0:")
    path.write_text(f"{first} 0:0.123456789{rest[rest.index(' ') :]}")

    with pytest.raises(DataError, match=r"valid\.csv: expected md5") as error:
        prepare(spec, data_dir=tmp_path / "data", source=libsvm)
    assert "train.csv" not in error.value.message
    assert "the same rows, written differently" in error.value.hint


def test_renamed_libsvm_files_are_told(tmp_path, published_as):
    csv, libsvm = write_published(tmp_path, "movielens")
    spec = published_as(csv, name="movielens")
    (libsvm / "valid.libsvm").rename(libsvm / "x")
    (libsvm / "test.libsvm").rename(libsvm / "valid.libsvm")
    (libsvm / "x").rename(libsvm / "test.libsvm")

    with pytest.raises(DataError) as error:
        prepare(spec, data_dir=tmp_path / "data", source=libsvm)
    assert "valid.csv holds the published test.csv" in error.value.hint


VALUES_FAULTS = {
    "a numeric field without a value": (4, "3:"),
    "a numeric field without an index": (4, ":0.5"),
    "a numeric field without a colon": (4, "3"),
    "a second colon": (4, "3:1:0.5"),
    "a comma": (4, "3:0,5"),
    "a categorical field with a value": (20, "7:0.5"),
    "a categorical field without an id": (20, ":1"),
}


@pytest.mark.parametrize("name", VALUES_FAULTS)
def test_faulty_numeric_libsvm(tmp_path, published_as, name):
    """Field 4 is I4, field 20 is C7."""
    csv, libsvm = write_published(tmp_path, "criteo-x1")
    path = libsvm / "test.libsvm"
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    position, found = VALUES_FAULTS[name]
    lines[5][position] = found
    path.write_text("".join(" ".join(line) + "\n" for line in lines))

    with pytest.raises(DataError) as error:
        prepare(
            published_as(csv, name="criteo-x1"),
            data_dir=tmp_path / "data",
            source=libsvm,
            allow_unverified=True,
        )
    assert "test.libsvm: line 6: expected `label index:value index:value ... id:1" in str(
        error.value
    )
