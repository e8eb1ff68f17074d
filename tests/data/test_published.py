"""Files against the card's digests, and what the message says where they differ."""

import hashlib

import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.card import CardFile, load_card
from prime_bench.data.prepare import UNVERIFIED_NOTE, prepare
from prime_bench.data.variant import DataVariant, resolve


def published_as(folder, *, wrong=None):
    """The card of Avazu_x1 as if `folder` held the published files; `wrong` has other values."""
    card = load_card("avazu")
    files = {}
    for split in ("train", "valid", "test"):
        content = (folder / f"{split}.csv").read_bytes()
        labels = [line[:1] for line in content.split(b"\n")[1:-1]]
        files[split] = CardFile(
            md5=hashlib.md5(content).hexdigest(), rows=len(labels), positives=labels.count(b"1")
        )
    columns = [column.model_copy(update={"train_values": 30}) for column in card.columns[1:]]
    facts = {"files": files, "columns": [card.columns[0], *columns], **(wrong or {})}
    return DataVariant(card=card.model_copy(update=facts), settings=resolve("avazu", {}).settings)


def test_published_files_are_verified(tmp_path, avazu_folder):
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


def test_a_table_that_does_not_fit_the_card_is_refused(tmp_path, avazu_folder):
    card = published_as(avazu_folder).card
    columns = [
        *card.columns[:3],
        card.columns[3].model_copy(update={"train_values": 29}),
        *card.columns[4:],
    ]
    variant = published_as(avazu_folder, wrong={"columns": columns})
    with pytest.raises(DataError, match="feat_3: expected 29 training values, found 30"):
        prepare(variant, data_dir=tmp_path / "data", source=avazu_folder)
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


def add_rows(folder):
    path = folder / "train.csv"
    path.write_text(path.read_text() + path.read_text().split("\n", 1)[1])


CAUSES = {
    swap: "valid.csv holds the published test.csv; test.csv holds the published valid.csv",
    drop_rows: "a part of the data",
    reorder: "the same rows, written otherwise",
    move_row: "the same log, split otherwise",
    redraw: "another split of the same log",
    add_rows: "files of another data set or version",
}


@pytest.mark.parametrize("change", CAUSES, ids=lambda change: change.__name__)
def test_files_that_differ_from_the_published_ones(tmp_path, avazu_folder, change):
    variant = published_as(avazu_folder)
    change(avazu_folder)
    with pytest.raises(DataError) as error:
        prepare(variant, data_dir=tmp_path / "data", source=avazu_folder)
    assert f"likely cause: {CAUSES[change]}" in error.value.hint
    assert "--allow-unverified" in error.value.hint
    md5 = hashlib.md5((avazu_folder / "test.csv").read_bytes()).hexdigest()
    expected = variant.card.files["test"].md5
    assert (f"test.csv: expected md5 {expected}, found {md5}" in error.value.message) == (
        md5 != expected
    )
    assert not (tmp_path / "data").exists()
    manifest = prepare(
        variant, data_dir=tmp_path / "data", source=avazu_folder, allow_unverified=True
    )
    assert not manifest.verified
    assert UNVERIFIED_NOTE in manifest.notes
    # What was taken with the flag is not taken without it.
    with pytest.raises(DataError, match="not the published files"):
        prepare(variant, data_dir=tmp_path / "data", source=avazu_folder)
    assert prepare(variant, data_dir=tmp_path / "data") == manifest
