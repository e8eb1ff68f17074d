import os
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from prime_bench.base.temporary import temporary_folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_deleted_at_the_end_and_after_an_error(place):
    with temporary_folder() as folder:
        (folder / "file").touch()
        assert folder.parent == place
    with pytest.raises(KeyError), temporary_folder():
        raise KeyError

    assert list(place.iterdir()) == []


def test_the_next_folder_takes_that_of_a_killed_process_away_and_no_other(place):
    (place / "prime-bench-by-hand").mkdir()
    code = (
        "import time\n"
        "from prime_bench.base.temporary import temporary_folder\n"
        "with temporary_folder():\n"
        "    print('made', flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "TMPDIR": str(place)}
    killed = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    with killed:
        assert killed.stdout.readline() == b"made\n"
        killed.send_signal(signal.SIGSTOP)
        with temporary_folder():
            assert len(list(place.iterdir())) == 5, "it lives"
        killed.kill()
    with temporary_folder() as folder:
        assert {path.name for path in place.iterdir()} == {
            "prime-bench-by-hand",
            folder.name,
            f"{folder.name}.lock",
        }


def test_folders_that_are_made_at_once_leave_nothing(place):
    together = threading.Barrier(12)

    def make_some():
        together.wait()
        for _ in range(8):
            with temporary_folder():
                pass

    threads = [threading.Thread(target=make_some) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(place.iterdir()) == []
