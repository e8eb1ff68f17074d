"""Two at once, killed anywhere, interrupted: a table is whole or absent."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable


def command(*arguments):
    code = "import sys; from prime_bench.cli.main import main; main(sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]


def test_of_two_at_once_the_second_waits_and_says_so(tmp_path, avazu_folder, names_in):
    spec = resolve("avazu", {})
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    lock = filelock.FileLock(data_dir / f".lock-{spec.folder(data_dir).name}")
    messages, made = [], []
    waiting = threading.Event()

    def second():
        made.append(
            prepare(
                spec,
                data_dir=data_dir,
                source=avazu_folder,
                allow_unverified=True,
                log=lambda message: (messages.append(message), waiting.set()),
            )
        )

    thread = threading.Thread(target=second)
    with lock:
        thread.start()
        assert waiting.wait(10)
        assert not made
    thread.join(30)
    assert messages == [f"waiting: another process prepares {spec.folder(data_dir)}"]
    assert made[0].rows.total == 400
    assert names_in(data_dir) == [spec.folder(data_dir).name]


def test_many_processes_at_once_make_one_table(tmp_path, avazu_folder, names_in):
    arguments = ["prepare", "avazu", "--from", avazu_folder, "--allow-unverified", "--json"]
    running = [
        subprocess.Popen(
            command(*arguments, "--data-dir", tmp_path / "data"), stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    found = [json.loads(process.communicate(timeout=60)[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert found[0] == found[1] == found[2]
    assert len(names_in(tmp_path / "data")) == 1
    PreparedTable.open(found[0]["path"])


def test_what_killed_runs_left_is_swept(tmp_path, avazu_folder, names_in):
    spec = resolve("avazu", {})
    data_dir = tmp_path / "data"
    ours = spec.folder(data_dir).name
    for name in (f".preparing-{ours}", ".preparing-criteo-00000000", f".replaced-{ours}"):
        (data_dir / name / "spool").mkdir(parents=True)
        (data_dir / name / "spool" / "codes").write_bytes(b"x")
    busy = data_dir / ".preparing-avazu-11111111"
    busy.mkdir()
    with filelock.FileLock(data_dir / ".lock-avazu-11111111"):
        prepare(spec, data_dir=data_dir, source=avazu_folder, allow_unverified=True)
        # Where another process is at work, nothing is touched.
        assert names_in(data_dir) == [".lock-avazu-11111111", busy.name, ours]


STOP_AT = """
import os, signal, sys
import prime_bench.data.prepare
from prime_bench.cli.main import exit_code
stop, seen = int(sys.argv[1]), 0
def count(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"):
        seen += 1
        if seen == stop:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
code = exit_code(sys.argv[2:])
print(seen)
sys.exit(code)
"""


def stopped_at(operation, data_dir, source):
    """`prepare criteo` in a process that is killed just before a file operation; 0: not at all."""
    flags = ["--from", source, "--allow-unverified", "--data-dir", data_dir]
    return subprocess.run(
        [sys.executable, "-c", STOP_AT, str(operation), "prepare", "criteo", *map(str, flags)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("rounds", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_anywhere_a_rerun_gives_the_same_bytes(tmp_path, criteo_folder, rounds, tree):
    spec = resolve("criteo", {})
    whole = stopped_at(0, tmp_path / "whole", criteo_folder)
    n_operations = int(whole.stdout.split()[-1])
    assert n_operations > 100
    draw = random.Random(rounds)
    data_dir = tmp_path / "data"
    for round_ in range(rounds):
        # The last operations publish the table: they are where it matters most.
        last = n_operations if round_ % 2 else 15
        killed = stopped_at(n_operations - draw.randrange(last), data_dir, criteo_folder)
        assert killed.returncode == -signal.SIGKILL
        if spec.folder(data_dir).exists():
            PreparedTable.open(spec.folder(data_dir))
        prepare(spec, data_dir=data_dir, source=criteo_folder, allow_unverified=True)
        assert tree(data_dir) == tree(tmp_path / "whole")
        shutil.rmtree(data_dir)


def test_terminated_by_the_keyboard_nothing_is_left(tmp_path, avazu_folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("prime_bench.data.encode.encoder._count", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare(
            resolve("avazu", {}),
            data_dir=tmp_path / "new" / "data",
            source=avazu_folder,
            allow_unverified=True,
        )
    assert not (tmp_path / "new").exists()


def test_a_table_is_on_disk_before_it_gets_its_name(tmp_path, avazu_folder, monkeypatch):
    synced, at_rename = set(), []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    rename = Path.rename

    def record(path, target):
        at_rename.append((target, set(synced)))
        return rename(path, target)

    monkeypatch.setattr("pathlib.Path.rename", record)
    spec = resolve("avazu", {})
    folder = spec.folder(tmp_path / "data")
    prepare(spec, data_dir=tmp_path / "data", source=avazu_folder, allow_unverified=True)
    ((target, synced_then),) = at_rename
    assert target == folder
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_ino in synced_then, path
    assert folder.parent.stat().st_ino in synced - synced_then
