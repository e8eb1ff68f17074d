"""A folder's copy: whole files whatever their size, each as it was at one moment."""

import os

import pytest

from prime_bench.base.errors import DataError
from prime_bench.schedule import mirror
from prime_bench.schedule.mirror import Copy, Piece, Source


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


def _send(source, copy, **keys):
    """Send all news; returns how many times they were asked for."""
    for number in range(1, 1000):
        pieces, gone, complete = source.news(**keys)
        for piece in pieces:
            copy.add(piece)
        for name in gone:
            copy.remove(name)
        if complete:
            return number
    raise AssertionError("no end")


def _contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_folders_above_a_copy_are_made(tmp_path):
    copy = Copy(tmp_path / "runs" / "job")
    for offset, last in ((0, False), (1, True)):
        copy.add(Piece(name="log", offset=offset, content=b"x", last=last))
    assert _contents(tmp_path / "runs" / "job") == {"log": b"xx"}


@pytest.mark.parametrize("n_bytes", [0, 1, 9, 10, 11, 20, 35])
def test_files_of_any_size_arrive(source, copy, tmp_path, monkeypatch, n_bytes):
    monkeypatch.setattr(mirror, "PIECE_BYTES", 10)
    (source / "big").write_bytes(os.urandom(n_bytes))
    (source / "small").write_bytes(b"x")

    _send(Source(source), copy)

    assert _contents(tmp_path / "copy") == _contents(source)


def test_a_file_that_is_replaced_meanwhile_arrives_as_it_was_and_then_as_it_is(
    source, copy, tmp_path, monkeypatch
):
    monkeypatch.setattr(mirror, "PIECE_BYTES", 4)
    (source / "state").write_bytes(b"old old old")
    watched = Source(source)
    pieces, _, complete = watched.news()
    assert not complete
    (source / "new").write_bytes(b"new new")
    (source / "new").replace(source / "state")
    seen = set()
    while True:
        for piece in pieces:
            copy.add(piece)
            if (tmp_path / "copy" / "state").exists():
                seen.add((tmp_path / "copy" / "state").read_bytes())
        if complete:
            break
        pieces, _, complete = watched.news()

    assert seen == {b"old old old", b"new new"}


def test_only_changes_are_sent_and_deleted_files_go(source, copy, tmp_path):
    (source / "log").write_text("one\n")
    (source / "progress").write_text("1")
    watched = Source(source, present=["failure"])
    copy.add(Piece(name="failure", offset=0, content=b"of an earlier try", last=True))
    _send(watched, copy)
    assert watched.news() == ([], [], True)
    (source / "log").write_text("one\ntwo\n")
    (source / "progress").unlink()

    pieces, gone, _ = watched.news()

    assert [piece.name for piece in pieces] == ["log"]
    assert gone == ["progress"]
    assert not (tmp_path / "copy" / "failure").exists()


def test_the_record_comes_last_and_only_when_nobody_writes_any_more(source):
    for name in ("a", "record", "z"):
        (source / name).write_text(name)
    watched = Source(source, last="record")

    assert [piece.name for piece in watched.news()[0]] == ["a", "z"]
    assert [piece.name for piece in watched.news(whole=True)[0]] == ["record"]


def test_at_the_end_the_record_is_the_last_of_all_files(source):
    for name in ("a", "record", "z"):
        (source / name).write_text(name)

    pieces, _, complete = Source(source, last="record").news(whole=True)

    assert [piece.name for piece in pieces] == ["a", "z", "record"]
    assert complete


def test_another_file_of_the_same_size_and_time_is_sent(source, copy, tmp_path):
    (source / "state").write_text("old")
    watched = Source(source)
    _send(watched, copy)
    (source / ".part-new").write_text("new")
    times = (source / "state").stat()
    os.utime(source / ".part-new", ns=(times.st_atime_ns, times.st_mtime_ns))
    (source / ".part-new").replace(source / "state")
    _send(watched, copy)

    assert _contents(tmp_path / "copy") == {"state": b"new"}


def test_a_file_that_is_begun_anew_has_nothing_of_the_first_try(copy, tmp_path):
    """As after the loss of a node in the middle of a file."""
    for offset, content, last in ((0, b"ab", False), (0, b"cd", False), (2, b"e", True)):
        assert list((tmp_path / "copy").glob("[!.]*")) == []
        copy.add(Piece(name="state", offset=offset, content=content, last=last))

    assert _contents(tmp_path / "copy") == {"state": b"cde"}


def test_nothing_outside_of_the_folder_is_deleted(copy, tmp_path):
    (tmp_path / "mine").touch()
    copy.add(Piece(name="mine", offset=0, content=b"", last=True))
    copy.remove("../mine")

    assert (tmp_path / "mine").exists()
    assert copy.names() == ()


def test_unfinished_files_and_other_names_stay(source, copy, tmp_path):
    (source / ".part-1").write_text("half")
    (source / "folder").mkdir()
    (source / "log").write_text("log")
    (source / "weights").write_text("weights")

    _send(Source(source, only=("log", ".part-1")), copy)

    assert _contents(tmp_path / "copy") == {"log": b"log"}


def test_a_folder_that_is_not_there_has_no_news(tmp_path):
    assert Source(tmp_path / "nowhere").news(whole=True) == ([], [], True)


@pytest.mark.parametrize("name", ["../record.json", "/etc/passwd", "a/b"])
def test_a_piece_stays_in_its_folder(copy, name):
    with pytest.raises(DataError, match="not the name of a file"):
        copy.add(Piece(name=name, offset=0, content=b"", last=True))


def test_a_file_that_is_deleted_meanwhile_keeps_no_other_from_arriving(source, copy, tmp_path):
    (source / "b").write_bytes(b"b")

    class Watched(Source):
        """Sees a file that is gone when it is to be opened."""

        def _found(self):
            return {"a": (1, 1, 1), **super()._found()}

    _send(Watched(source), copy, whole=True)

    assert _contents(tmp_path / "copy") == {"b": b"b"}
    assert copy.names() == ("b",)
    assert Copy(tmp_path / "nowhere").names() == ()
