"""One holder at a time, who it is, and file systems without locks."""

import errno
import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.locks import SOMEBODY, Busy, holder, locked

HOLD = """
import sys
from pathlib import Path
from pathlib import Path
from prime_bench.base.locks import locked
with locked(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """The file of a lock that a process holds, and the process."""
    path = tmp_path / "folder" / "x.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"ready\n"
        yield path, process
        process.kill()


def test_a_lock_says_who_holds_it(held):
    path, process = held

    said = holder(path)
    assert re.fullmatch(rf"process {process.pid} on \S+, since 20[-\d]+ [:\d]+ UTC", said)
    with pytest.raises(Busy, match=re.escape(said)), locked(path):
        pass


def test_a_lock_ends_with_its_process(held):
    path, process = held
    process.kill()
    process.wait()

    assert holder(path) is None
    with locked(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_to_ask_takes_no_lock_and_needs_no_right_to_write(tmp_path):
    path = tmp_path / "x.lock"
    path.touch(mode=0o444)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # as another process that asks
        assert holder(path) is None
    assert holder(tmp_path / "none") is None
    assert holder(path / "below a file") is None


def test_one_who_only_asks_keeps_nobody_from_a_lock(tmp_path, monkeypatch):
    path = tmp_path / "x.lock"
    path.touch()
    with path.open() as asker:
        fcntl.flock(asker, fcntl.LOCK_SH)
        # Before the second try.
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(asker, fcntl.LOCK_UN))
        with locked(path):
            assert json.loads(path.read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}', "[" * 999])
def test_a_lock_of_another_version_is_of_somebody(tmp_path, text):
    path = tmp_path / "x.lock"
    path.write_text(text)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert holder(path) == SOMEBODY


@pytest.mark.parametrize(
    "number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY]
)
def test_a_file_system_without_locks_is_told_at_once(tmp_path, monkeypatch, number):
    def missing(_descriptor, _operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", missing)
    path = tmp_path / "x.lock"
    for wait_s in (0, None):
        with pytest.raises(EnvironmentFault) as caught, locked(path, wait_s=wait_s):
            pass
        assert caught.value.message.startswith(f"{tmp_path}: this file system has no locks (flock:")
        assert "--runs-dir" in caught.value.hint
    assert not list(tmp_path.iterdir())
    path.write_text("{}")
    assert holder(path) is None
    with pytest.raises(EnvironmentFault), locked(path):
        pass
    assert path.exists(), "a file that another process has signed is not deleted"


def test_another_error_of_a_lock_is_not_taken_for_a_system_without(tmp_path, monkeypatch):
    def broken(_descriptor, _operation):
        raise OSError(errno.EIO, "no")

    path = tmp_path / "x.lock"
    path.touch()
    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match=r"\[Errno 5\] no"):
        holder(path)
    with pytest.raises(EnvironmentFault, match=r"x\.lock: the disk reports an error"), locked(path):
        pass


def folder(path):
    path.mkdir()


def link(path):
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("make", [folder, link, os.mkfifo])
def test_what_is_no_file_is_no_lock(tmp_path, make):
    make(tmp_path / "x.lock")

    with pytest.raises(DataError, match=r"x\.lock: a .*, where the file of a lock belongs"):
        holder(tmp_path / "x.lock")
    with pytest.raises(DataError), locked(tmp_path / "x.lock"):
        pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
@pytest.mark.parametrize("wait_s", [0.0, 0.1])
def test_where_no_file_can_be_made_nobody_is_waited_for(wait_s: float) -> None:
    with (
        pytest.raises(EnvironmentFault, match="nothing can be made here"),
        locked(Path("/proc/.lock-x"), wait_s=wait_s),
    ):
        pass
