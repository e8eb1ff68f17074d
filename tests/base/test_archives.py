"""Members of archives of other people: which count, and how much of them is read."""

import io
import zipfile
from pathlib import Path

import pytest

from prime_bench.base.archives import read_member, shown, zip_members
from prime_bench.base.errors import DataError

WHERE = Path("a.zip")


def packed(*names: str, content: bytes = b"x") -> zipfile.ZipFile:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return zipfile.ZipFile(file)


def test_folders_and_what_systems_add_are_left_out() -> None:
    extras = ["a/", "__MACOSX/a/f.csv", "a/.DS_Store", "Thumbs.db", "a/desktop.ini", "a/._f.csv"]

    found = zip_members(packed("a/f.csv", *extras, ".hidden", "DS_Store"), where=WHERE)

    assert list(found) == ["a/f.csv", ".hidden", "DS_Store"]
    assert found["a/f.csv"].filename == "a/f.csv"


def test_a_separator_of_windows_is_one_between_folders() -> None:
    archive = packed("a|f.csv", "a|b|")
    for entry in archive.infolist():
        entry.filename = entry.filename.replace("|", "\\")

    assert list(zip_members(archive, where=WHERE)) == ["a/f.csv"]


def test_of_two_members_with_one_name_neither_counts() -> None:
    archive = packed("a/f.csv", "a|f.csv")
    archive.infolist()[1].filename = "a\\f.csv"

    with pytest.raises(DataError, match=r"a\.zip: has two members called 'a/f.csv'"):
        zip_members(archive, where=WHERE)


@pytest.mark.parametrize("n_bytes", [0, 1, 4096, 4097, 10_000])
def test_a_member_is_read_up_to_its_limit(n_bytes: int) -> None:
    content = bytes(range(250)) * 40
    archive = packed("f", content=content[:n_bytes])
    (entry,) = archive.infolist()

    assert read_member(archive, entry, most_bytes=n_bytes) == content[:n_bytes]
    if n_bytes:
        with pytest.raises(ValueError, match=f"'f' has more than {n_bytes - 1:,} bytes"):
            read_member(archive, entry, most_bytes=n_bytes - 1)


def test_a_long_name_is_cut_in_a_message() -> None:
    assert shown("x\n" * 60) == repr("x\n" * 50)
