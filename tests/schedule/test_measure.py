"""A pace is measured with a worker that is ended, and nothing stays of it."""

import sys
import tempfile

import pytest

from prime_bench.data.manifest import resolve
from prime_bench.schedule.devices import CPU
from prime_bench.schedule.estimate import Experience, Pace, Spread
from prime_bench.schedule.measure import measure
from prime_bench.schedule.plan import make_plan
from prime_bench.schedule.slots import Slots

KEYS = {"rows": 1000}
ONE = Slots(on_each=1, total=1, threads=1)
STEADY = """
import json, os, sys, time
for line in sys.stdin:
    for i in range(10_000):
        progress = {"epoch": 1 + i // 10, "rows": 80 * (1 + i % 10), "rows_total": 800}
        event = {"event": "progress", "job_id": "j", "progress": progress}
        print(os.environ["PRIME_BENCH_EVENT_KEY"], json.dumps(event), flush=True)
        time.sleep(0.01)
"""
FAILING = """
import json, os, sys
for line in sys.stdin:
    event = {"event": "failed", "job_id": None, "error": "out of luck"}
    print(os.environ["PRIME_BENCH_EVENT_KEY"], json.dumps(event), flush=True)
"""


@pytest.fixture
def measured(recipe, data_dir, runs, prepare, schema, monkeypatch, tmp_path):
    """Measure the recipe's one backbone with a worker of that code."""
    prepare("synthetic", KEYS)
    (resolve("synthetic", KEYS).folder(data_dir) / "schema.json").write_text(schema)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def measured(code, *, slots=ONE, known=()):
        plan = make_plan(recipe, data_dir=data_dir, runs=runs)
        started, learnt = [], Experience([], device=CPU, slots=slots)
        for key, pace in known:
            learnt.learn(key, pace)
        faults = measure(
            plan,
            learnt,
            devices=[CPU],
            slots=slots,
            seconds=0.3,
            command=(sys.executable, "-c", code),
            on_start=started.append,
        )
        assert list(scratch.iterdir()) == []
        assert not runs.folder.exists()
        return plan, learnt, [str(planned.job_spec) for planned in started], faults

    return measured


def test_every_arm_is_measured_once(measured):
    plan, learnt, started, faults = measured(STEADY)

    assert faults == []
    assert started == ["synthetic DNN dense seed 7", "synthetic DNN prime seed 7"]
    for planned in plan.jobs:
        time, source = learnt.estimate(planned.job, macs=0)
        # 800 rows in steps of 80 that take a hundredth of a second, and more on a busy machine.
        assert time.middle >= 0.09 * (planned.job.training.patience + 2)
        assert source == "measured for 0.3 s on cpu"


def test_an_arm_whose_pace_is_known_is_not_measured(measured):
    key = ("f" * 64, "DNN", "dense")
    pace = Pace(epoch_s=Spread.of([1.0]), macs=1, source="a record")
    _, _, started, _ = measured(STEADY, known=[(key, pace)])

    assert started == ["synthetic DNN prime seed 7"]


def test_as_many_workers_train_at_once_as_in_a_run(measured, tmp_path):
    alive = tmp_path / "alive"
    alive.mkdir()
    code = f"""
import os
from pathlib import Path
Path({str(alive)!r}, str(os.getpid())).touch()
assert os.environ["PRIME_BENCH_JOBS_ON_DEVICE"] == "3"
{STEADY}"""
    _, _, started, faults = measured(code, slots=Slots(on_each=3, total=3, threads=1))

    assert faults == []
    assert len(list(alive.iterdir())) == 3 * len(started) == 6


def test_a_worker_that_fails_is_said(measured):
    plan, learnt, _, faults = measured(FAILING)

    assert not learnt.knows(plan.jobs[0].job)
    assert faults == [
        f"synthetic DNN {arm} seed 7: not measured: out of luck" for arm in ("dense", "prime")
    ]
