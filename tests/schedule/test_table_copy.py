"""A table on its way to a node: whole or absent, whatever stops it."""

import hashlib
import random
import shutil
from collections import namedtuple
from dataclasses import replace

import pytest

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.locks import locked
from prime_bench.data.manifest import MANIFEST_NAME, Manifest
from prime_bench.schedule import table_copy
from prime_bench.schedule.node import NodeSlot
from prime_bench.schedule.table_copy import TableCopy, TableInfo, TablePiece, read_piece

FILES = {"train.ids.npy": 1000, "train.labels.npy": 64, "empty.npy": 0, "vocabulary/a.bin": 130}
MANIFEST = b'{"any": "manifest"}'


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(table_copy, "PIECE_BYTES", 64)


@pytest.fixture
def table(tmp_path):
    drawn = random.Random(1)
    for name, size in FILES.items():
        path = tmp_path / "here" / "table" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn.randbytes(size))
    return tmp_path / "here" / "table"


@pytest.fixture
def info(table):
    digests = {name: hashlib.sha256((table / name).read_bytes()).hexdigest() for name in FILES}
    return TableInfo(fingerprint="f" * 64, manifest=MANIFEST, sizes=FILES, digests=digests)


@pytest.fixture
def there(tmp_path):
    return tmp_path / "there" / "data" / "table"


def _send(table, there, info, *, most=10_000):
    """Send pieces until the node wants no more, or `most` are sent; returns their sizes."""
    copy, sizes = TableCopy(there, info), []
    wanted = copy.next_piece()
    while wanted is not None and len(sizes) < most:
        piece = read_piece(TablePiece(table=str(table), name=wanted[0], offset=wanted[1]))
        sizes.append(len(piece.content))
        wanted = copy.next_piece(piece)
    return sizes


def _contents(folder):
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_copy_is_the_table_and_nothing_is_left_beside_it(table, there, info):
    sizes = _send(table, there, info)

    assert _contents(there) == {**_contents(table), MANIFEST_NAME: MANIFEST}
    assert list(there.parent.iterdir()) == [there]
    assert sum(sizes) == sum(FILES.values())
    assert _send(table, there, info) == []


@pytest.mark.parametrize("sent", range(1, 20))
def test_a_copy_that_was_stopped_goes_on_where_it_was(table, there, info, sent):
    first = _send(table, there, info, most=sent)
    assert not there.exists()
    second = _send(table, there, info)

    assert sum(first) + sum(second) == sum(FILES.values())
    assert _contents(there) == {**_contents(table), MANIFEST_NAME: MANIFEST}


def test_two_callers_may_send_the_same_table(table, there, info):
    copies = [TableCopy(there, info), TableCopy(there, info)]
    wanted = [copy.next_piece() for copy in copies]
    turns = random.Random(2)
    for _ in range(1000):
        which = turns.randrange(2)
        if wanted[which] is not None:
            name, offset = wanted[which]
            piece = read_piece(TablePiece(table=str(table), name=name, offset=offset))
            wanted[which] = copies[which].next_piece(piece)

    assert wanted == [None, None]
    assert _contents(there) == {**_contents(table), MANIFEST_NAME: MANIFEST}


@pytest.mark.parametrize("name", [name for name, size in FILES.items() if size])
def test_a_file_with_another_digest_is_not_taken_and_can_be_sent_again(table, there, info, name):
    sound = (table / name).read_bytes()
    (table / name).write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(DataError, match=f"{name}: what was sent has the SHA-256") as caught:
        _send(table, there, info)
    sent, wanted = (table / name).read_bytes(), info.digests[name][:12]
    assert caught.value.message == (
        f"{there / name}: what was sent has the SHA-256 {hashlib.sha256(sent).hexdigest()[:12]}, "
        f"the manifest says {wanted}"
    )
    assert caught.value.hint == (
        "prepare the table again on the machine that runs `prime-bench run`"
    )
    assert not there.exists()
    (table / name).write_bytes(sound)
    _send(table, there, info)

    assert _contents(there) == {**_contents(table), MANIFEST_NAME: MANIFEST}


def test_a_file_that_becomes_shorter_ends_the_copy(table, there, info):
    (table / "train.ids.npy").write_bytes(b"short")
    with pytest.raises(DataError, match="has become shorter"):
        _send(table, there, info)
    assert not there.exists()


def test_another_table_in_its_place_stays(table, there, info):
    there.mkdir(parents=True)
    (there / MANIFEST_NAME).write_text("another")
    assert _send(table, there, info) == []
    assert (there / MANIFEST_NAME).read_text() == "another"


def test_files_in_its_place_stay_and_are_named(table, there, info):
    there.mkdir(parents=True)
    (there / "notes.txt").write_text("mine")
    with pytest.raises(EnvironmentFault, match="a folder with files is in the way"):
        _send(table, there, info)
    assert (there / "notes.txt").read_text() == "mine"


def test_too_little_space_is_told_before_anything_is_sent(there, info, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(table_copy.shutil, "disk_usage", lambda _path: usage(free=1193))
    with pytest.raises(EnvironmentFault, match="the table needs 0 MB more, 0 MB are free"):
        TableCopy(there, info).next_piece()
    monkeypatch.setattr(table_copy.shutil, "disk_usage", lambda _path: usage(free=1194))
    assert TableCopy(there, info).next_piece() == ("train.ids.npy", 0)
    large = replace(info, sizes={"x": 2_600_000_000})
    monkeypatch.setattr(table_copy.shutil, "disk_usage", lambda _path: usage(free=1_400_000))
    with pytest.raises(EnvironmentFault) as caught:
        TableCopy(there, large).next_piece()
    assert caught.value.message == f"{there}: the table needs 2,600 MB more, 1 MB are free"
    assert "name another folder with PRIME_BENCH_DATA" in caught.value.hint


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "a/../../b"])
def test_a_file_outside_of_the_folder_is_refused(there, name):
    digests = {name: "0" * 64}
    outside = TableInfo(fingerprint="f" * 64, manifest=b"", sizes={name: 1}, digests=digests)
    with pytest.raises(DataError, match="not the name of a file of a table"):
        TableCopy(there, outside)


def test_what_has_come_already_needs_no_more_space(table, there, info, monkeypatch):
    sent = sum(_send(table, there, info, most=5))
    assert 0 < sent < info.total_bytes
    usage, left = namedtuple("usage", "free"), info.total_bytes - sent
    monkeypatch.setattr(table_copy.shutil, "disk_usage", lambda _path: usage(free=left - 1))
    with pytest.raises(EnvironmentFault, match="MB are free"):
        TableCopy(there, info).next_piece()
    monkeypatch.setattr(table_copy.shutil, "disk_usage", lambda _path: usage(free=left))
    assert TableCopy(there, info).next_piece() == ("train.ids.npy", sent)


def test_pieces_of_two_tables_with_the_same_names_are_not_mixed(table, info, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIME_BENCH_DATA", str(tmp_path / "there"))
    other = tmp_path / "here" / "other"
    shutil.copytree(table, other)
    (other / "train.labels.npy").write_bytes(bytes(64))
    digests = {**info.digests, "train.labels.npy": hashlib.sha256(bytes(64)).hexdigest()}
    slot = NodeSlot({})
    wanted = slot.take_tables({str(table): info, str(other): replace(info, digests=digests)})
    while wanted is not None:
        wanted = slot.take_piece(read_piece(wanted))

    for one in (table, other):
        copied = _contents(tmp_path / "there" / one.name)
        assert copied == {**_contents(one), MANIFEST_NAME: MANIFEST}


def test_what_goes_wrong_on_the_node_is_its_answer(table, info, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIME_BENCH_DATA", str(tmp_path / "there"))
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(table_copy.shutil, "disk_usage", lambda _path: usage(free=0))
    message, hint = NodeSlot({}).take_tables({str(table): info})
    assert message.startswith(f"{tmp_path / 'there' / 'table'}: the table needs ")
    assert "PRIME_BENCH_DATA" in hint


def test_a_table_is_described_by_its_manifest_and_its_files(tmp_path, write_table):
    folder = write_table(tmp_path / "tiny-1")
    manifest = Manifest.read(folder)
    found = TableInfo.read(folder)
    assert (found.fingerprint, found.digests) == (manifest.fingerprint, manifest.outputs)
    assert found.sizes == {name: (folder / name).stat().st_size for name in manifest.outputs}
    assert found.manifest == (folder / MANIFEST_NAME).read_bytes()
    assert found.total_bytes == sum(found.sizes.values()) > 1000
    (folder / "test.ids.npy").unlink()
    with pytest.raises(
        DataError, match=r"test\.ids\.npy: a file of the table is missing"
    ) as caught:
        TableInfo.read(folder)
    assert caught.value.hint == "prepare the table again, which replaces it"


def test_a_copy_of_another_process_is_waited_for_and_then_told(there, info, monkeypatch):
    monkeypatch.setattr(table_copy, "_LOCK_S", 0.1)
    copy = TableCopy(there, info)
    with (
        locked(copy._lock),
        pytest.raises(EnvironmentFault, match=f"^{there}: .* copies it too"),
    ):
        copy.next_piece()
    assert copy.next_piece() is not None


def test_a_table_that_came_while_the_lock_was_waited_for_is_there(table, there, info):
    copy = TableCopy(there, info)
    _send(table, there, info)

    assert copy._step(None) is None
    assert list(there.parent.iterdir()) == [there]
