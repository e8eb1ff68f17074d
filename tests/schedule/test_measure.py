"""A pace is measured with a worker that is ended, and nothing stays of it."""

import sys
import tempfile

import pytest

from prime_bench.data.manifest import resolve
from prime_bench.schedule.devices import CPU
from prime_bench.schedule.measure import measure
from prime_bench.schedule.plan import make_plan

KEYS = {"rows": 1000}
STEADY = """
import json, sys, time
for line in sys.stdin:
    for i in range(10_000):
        progress = {"epoch": 1 + i // 10, "rows": 80 * (1 + i % 10), "rows_total": 800}
        print(json.dumps({"event": "progress", "job_id": "j", "progress": progress}), flush=True)
        time.sleep(0.01)
"""
FAILING = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"event": "failed", "job_id": None, "error": "out of luck"}), flush=True)
"""


@pytest.fixture
def measured(recipe, data_dir, runs, prepare, schema, monkeypatch, tmp_path):
    """Measure the recipe's one backbone with a worker of that code."""
    prepare("synthetic", KEYS)
    (resolve("synthetic", KEYS).folder(data_dir) / "schema.json").write_text(schema)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def measured(code):
        plan = make_plan(recipe, data_dir=data_dir, runs=runs)
        started = []
        found = measure(
            plan,
            device=CPU,
            threads=1,
            seconds=0.3,
            command=(sys.executable, "-c", code),
            on_start=started.append,
        )
        assert [str(planned.job_spec) for planned in started] == ["synthetic DNN dense seed 7"]
        assert list(scratch.iterdir()) == []
        assert not runs.folder.exists()
        return found

    return measured


def test_the_time_of_an_epoch_is_that_of_its_rows(measured):
    found, faults = measured(STEADY)

    assert faults == []
    ((key, pace),) = found.items()
    assert key == ("f" * 64, "DNN", "dense")
    # 800 rows in steps of 80 that take a hundredth of a second, and more on a busy machine.
    assert pace.epoch_s >= 0.09
    assert pace.macs > 0
    assert pace.source == "measured for 0.3 s on cpu"


def test_a_worker_that_fails_is_said(measured):
    found, faults = measured(FAILING)

    assert found == {}
    assert faults == ["synthetic DNN dense seed 7: not measured: out of luck"]
