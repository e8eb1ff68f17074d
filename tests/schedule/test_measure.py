"""A pace is measured with a worker that is ended, and nothing stays of it."""

import sys
import tempfile

import pytest

from prime_bench.data.manifest import resolve
from prime_bench.recipe.events import EpochProgress, ProgressEvent, SkippedEvent
from prime_bench.schedule.devices import CPU, Device
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.estimate import Experience, Pace, Spread
from prime_bench.schedule.measure import _Stopwatch, measure
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

    def measured(code, *, slots=ONE, known=(), devices=(CPU,)):
        plan = make_plan(recipe, data_dir=data_dir, runs=runs)
        started, learnt = [], Experience([], device=CPU, slots=slots)
        for key, pace in known:
            learnt.learn(key, pace)
        faults = measure(
            plan,
            learnt,
            devices=devices,
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


class _Child:
    """Stands in for a worker that reports some rows; notes what each was given."""

    given = []

    def __init__(self, _command, *, variables):
        self.variables = variables

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def kill(self):
        pass

    def do(self, request, *, on_event):
        self.given.append((self.variables, request))
        for rows in (80, 160):
            on_event(_progress(epoch=1, rows=rows, rows_total=800))
        return Outcome(request=request, state="failed", why="killed")


def _progress(**numbers):
    return ProgressEvent(job_id="j", progress=EpochProgress(**numbers))


def test_each_worker_has_its_device_and_what_a_job_of_the_run_has(measured, monkeypatch, data_dir):
    monkeypatch.setattr(_Child, "given", [])
    monkeypatch.setattr("prime_bench.schedule.measure.Child", _Child)
    devices = [Device(name="cuda:0", variables={"CUDA_VISIBLE_DEVICES": n}) for n in "57"]
    plan, _, started, faults = measured(
        "", slots=Slots(on_each=2, total=4, threads=3), devices=devices
    )

    assert (len(started), faults) == (2, [])
    assert len(_Child.given) == 2 * 4
    visible = sorted(variables["CUDA_VISIBLE_DEVICES"] for variables, _ in _Child.given)
    assert visible == ["5"] * 4 + ["7"] * 4
    assert {variables["PRIME_BENCH_JOBS_ON_DEVICE"] for variables, _ in _Child.given} == {"2"}
    for _, request in _Child.given:
        assert (request.device, request.threads) == ("cuda:0", 3)
        assert request.table == str(resolve("synthetic", KEYS).folder(data_dir))
        assert (request.dataset, request.arm) == ("synthetic", request.job.plugin)
    assert {request.job.id for _, request in _Child.given} == {p.job_id for p in plan.jobs[:2]}


def test_the_pace_is_that_of_the_rows_between_the_first_and_the_last_report(monkeypatch):
    clock = iter([100.0, 102.5, 103.0])
    monkeypatch.setattr("prime_bench.schedule.measure.time.monotonic", lambda: next(clock))
    ended = []
    watch = _Stopwatch(end=lambda: ended.append(len(watch.seen)), seconds=3.0)
    watch(SkippedEvent(job_id="j"))
    assert watch.epoch_s is None
    for epoch, rows in ((1, 80), (1, 160), (2, 40)):
        watch(_progress(epoch=epoch, rows=rows, rows_total=200))

    assert watch.epoch_s == 200 * 3.0 / (240 - 80)
    assert ended == [3], "the time counts from the first report on"


def test_reports_of_the_same_rows_tell_no_pace():
    watch = _Stopwatch(end=lambda: None, seconds=3.0)
    for _ in range(2):
        watch(_progress(epoch=1, rows=80, rows_total=200))
    assert watch.epoch_s is None
