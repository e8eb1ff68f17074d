import errno
import hashlib
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prime_bench.base import files
from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.files import environment_fault, sha256_of, write_whole, writing

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
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "permission denied"),
        (errno.EPERM, "permission denied"),
        (errno.EROFS, "read-only"),
    ],
)
def test_each_reason_names_the_file_and_what_to_do(number, reason):
    fault = environment_fault(OSError(number, "text of the system", "/some/file"))

    assert fault is not None
    assert fault.message.startswith("/some/file: ")
    assert reason in fault.message
    assert "--runs-dir" in fault.hint


def test_another_error_of_the_system_stays_itself(tmp_path):
    assert environment_fault(OSError(errno.EBADF, "bad descriptor")) is None
    with pytest.raises(FileNotFoundError), writing(tmp_path):
        (tmp_path / "none").read_text()


@pytest.mark.parametrize("size", [0, 1, files.READ_BYTES, files.READ_BYTES + 1])
def test_sha256_is_that_of_the_whole_file(tmp_path, size):
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "file").write_bytes(content[:size])

    assert sha256_of(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()
