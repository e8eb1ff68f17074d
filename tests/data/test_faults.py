"""Faults of raw files, row by row: exit 3, one message with file and line, nothing left behind."""

import gzip
import os
import zipfile
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code


def with_line(number, line):
    """The lines with line `number` (from 1) replaced."""

    def edit(lines):
        return [*lines[: number - 1], line, *lines[number:]]

    return edit


def each(change):
    return lambda lines: [change(line) for line in lines]


def cut_column(position):
    def cut(line):
        fields = line.split(",")
        return ",".join(fields[:position] + fields[position + 1 :])

    return each(cut)


def put_field(number, position, value):
    """Line `number` with the field at `position` replaced."""

    def edit(lines):
        fields = lines[number - 1].split(",")
        fields[position] = value
        return with_line(number, ",".join(fields))(lines)

    return edit


def every_label(position, label):
    """All rows with that label, in the field at `position`."""

    def edit(lines):
        rows = [line.split(",") for line in lines[1:]]
        return [lines[0], *(",".join([*r[:position], label, *r[position + 1 :]]) for r in rows)]

    return edit


def rename(old, new):
    return lambda lines: [lines[0].replace(old, new), *lines[1:]]


def numbered(lines):
    """As pandas writes a table with its index: an unnamed first column."""
    return ["," + lines[0], *(f"{i},{line}" for i, line in enumerate(lines[1:]))]


# name: (edit of the lines, what the message says behind "<file>: ").
FAULTS = {
    "colons": (
        each(lambda line: line.replace(",", ":")),
        "expected 24 comma-separated fields, line 1 has 1; no header, or that of another file",
    ),
    "a column is missing": (cut_column(5), "line 1 has 23; missing `site_id`"),
    "no labels": (cut_column(1), "line 1 has 23; missing `click`"),
    "a field without a name in the header": (
        lambda lines: [lines[0], *numbered(lines)[1:]],
        "expected 24 comma-separated fields, line 2 has 25",
    ),
    "a renamed column": (
        rename("app_id", "appid"),
        "other columns than the card; missing `app_id`; unexpected `appid`; did you mean `appid`?",
    ),
    "a column twice": (
        rename("C20", "C19"),
        "line 1 has other columns than the card; missing `C20`; twice `C19`",
    ),
    "no header": (lambda lines: lines[1:], "line 1 has 24; no header, or that of another file"),
    "another data set": (
        lambda _: ["label,feat_1,feat_2", "0,1,2"],
        "line 1 has 3; no header, or that of another file",
    ),
    "sample submission": (
        lambda _: ["id,click", "10000174058809263569,0.5"],
        "line 1 has 2; this is Kaggle's sample submission",
    ),
    "empty": (lambda _: [], "the file is empty"),
    "header only": (lambda lines: lines[:1], "has a header and no rows"),
    "blank first line": (lambda lines: ["", *lines], "line 1 is blank, expected the header"),
    "label 2": (put_field(7, 1, "2"), "line 7: `click`: expected 0 or 1, found `2`"),
    "label empty": (put_field(2, 1, ""), "line 2: `click`: expected 0 or 1, found ``"),
    "label 0.5": (put_field(9, 1, "0.5"), "line 9: `click`: expected 0 or 1, found `0.5`"),
    "label 10": (put_field(9, 1, "10"), "line 9: `click`: expected 0 or 1, found `10`"),
    "label with a blank": (put_field(9, 1, " 1"), "line 9: `click`: expected 0 or 1, found ` 1`"),
    "hour of 10 digits": (
        put_field(5, 2, "2014102100"),
        "line 5: `hour`: expected 8 digits, YYMMDDHH, found `2014102100`",
    ),
    "hour with a letter": (put_field(5, 2, "1410210a"), "line 5: `hour`: expected 8 digits"),
    "hour 24": (put_field(5, 2, "14102124"), "line 5: `hour`: expected 8 digits"),
    "month 13": (put_field(5, 2, "14132100"), "line 5: `hour`: expected 8 digits"),
    "short row": (with_line(400, "1,0,14102100"), "fields, line 400 has 3"),
    "long row": (
        lambda lines: with_line(12, lines[11] + ",x")(lines),
        "expected 24 comma-separated fields, line 12 has 25",
    ),
    "short and long make up": (
        lambda lines: with_line(12, lines[11] + ",x")(with_line(13, lines[12][:-9])(lines)),
        "line 12 has 25",
    ),
    "blank line": (with_line(30, ""), "line 30 is blank"),
    "two byte order marks": (
        lambda lines: ["\ufeff\ufeff" + lines[0], *lines[1:]],
        "line 1 has other columns than the card; missing `id`; unexpected `\\ufeffid`",
    ),
    "two carriage returns": (
        each(lambda line: line + "\r\r"),
        "line 1 has a carriage return that no line feed follows",
    ),
    "two carriage returns later": (
        lambda lines: with_line(200, lines[199] + "\r\r")(lines),
        "line 200: has a carriage return that no line feed follows",
    ),
    "old Mac line ends": (
        lambda lines: ["\r".join(lines)],
        "line 1: lines end in a carriage return alone",
    ),
    "a quotation mark": (put_field(8, 6, 'a"b'), "line 8: a quoted field that begins here, or"),
    "quotation marks": (put_field(8, 6, 'a"b"'), "line 8: has a quotation mark inside a field"),
    "quoted header": (
        lambda lines: [f'"{lines[0]}"', *lines[1:]],
        "line 1 has 1; it looks comma-separated",
    ),
    "not UTF-8": (
        lambda lines: [*lines[:20], lines[20].encode()[:-1] + b"\xe9", *lines[21:]],
        "line 21: is not UTF-8 (byte",
    ),
    "not UTF-8 in the header": (
        lambda lines: [lines[0].encode() + b"\xff", *lines[1:]],
        "line 1 is not UTF-8",
    ),
    "UTF-16": (lambda lines: ["\n".join(lines).encode("utf-16")], "line 1 has a NUL byte"),
    "NUL": (put_field(8, 6, "a\0b"), "line 8: has a NUL byte"),
    "too few hours for time": (lambda lines: lines[:60], "at least 3 distinct times"),
    "too few rows": (lambda lines: lines[:2], "the split leaves no row for"),
    "no click": (every_label(1, "0"), "rows of valid have label 0\nall "),
}
FLAGS = {"too few hours for time": ["--split", "time"]}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ""])
def test_faulty_log(tmp_path, raw_log, csv, capsys, name, suffix):
    edit, expected = FAULTS[name]
    path = csv(tmp_path / "in" / f"log{suffix}", edit(raw_log))
    code = prepare_in(tmp_path, "avazu-raw", path, *FLAGS.get(name, []))
    assert_refused(code, capsys, expected)
    assert_nothing_left(tmp_path)


def prepare_in(tmp_path, name, path, *flags):
    arguments = ["prepare", name, "--from", str(path), "--data-dir", str(tmp_path / "out" / "data")]
    return exit_code([*arguments, *flags])


def assert_refused(code, capsys, expected):
    out, err = capsys.readouterr()
    assert (code, out) == (3, "")
    assert expected in err
    assert err.startswith("error: ")
    assert err.count("error: ") == 1
    assert "Traceback" not in err


def assert_nothing_left(tmp_path):
    assert not (tmp_path / "out").exists()


def test_the_first_fault_is_named(tmp_path, raw_log, csv, capsys):
    lines = put_field(300, 1, "7")(put_field(9, 1, "5")(raw_log))
    path = csv(tmp_path / "in" / "log.csv", lines)
    assert_refused(prepare_in(tmp_path, "avazu-raw", path), capsys, "line 9: `click`")


def test_the_hint_is_on_a_line_of_its_own(tmp_path, raw_log, csv, capsys):
    path = csv(tmp_path / "in" / "log.csv", each(lambda line: line + "\r\r")(raw_log))
    prepare_in(tmp_path, "avazu-raw", path)
    assert "\n\nhint: end lines in a line feed, or in" in capsys.readouterr().err


def missing(_):
    return Path("nowhere.csv")


def misspelt(log):
    return log.with_name("log.cvs")


def folder(log):
    path = log.with_name("empty")
    path.mkdir()
    return path


def truncated_gz(log):
    path = log.with_name("cut.csv.gz")
    whole = gzip.compress(log.read_bytes())
    path.write_bytes(whole[: len(whole) // 2])
    return path


def damaged_gz(log):
    path = log.with_name("damaged.csv.gz")
    whole = bytearray(gzip.compress(log.read_bytes()))
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(whole))
    return path


def not_gz(log):
    return log.rename(log.with_suffix(".gz"))


def hidden_gz(log):
    log.write_bytes(gzip.compress(log.read_bytes()))
    return log


def loop(log):
    path = log.with_name("loop.csv")
    path.symlink_to(path)
    return path


def dangling(log):
    path = log.with_name("dangling.csv")
    path.symlink_to(log.with_name("gone"))
    return path


def below_a_file(log):
    return log / "train.csv"


def long_name(log):
    return log.with_name("x" * 300)


def pipe(log):
    path = log.with_name("pipe.csv")
    os.mkfifo(path)
    return path


UNREADABLE = {
    missing: "there is no such file or folder",
    misspelt: "there is no such file or folder; did you mean `log.csv`?",
    folder: "has no file of data (nothing)",
    truncated_gz: "is cut short: the compressed data ends too early",
    damaged_gz: "is damaged or not what its name says",
    not_gz: "is damaged or not what its name says",
    hidden_gz: "is compressed",
    loop: "cannot be read: too many levels of symbolic links",
    dangling: "there is no such file or folder",
    below_a_file: "cannot be read: not a directory",
    long_name: "cannot be read: file name too long",
    pipe: "is not a regular file",
}


@pytest.mark.parametrize("make", UNREADABLE, ids=lambda make: make.__name__)
def test_unreadable_log(tmp_path, raw_log, csv, capsys, make):
    path = make(csv(tmp_path / "in" / "log.csv", raw_log))
    code = prepare_in(tmp_path, "avazu-raw", path)
    assert_refused(code, capsys, f"{path}: {UNREADABLE[make]}")
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("when", ["at once", "in the middle"])
def test_file_that_cannot_be_read(tmp_path, raw_log, csv, capsys, monkeypatch, when):
    """Modes mean nothing to root, so the operating system's answer is played."""
    path = csv(tmp_path / "in" / "log.csv", raw_log)
    if when == "at once":
        usual = Path.open

        def refuse(self, *arguments, **keywords):
            if self == path:
                raise PermissionError(13, "Permission denied", str(self))
            return usual(self, *arguments, **keywords)

        monkeypatch.setattr("pathlib.Path.open", refuse)
    else:

        class Broken:
            def __getattr__(self, name):
                raise OSError(5, "Input/output error")

        monkeypatch.setattr(
            "prime_bench.data.raw.source.Stream.__init__",
            lambda self, source, *_: self.__dict__.update(source=source, _content=Broken()),
        )
    reason = "permission denied" if when == "at once" else "input/output error"
    assert_refused(prepare_in(tmp_path, "avazu-raw", path), capsys, f"cannot be read: {reason}")


def edit_split(split, edit):
    def change(folder):
        path = folder / f"{split}.csv"
        lines = edit(path.read_text().splitlines())
        path.write_text("".join(line + "\n" for line in lines))
        return folder

    return change


def without(split):
    def change(folder):
        (folder / f"{split}.csv").unlink()
        return folder

    return change


def zipped(members):
    """A .zip with the csv files under other names."""

    def change(folder):
        path = folder.with_suffix(".zip")
        with zipfile.ZipFile(path, "w") as archive:
            for split, name in members.items():
                archive.write(folder / f"{split}.csv", name)
        return path

    return change


def cut_zip(folder):
    path = zipped({"train": "train.csv", "valid": "valid.csv", "test": "test.csv"})(folder)
    path.write_bytes(path.read_bytes()[:-100])
    return path


def flipped_zip(folder):
    path = zipped({"train": "train.csv", "valid": "valid.csv", "test": "test.csv"})(folder)
    whole = bytearray(path.read_bytes())
    # Inside the stored content of train.csv, so that only its checksum tells.
    whole[2_000] = ord("1") if whole[2_000] != ord("1") else ord("2")
    path.write_bytes(bytes(whole))
    return path


def both_kinds(folder):
    (folder / "valid.csv.gz").write_bytes(b"")
    return folder


FOLDERS = {
    "missing folder": (lambda folder: folder / "nowhere", "there is no such file or folder"),
    "no valid": (without("valid"), "missing valid.csv"),
    "a file": (lambda folder: folder / "train.csv", "expected a folder with train.csv, valid.csv"),
    "valid header only": (edit_split("valid", lambda lines: lines[:1]), "has a header and no rows"),
    "test empty": (edit_split("test", lambda _: []), "test.csv: the file is empty"),
    "test label": (edit_split("test", put_field(61, 0, "2")), "test.csv: line 61: `label`"),
    "test row": (edit_split("test", with_line(3, "1,2")), "test.csv: expected 23 comma-separated"),
    "valid of clicks": (
        edit_split("valid", every_label(0, "1")),
        "all 40 rows of valid have label",
    ),
    "test without clicks": (
        edit_split("test", every_label(0, "0")),
        "no AUC can be computed\nall 60 rows of test have label 0\n\nhint: give more rows: each",
    ),
    "csv and gz": (both_kinds, "has both valid.csv and valid.csv.gz"),
    "zip without test": (
        zipped({"train": "train.csv", "valid": "valid.csv"}),
        "expected one test.csv inside, found 0 (train.csv, valid.csv)",
    ),
    "zip with two": (
        zipped({"train": "a/train.csv", "valid": "valid.csv", "test": "b/train.csv"}),
        "expected one train.csv inside, found 2",
    ),
    "zip cut": (cut_zip, "is damaged or not what its name says"),
    "zip with a flipped byte": (flipped_zip, "is damaged or not what its name says"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_faulty_folder(tmp_path, avazu_folder, capsys, name):
    change, expected = FOLDERS[name]
    code = prepare_in(tmp_path, "avazu", change(avazu_folder), "--allow-unverified")
    assert_refused(code, capsys, expected)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-inf", "1e400", "3.5e38", "0x1f", "abc", "1 2", "1_0", "--1", "NULL"]
)
def test_numeric_field_that_is_no_number(tmp_path, criteo_folder, capsys, text):
    edit_split("valid", put_field(17, 3, text))(criteo_folder)
    code = prepare_in(tmp_path, "criteo", criteo_folder, "--allow-unverified")
    expected = f"valid.csv: line 17: `I3`: expected a finite number or nothing, found `{text}`"
    assert_refused(code, capsys, expected)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("name", ["avazu", "criteo"])
def test_files_that_are_not_the_published_ones(tmp_path, request, capsys, name):
    path = request.getfixturevalue(f"{name}_folder")
    assert_refused(prepare_in(tmp_path, name, path), capsys, "these are not the published files of")
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("name", ["avazu", "criteo", "avazu-raw"])
def test_without_files_the_message_says_which(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code = exit_code(["prepare", name, "--data-dir", str(tmp_path / "data")])
    err = capsys.readouterr().err
    assert code == 4
    assert f"prime-bench prepare {name} --from PATH" in err
    if name != "avazu-raw":
        from prime_bench.data.card import load_card

        for split, file in load_card(name).files.items():
            assert f"{split}.csv  md5 {file.md5}" in err
        assert "huggingface.co/datasets/reczoo" in err
    assert not (tmp_path / "data").exists()


def test_files_that_are_no_text_are_refused_early(tmp_path, capsys):
    path = tmp_path / "log.csv"
    path.write_bytes(b"\0" * 1000)
    assert_refused(prepare_in(tmp_path, "avazu-raw", path), capsys, "line 1 has a NUL byte")


@pytest.mark.parametrize("flags", [["--data-dir", "{file}"], ["--data-dir", "{file}/below"]])
def test_data_folder_that_is_a_file(tmp_path, raw_log, csv, capsys, flags):
    path = csv(tmp_path / "in" / "log.csv", raw_log)
    arguments = [flag.format(file=path) for flag in flags]
    assert exit_code(["prepare", "avazu-raw", "--from", str(path), *arguments]) in (2, 4)
    assert "Traceback" not in capsys.readouterr().err
    assert [file.name for file in path.parent.iterdir()] == ["log.csv"]


def test_full_disk(tmp_path, raw_log, csv, capsys, monkeypatch):
    path = csv(tmp_path / "in" / "log.csv", raw_log)

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prime_bench.data.encode.spool.ArrayFile.append", full)
    assert prepare_in(tmp_path, "avazu-raw", path) == 4
    assert "the disk is full" in capsys.readouterr().err
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["prepare", "synthetic", "--rows", "100", "--data-dir", "/proc/prime-bench"],
        ["prepare", "synthetic", "--raw", "/proc/prime-bench", "--raw-format", "avazu"],
    ],
    ids=["table", "raw files"],
)
def test_an_unwritable_folder_is_reported_at_once(capsys, arguments):
    assert exit_code(arguments) == 4

    printed = capsys.readouterr().err
    assert printed.startswith("error: /proc/")
    assert "waiting" not in printed
