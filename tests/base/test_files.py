import errno
import hashlib
import io
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from polars.exceptions import PanicException

from prime_bench.base import files
from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.files import (
    NotReadable,
    check_can_write,
    environment_fault,
    fault_of_disk,
    nearest_folder,
    read_file,
    read_json,
    remove,
    sha256_of,
    write_whole,
    writing,
)

WRITER = """
import sys
from pathlib import Path
from prime_bench.base.files import write_whole
print("ready", flush=True)
turn = 0
while True:
    write_whole(Path(sys.argv[1]), str(turn % 10) * 300_000)
    turn += 1
"""


def test_text_and_bytes_are_written_as_they_are(tmp_path):
    write_whole(tmp_path / "new" / "folder" / "text", "grün\n")
    write_whole(tmp_path / "bytes", b"\x00\xff\r\n")

    assert (tmp_path / "new" / "folder" / "text").read_bytes() == "grün\n".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff\r\n"


def test_a_written_file_has_the_mode_of_an_ordinary_one(tmp_path):
    write_whole(tmp_path / "ours", "")
    (tmp_path / "ordinary").touch()

    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "ordinary")}
    assert len(modes) == 1


def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "file"
    seen = set()
    for delay_s in (0.0, 0.003, 0.011, 0.02, 0.05):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
        if path.exists():
            text = path.read_text()
            assert len(text) == 300_000
            assert len(set(text)) == 1
            seen.add(text[0])
    assert seen, "no writer came as far as one file, so nothing was tried"


def test_an_error_on_the_way_leaves_neither_the_file_nor_a_part(tmp_path, monkeypatch):
    write_whole(tmp_path / "file", "old")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(EnvironmentFault, match=r"file: the disk is full"):
        write_whole(tmp_path / "file", "new")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_real_full_device_is_an_environment_fault():
    with (
        pytest.raises(EnvironmentFault, match="/dev/full: the disk is full"),
        writing(Path("/dev/full")),
        Path("/dev/full").open("wb", buffering=0) as device,
    ):
        device.write(b"x")


def test_a_path_below_a_file_is_an_environment_fault(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(EnvironmentFault, match=r"not a folder|in the way"):
        write_whole(tmp_path / "file" / "below", "")


def test_a_place_where_no_file_can_be_made_is_an_environment_fault():
    with pytest.raises(EnvironmentFault, match=r"/proc/file: nothing can be made here"):
        write_whole(Path("/proc/file"), "")


@pytest.mark.parametrize(
    ("number", "reason", "advice"),
    [
        (errno.ENOSPC, "the disk is full", "free some space"),
        (errno.EDQUOT, "the disk quota is used up", "free some space"),
        (errno.EFBIG, "the file would be larger than a limit allows (ulimit -f)", "free some"),
        (errno.EACCES, "permission denied", "or change the permissions"),
        (errno.EPERM, "permission denied", "or change the permissions"),
        (errno.EROFS, "the file system is read-only", "or change the permissions"),
        (errno.ENOTDIR, "a part of the path is a file, not a folder", "name another path"),
        (errno.EISDIR, "a folder, where a file belongs", "move it away"),
        (errno.EEXIST, "a file is in the way", "move it away"),
        (errno.ENOTEMPTY, "a folder with files is in the way", "move it away"),
        (errno.ENAMETOOLONG, "the name is too long for the file system", "name another path"),
        (errno.EMFILE, "the process has too many files open", "ulimit -n 4096"),
        (errno.ENFILE, "the machine has too many files open", "ulimit -n 4096"),
        (errno.EIO, "the disk reports an error", "whether the disk or the network folder is there"),
        (errno.ETIMEDOUT, "no answer in time", "whether the disk or the network folder is there"),
        (errno.EBUSY, "in use by another program", "until the other program has ended"),
        (errno.ENOMEM, "the memory does not suffice", "ulimit -v"),
        # One of another file system, whose text is the system's.
        (errno.EREMOTEIO, "text of the system", "whether the disk or the network folder is there"),
    ],
)
def test_each_reason_names_the_file_and_what_to_do(number, reason, advice):
    fault = environment_fault(OSError(number, "text of the system", "/some/file"))

    assert fault is not None
    assert fault.message == f"/some/file: {reason}"
    assert advice in fault.hint


def test_a_fault_names_the_errors_own_file_before_that_of_the_block():
    error = OSError(errno.EIO, "no", "/its/own")
    assert environment_fault(error, Path("/block")).message.startswith("/its/own: ")
    assert environment_fault(OSError(errno.EIO, "no"), Path("/block")).message.startswith("/block:")


@pytest.mark.parametrize("number", sorted(files._OF_DISKS))
def test_a_fault_of_the_disk_tells_nothing_of_a_file_and_others_may(number):
    assert fault_of_disk(OSError(number, "no"), Path("/x")).message.startswith("/x: ")
    for other in (errno.EACCES, errno.ENOENT, errno.ENOSPC):
        assert fault_of_disk(OSError(other, "no"), Path("/x")) is None
    assert fault_of_disk(ValueError(number), Path("/x")) is None


def test_that_a_folder_can_be_written_is_seen_without_making_it(tmp_path, monkeypatch):
    """In the nearest folder that is there, by a file of the size that is wanted."""
    written = []

    class File(io.BytesIO):
        def write(self, content):
            written.append((len(content), place))
            return super().write(content)

    def temporary(*, dir):
        nonlocal place
        place = dir
        return File()

    place = None
    monkeypatch.setattr(files.tempfile, "TemporaryFile", temporary)
    check_can_write(tmp_path / "new" / "deep", n_bytes=7)
    check_can_write(tmp_path)

    assert written == [(7, tmp_path), (0, tmp_path)]
    assert list(tmp_path.iterdir()) == []
    assert nearest_folder(tmp_path / "new" / "deep") == tmp_path
    assert nearest_folder(tmp_path) == tmp_path
    monkeypatch.chdir(tmp_path)
    assert nearest_folder(Path("new")) == tmp_path


def test_a_folder_that_cannot_be_written_is_named_and_no_file(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "no", "/tmp/of-nobody")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", full)
    with pytest.raises(EnvironmentFault) as caught:
        check_can_write(tmp_path / "new")
    assert caught.value.message == f"{tmp_path / 'new'}: the disk is full"


@pytest.mark.parametrize("number", sorted(set(errno.errorcode) - files._OURS))
def test_every_error_of_a_file_names_it_and_what_to_do(number):
    fault = environment_fault(OSError(number, os.strerror(number), "/some/file"))

    assert fault is not None
    assert re.fullmatch(r"/some/file: [^\n]+", fault.message)
    assert fault.hint


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("x.so: failed to map segment from shared object", "it: the memory does not suffice"),
        ("x.so: cannot open shared object file: Too many open files", "it: the process has too"),
    ],
)
def test_a_library_that_cannot_be_loaded_lacks_something(said, message):
    fault = environment_fault(ImportError(said, name="it"))
    assert fault is not None
    assert fault.message.startswith(message)
    assert environment_fault(ImportError("No module named 'it'", name="it")) is None


def test_a_package_that_is_not_installed_is_told_with_the_command_that_installs_it():
    fault = environment_fault(ModuleNotFoundError("No module named 'polars'", name="polars"))
    assert fault is not None
    assert fault.message == "the package polars is not installed"
    assert fault.hint is not None
    assert fault.hint.startswith(f"pip install polars=={files.pins()['polars']}")
    assert environment_fault(ModuleNotFoundError("no", name="polars.of_ours")) is None
    assert environment_fault(ModuleNotFoundError("no", name="prime_bench")) is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "the memory does not suffice"),
        (RuntimeError("can't start new thread"), "the system allows no more threads"),
        (BlockingIOError(errno.EAGAIN, "no"), "the operating system: a resource of the system"),
        (OSError(errno.EIO, "no", b"/\xff"), "/\udcff: the disk reports an error"),
    ],
)
def test_lack_of_memory_and_of_threads_is_the_systems(error, said):
    assert environment_fault(error).message.startswith(said)


def test_a_panic_in_rust_is_the_systems():
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        raise PanicException("a thread could not be made\nnote: run with RUST_BACKTRACE")
    fault = environment_fault(caught.value)

    assert fault.message == "a library has given up: a thread could not be made"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EBADF, "bad descriptor"),
        OSError(errno.EINVAL, "not of a file"),
        OSError("what a library says"),
        ValueError("odd"),
        RuntimeError("odd"),
    ],
)
def test_a_wrong_call_is_our_own(error):
    assert environment_fault(error) is None


def test_a_missing_file_is_left_to_the_caller(tmp_path):
    with pytest.raises(FileNotFoundError), writing(tmp_path):
        (tmp_path / "none").read_text()


@pytest.mark.parametrize("size", [0, 1, files.READ_BYTES, files.READ_BYTES + 1])
def test_sha256_is_that_of_the_whole_file(tmp_path, size):
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "file").write_bytes(content[:size])

    assert sha256_of(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


def endless(path):
    path.symlink_to("/proc/self/pagemap")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (pipe, "a named pipe, not a file"),
        (device, "a device, not a file"),
        (Path.mkdir, "a folder, not a file"),
        (huge, "has 1,099,511,627,776 bytes, at most 67,108,864 bytes are read"),
        (endless, r"has \d+,\d+,\d+ bytes, at most 67,108,864 bytes are read"),
    ],
)
@pytest.mark.parametrize("read", [read_file, read_json])
def test_what_is_no_ordinary_file_is_not_read(tmp_path, make, said, read):
    make(tmp_path / "x")

    with pytest.raises(NotReadable, match=said):
        read(tmp_path / "x")


def test_a_socket_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # its name has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("x")
        with pytest.raises(OSError, match="No such device or address"):
            read_file(Path("x"))


@pytest.mark.parametrize("size", [0, 1, files.READ_BYTES - 1, files.READ_BYTES + 1])
def test_a_file_up_to_the_limit_is_read_whole(tmp_path, size):
    (tmp_path / "x").write_bytes(bytes(size))

    assert read_file(tmp_path / "x", most_bytes=size) == bytes(size)
    with pytest.raises(NotReadable):
        read_file(tmp_path / "x", most_bytes=size - 1)


def test_where_no_file_can_be_opened_it_is_not_the_files_fault(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.EMFILE, "Too many open files", "x")

    monkeypatch.setattr(files.os, "open", full)
    with pytest.raises(EnvironmentFault, match="x: the process has too many files open"):
        read_file(tmp_path / "x")


def test_a_link_is_deleted_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to("folder")

    remove(tmp_path / "link")
    remove(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    remove(tmp_path / "folder")
    assert not list(tmp_path.iterdir())
