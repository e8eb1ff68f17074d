"""Files against the card's digests, and what the message says where they differ."""

import hashlib

import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.prepare import UNVERIFIED_NOTE, prepare


def test_published_files_are_verified(tmp_path, avazu_folder, published_as):
    manifest = prepare(published_as(avazu_folder), data_dir=tmp_path / "a", source=avazu_folder)
    assert manifest.verified
    assert UNVERIFIED_NOTE not in manifest.notes
    # Files that match are verified with the flag as well.
    assert prepare(
        published_as(avazu_folder),
        data_dir=tmp_path / "b",
        source=avazu_folder,
        allow_unverified=True,
    ).verified


def test_a_table_that_does_not_fit_the_card_is_refused(tmp_path, avazu_folder, published_as):
    card = published_as(avazu_folder).card
    columns = [
        *card.columns[:3],
        card.columns[3].model_copy(update={"train_values": 29}),
        *card.columns[4:],
    ]
    spec = published_as(avazu_folder, wrong={"columns": columns})
    with pytest.raises(DataError, match="feat_3: expected 29 train values, found 30"):
        prepare(spec, data_dir=tmp_path / "data", source=avazu_folder)
    assert not (tmp_path / "data").exists()


def swap(folder):
    (folder / "valid.csv").rename(folder / "x.csv")
    (folder / "test.csv").rename(folder / "valid.csv")
    (folder / "x.csv").rename(folder / "test.csv")


def drop_rows(folder):
    path = folder / "train.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:200]) + "\n")


def reorder(folder):
    path = folder / "train.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows[::-1]]) + "\n")


def move_row(folder):
    lines = (folder / "train.csv").read_text().splitlines()
    with (folder / "test.csv").open("a") as file:
        file.write(lines.pop() + "\n")
    (folder / "train.csv").write_text("\n".join(lines) + "\n")


def redraw(folder):
    header, *train = (folder / "train.csv").read_text().splitlines()
    _, *test = (folder / "test.csv").read_text().splitlines()
    one = next(row for row in train if row[0] == "1")
    zero = next(row for row in test if row[0] == "0")
    train[train.index(one)], test[test.index(zero)] = zero, one
    (folder / "train.csv").write_text("\n".join([header, *train]) + "\n")
    (folder / "test.csv").write_text("\n".join([header, *test]) + "\n")


def add_row(folder):
    with (folder / "valid.csv").open("a") as file:
        file.write((folder / "valid.csv").read_text().splitlines()[1] + "\n")


def drop_last_line_end(folder):
    path = folder / "test.csv"
    path.write_bytes(path.read_bytes()[:-1])


def add_rows(folder):
    path = folder / "train.csv"
    path.write_text(path.read_text() + path.read_text().split("\n", 1)[1])


CAUSES = {
    swap: "valid.csv holds the published test.csv; test.csv holds the published valid.csv",
    drop_rows: "a part of the data",
    reorder: "the same rows, written differently",
    add_row: "one row too many in valid.csv",
    drop_last_line_end: "the same rows, written differently (number format, order, or line ends)",
    move_row: "the same log, split differently",
    redraw: "another split of the same log",
    add_rows: "files of another data set or version",
}


def old_mac_line_ends(folder):
    path = folder / "train.csv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))


def no_header(folder):
    path = folder / "valid.csv"
    path.write_text(path.read_text().split("\n", 1)[1])


def sample_submission(folder):
    (folder / "test.csv").write_text("id,click\n10000174058809263569,0.5\n")


def cut_in_a_line(folder):
    path = folder / "test.csv"
    path.write_bytes(path.read_bytes()[:-20])


REFUSED = {
    old_mac_line_ends: "train.csv: line 1: lines end in a carriage return alone",
    no_header: "valid.csv: expected 23 comma-separated fields, line 1 has 23; no header",
    sample_submission: "line 1 has 2; this is Kaggle's sample submission",
    cut_in_a_line: "test.csv: expected 23 comma-separated fields, line 61 has",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_files_that_are_not_even_read(tmp_path, avazu_folder, published_as, change):
    """Where the cause shows on the way, the message is about it and not about digests."""
    spec = published_as(avazu_folder)
    change(avazu_folder)
    with pytest.raises(DataError) as error:
        prepare(spec, data_dir=tmp_path / "data", source=avazu_folder)
    assert REFUSED[change] in error.value.message
    assert "md5" not in error.value.message


@pytest.mark.parametrize("change", CAUSES, ids=lambda change: change.__name__)
def test_files_that_differ_from_the_published_ones(tmp_path, avazu_folder, published_as, change):
    spec = published_as(avazu_folder)
    change(avazu_folder)
    with pytest.raises(DataError) as error:
        prepare(spec, data_dir=tmp_path / "data", source=avazu_folder)
    assert f"likely cause: {CAUSES[change]}" in error.value.hint
    assert "--allow-unverified" in error.value.hint
    md5 = hashlib.md5((avazu_folder / "test.csv").read_bytes()).hexdigest()
    expected = spec.card.files["test"].md5
    assert (f"test.csv: expected md5 {expected}, found {md5}" in error.value.message) == (
        md5 != expected
    )
    assert not (tmp_path / "data").exists()
    manifest = prepare(spec, data_dir=tmp_path / "data", source=avazu_folder, allow_unverified=True)
    assert not manifest.verified
    assert UNVERIFIED_NOTE in manifest.notes
    # What was taken with the flag is not taken without it.
    with pytest.raises(DataError, match="not the published files"):
        prepare(spec, data_dir=tmp_path / "data", source=avazu_folder)
    assert prepare(spec, data_dir=tmp_path / "data") == manifest
