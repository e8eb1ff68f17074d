"""Workers and parents are killed at random moments: every job ends with one record, done once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

WORKER = """
import json, os, sys, time
from pathlib import Path
from prime_bench.base.identity import digest
from prime_bench.store.runs import Runs

for line in sys.stdin:
    request = json.loads(line)
    job = {k: v for k, v in request["job"].items() if v or k not in ("code", "probe")}
    if job["training"]["matmul"] == "float32":  # as `Job.plain`
        del job["training"]["matmul"]
    job_id, runs = digest(job)[:16], Runs(Path(request["runs"]))
    end = "skipped"
    with runs.claim(job_id) as mine:
        if mine and not runs.done(job_id):
            runs.path(job_id).mkdir(parents=True, exist_ok=True)
            time.sleep(0.05)
            (runs.path(job_id) / "record.json").touch()
            # One write: a line is whole or not there.
            log = os.open("trained", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(log, f"{job_id}\\n".encode())
            os.close(log)
            end = "done"
    keys = {"wall_s": 1.0} if end == "done" else {}
    key = os.environ["PRIME_BENCH_EVENT_KEY"]
    print(key, json.dumps({"event": end, "job_id": job_id, **keys}), flush=True)
"""
PARENT = """
import json, sys
from pathlib import Path
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.local import LocalEngine
from prime_bench.schedule.engine import Queue, Work
from prime_bench.store.runs import Runs

requests = [JobRequest.parse(json.loads(line), where="") for line in open("requests")]
runs = Runs(Path(requests[0].runs))
works = [Work(request=r) for r in requests if not runs.done(r.job.id)]
engine = LocalEngine(slots=2, command=(sys.executable, "worker.py"))
list(engine.run(Queue(works, runs=runs), on_event=print))
runs.sweep(request.job.id for request in requests)
"""
N_JOBS = 40


@pytest.fixture
def parent(tmp_path, request_of):
    """Start a parent with all jobs that have no record yet."""
    requests = [request_of(number).model_dump_json() for number in range(N_JOBS)]
    (tmp_path / "requests").write_text("\n".join(requests))
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "parent.py").write_text(PARENT)
    return lambda: subprocess.Popen(
        [sys.executable, "parent.py"], cwd=tmp_path, stdout=subprocess.DEVNULL
    )


def _workers(pid):
    try:
        lists = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(child) for children in lists for child in children.split()]
    return [child for child in children if not _leads(child)]


def _leads(pid):
    """Whether it is the guard, which leads the group of its worker."""
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return True


def _disturb(parents, dice):
    """Kill workers, and in the end the parents; return how many were killed."""
    killed, end = 0, time.monotonic() + dice.uniform(1, 3)
    while alive := [parent for parent in parents if parent.poll() is None]:
        time.sleep(dice.uniform(0.2, 0.8))
        if time.monotonic() > end:
            victims = [parent.pid for parent in alive]
        else:
            victims = _workers(dice.choice(alive).pid)[:1]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
    return killed


@pytest.mark.parametrize("n_parents", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_every_job_is_done_once_whoever_is_killed(parent, runs, tmp_path, n_parents):
    dice, killed = random.Random(n_parents), 0
    for _ in range(3):
        killed += _disturb([parent() for _ in range(n_parents)], dice)
    assert killed >= 3
    last = parent()
    assert last.wait() == 0

    trained = Counter((tmp_path / "trained").read_text().split())
    assert set(trained.values()) == {1}
    records = {path.parent.name for path in runs.folder.glob("*/record.json")}
    assert len(records) == N_JOBS
    assert set(trained) <= records
    assert len(trained) >= N_JOBS - killed, "a worker killed just after its record has no line"
    assert list((runs.folder / ".claims").iterdir()) == []
