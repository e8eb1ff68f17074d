"""AFN's libsvm files of Avazu against the csv files that were made of them."""

import gzip
import zipfile

import pytest

from prime_bench.base.errors import DataError
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
    "byte order mark": (put(1, lambda line: "\ufeff" + line), "starts with a byte order mark"),
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
