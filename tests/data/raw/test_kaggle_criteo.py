"""Kaggle's Criteo log, split here, against the three csv files that a slow program makes of it."""

import gzip
import io
import shutil
import tarfile
import time
import zipfile

import numpy as np
import pytest

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.data.card import load_card
from prime_bench.data.prepare import prepare
from prime_bench.data.raw import kaggle_criteo
from prime_bench.data.split import stratified_folds
from prime_bench.data.table import PreparedTable


@pytest.fixture
def as_csv(kaggle_log):
    """A folder with train.csv, valid.csv and test.csv, made row by row."""
    rows = kaggle_log.read_text().splitlines()
    labels = np.array([int(row[0]) for row in rows])
    folds = stratified_folds(labels, n_folds=10, seed=2018).tolist()
    folder = kaggle_log.parent.with_name("csv")
    folder.mkdir()
    for split, chosen in (("train", range(2, 10)), ("valid", [1]), ("test", [0])):
        lines = [",".join(load_card("criteo").header)]
        for fold in chosen:
            lines += [
                row.replace("\t", ",") for row, own in zip(rows, folds, strict=True) if own == fold
            ]
        (folder / f"{split}.csv").write_text("".join(line + "\n" for line in lines))
    return folder


def packed(log):
    path = log.with_name("train.txt.gz")
    path.write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    return path


def in_tar(log, *, with_log=True):
    path = log.with_name("dac.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (
            ("dac/readme.txt", b"readme"),
            ("dac/test.txt", b"1\t2\n"),
            ("dac/train.txt", log.read_bytes()),
        ):
            if with_log or name != "dac/train.txt":
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    log.unlink()
    return path


def in_zip(log):
    path = log.with_name("criteo.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(log, "dac/train.txt")
        archive.writestr("dac/test.txt", b"")
    log.unlink()
    return path


def without_last_line_end(log):
    log.write_bytes(log.read_bytes()[:-1])
    return log


def beside_rows_without_labels(log):
    """The folder of Kaggle's archive: its test.txt has no labels."""
    (log.parent / "test.txt").write_text("\t".join(["1"] * 39) + "\n")
    (log.parent / "readme.txt").write_text("Criteo's data\n")
    return log.parent


KINDS = {
    "file": lambda log: log,
    "gz": packed,
    "tar": in_tar,
    "zip": in_zip,
    "folder": lambda log: log.parent,
    "folder as unpacked": beside_rows_without_labels,
    "folder with gz": lambda log: packed(log).parent,
    "folder with tar": lambda log: in_tar(log).parent,
    "no last line end": without_last_line_end,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_gives_the_published_files(
    tmp_path, kaggle_log, as_csv, published_as, kind, names_in
):
    spec = published_as(as_csv, name="criteo")
    told, messages = [], []
    manifest = prepare(
        spec,
        data_dir=tmp_path / "a",
        source=KINDS[kind](kaggle_log),
        on_progress=told.append,
        log=messages.append,
    )
    assert manifest.verified
    csv = prepare(spec, data_dir=tmp_path / "b", source=as_csv)
    assert manifest.fingerprint == csv.fingerprint
    assert [f.md5 for f in manifest.inputs] == [f.md5 for f in csv.inputs]
    assert [f.rows for f in manifest.inputs] == [csv.rows.train, csv.rows.valid, csv.rows.test]
    assert len({f.made_from for f in manifest.inputs}) == 1
    assert {f.made_from for f in csv.inputs} == {None}
    # Nothing of the work stays.
    folder = spec.folder(tmp_path / "a")
    assert names_in(tmp_path / "a") == [folder.name]
    assert names_in(folder) == names_in(spec.folder(tmp_path / "b"))
    assert list(dict.fromkeys(p.stage for p in told)) == [
        *("checking", "splitting", "reading", "counting", "writing")
    ]
    for stage in ("checking", "splitting", "reading"):
        last = [progress for progress in told if progress.stage == stage][-1]
        assert (last.done, last.rows) == (last.total, 400)
    assert "of disk (split log" in messages[0]


@pytest.mark.usefixtures("small_blocks")
def test_small_blocks_give_the_same(tmp_path, kaggle_log, as_csv, published_as):
    spec = published_as(as_csv, name="criteo")
    assert prepare(spec, data_dir=tmp_path / "a", source=kaggle_log).verified


def test_a_rerun_knows_the_log_again(tmp_path, kaggle_log, as_csv, published_as, monkeypatch):
    spec = published_as(as_csv, name="criteo")
    first = prepare(spec, data_dir=tmp_path / "data", source=kaggle_log)

    def refuse(*_, **__):
        raise AssertionError("nothing has to be made")

    monkeypatch.setattr("prime_bench.data.prepare.encode", refuse)
    elsewhere = tmp_path / "elsewhere.txt"
    shutil.copy(kaggle_log, elsewhere)
    assert prepare(spec, data_dir=tmp_path / "data", source=elsewhere) == first
    monkeypatch.setattr("prime_bench.data.prepare.digest_source", refuse)
    assert prepare(spec, data_dir=tmp_path / "data", source=kaggle_log) == first
    elsewhere.write_text(kaggle_log.read_text()[2:])
    monkeypatch.undo()
    with pytest.raises(DataError, match="line 1 has"):
        prepare(spec, data_dir=tmp_path / "data", source=elsewhere)
    assert spec.manifest(tmp_path / "data") == first


def test_a_changed_log_is_no_published_one(tmp_path, kaggle_log, as_csv, published_as):
    spec = published_as(as_csv, name="criteo")
    lines = kaggle_log.read_text().splitlines()
    lines[10], lines[300] = lines[300], lines[10]
    kaggle_log.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(DataError, match="not the published files") as error:
        prepare(spec, data_dir=tmp_path / "data", source=kaggle_log)
    assert "expected md5" in error.value.message
    assert not (tmp_path / "data").exists()


def put(number, position, value):
    def edit(lines):
        fields = lines[number - 1].split("\t")
        fields[position] = value
        lines[number - 1] = "\t".join(fields)
        return lines

    return edit


FAULTS = {
    "commas": (
        lambda lines: [line.replace("\t", ",") for line in lines],
        "train.txt: expected 40 tab-separated fields, line 1 has 1; it looks comma-separated",
    ),
    "test.txt": (
        lambda lines: [line.partition("\t")[2] for line in lines],
        "line 1 has 39; this may be Kaggle's test.txt, which has no labels",
    ),
    "short row": (put(7, 39, "a\tb"), "expected 40 tab-separated fields, line 7 has 41"),
    "a header": (
        lambda lines: ["\t".join(load_card("criteo").header), *lines],
        "line 1: label: expected 0 or 1, found `Label`",
    ),
    "label 2": (put(9, 0, "2"), "line 9: label: expected 0 or 1, found `2`"),
    "label empty": (put(9, 0, ""), "line 9: label: expected 0 or 1, found ``"),
    "label 1.0": (put(9, 0, "1.0"), "line 9: label: expected 0 or 1, found `1.0`"),
    "a comma in a field": (put(33, 20, "a,b"), "train.txt: line 33: has a comma"),
    "quotation mark": (put(33, 20, '"a"'), "line 33: has a quotation mark"),
    "no number": (put(250, 3, "abc"), "train.txt: line 250: `I3`: expected a finite number"),
    "not finite": (put(400, 13, "inf"), "train.txt: line 400: `I13`: expected a finite number"),
    "blank line": (lambda lines: [*lines[:50], "", *lines[50:]], "line 51 is blank"),
    "two carriage returns": (
        lambda lines: [line + "\r\r" for line in lines],
        "line 1: has a carriage return that no line feed",
    ),
    "two byte order marks": (put(1, 0, "\ufeff\ufeff1"), "line 1: label: expected 0 or 1"),
    "empty": (lambda _: [], "train.txt: the file is empty"),
    "one class": (
        lambda lines: [f"1{line[1:]}" if i < 5 else f"0{line[1:]}" for i, line in enumerate(lines)],
        "label 1 has 5 rows, too few for 10 folds",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_log(tmp_path, kaggle_log, as_csv, published_as, name):
    spec = published_as(as_csv, name="criteo")
    edit, expected = FAULTS[name]
    lines = edit(kaggle_log.read_text().splitlines())
    kaggle_log.write_text("".join(line + "\n" for line in lines), newline="")
    with pytest.raises(DataError) as error:
        prepare(spec, data_dir=tmp_path / "data", source=kaggle_log, allow_unverified=True)
    assert expected in error.value.message
    assert not (tmp_path / "data").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


ARCHIVES = {
    "cut gz": (lambda log: cut(packed(log)), "is cut short: the compressed data ends too early"),
    "cut tar": (lambda log: cut(in_tar(log)), "is cut short: the compressed data ends too early"),
    "tar without the log": (lambda log: in_tar(log, with_log=False), "has no train.txt inside"),
    "no tar": (lambda log: packed(log).rename(log.with_name("dac.tar.gz")), "is damaged or not"),
    "no gz": (lambda log: log.rename(log.with_name("train.txt.gz")), "is damaged or not what"),
    "other name": (lambda log: log.rename(log.with_name("train.tsv")), "expected a folder with"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_faulty_archive(tmp_path, kaggle_log, as_csv, published_as, name):
    spec = published_as(as_csv, name="criteo")
    make, expected = ARCHIVES[name]
    with pytest.raises(DataError) as error:
        prepare(spec, data_dir=tmp_path / "data", source=make(kaggle_log))
    assert expected in error.value.message
    assert not (tmp_path / "data").exists()


def test_a_log_that_changes_meanwhile(tmp_path, kaggle_log, as_csv, published_as):
    spec = published_as(as_csv, name="criteo")

    def change(progress):
        if progress.stage == "checking":
            kaggle_log.write_text(kaggle_log.read_text()[:-3] + "ff\n")

    with pytest.raises(DataError, match=r"train\.txt: was changed while it was read"):
        prepare(spec, data_dir=tmp_path / "data", source=kaggle_log, on_progress=change)
    assert not (tmp_path / "data").exists()


def test_too_little_disk(tmp_path, kaggle_log, as_csv, published_as, monkeypatch):
    spec = published_as(as_csv, name="criteo")
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9e9, 9e9, 1000))
    with pytest.raises(EnvironmentFault, match=r"needs about 0.00 GB of disk \(split log"):
        prepare(spec, data_dir=tmp_path / "data", source=kaggle_log)
    assert not (tmp_path / "data").exists()


def test_the_table_has_the_rows_of_the_log(tmp_path, kaggle_log, as_csv, published_as):
    spec = published_as(as_csv, name="criteo")
    prepare(spec, data_dir=tmp_path / "data", source=kaggle_log)
    table = PreparedTable.open(spec.folder(tmp_path / "data"))
    found = sum(table.split(split).labels.sum() for split in ("train", "valid", "test"))
    assert found == sum(line[0] == "1" for line in kaggle_log.read_text().splitlines())


@pytest.mark.parametrize("stage", ["checking", "splitting", "reading", "writing"])
def test_interrupted_at_any_stage(tmp_path, kaggle_log, as_csv, published_as, stage):
    spec = published_as(as_csv, name="criteo")

    def stop(progress):
        if progress.stage == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(spec, data_dir=tmp_path / "data", source=kaggle_log, on_progress=stop)
    assert not (tmp_path / "data").exists()


def test_interrupted_while_the_next_block_is_read(
    tmp_path, kaggle_log, as_csv, published_as, monkeypatch
):
    """The thread that reads in advance has ended before the file is closed under it."""
    spec = published_as(as_csv, name="criteo")
    read = kaggle_criteo._Parts._read

    def slowly(parts, paths):
        for piece in read(parts, paths):
            time.sleep(0.05)
            yield piece
            time.sleep(0.05)

    def stop(progress):
        if progress.stage == "reading":
            raise KeyboardInterrupt

    monkeypatch.setattr(kaggle_criteo._Parts, "_read", slowly)
    with pytest.raises(KeyboardInterrupt):
        prepare(spec, data_dir=tmp_path / "data", source=kaggle_log, on_progress=stop)
    assert not (tmp_path / "data").exists()
