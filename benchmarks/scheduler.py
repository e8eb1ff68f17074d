"""What the scheduler itself costs: planning, a job's way through it, and reading records.

    python benchmarks/scheduler.py --jobs 1000 --records 10000

Jobs are done by a worker that does nothing but write its record. Prints one line a figure, and ends
with 1 where one misses its goal.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from prime_bench.data.manifest import Manifest, SplitCounts, resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule.local import LocalEngine
from prime_bench.schedule.plan import Plan, make_plan
from prime_bench.schedule.run import run_plan
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

RECIPE = """
schema = 1
title = "Scheduler"
seeds = {seeds}
arms = ["dense", "prime"]
[dataset.synthetic]
rows = 1000
[backbone.DNN]
hidden_units = [8]
"""
WORKER = """
import json, sys
from pathlib import Path
template = json.loads(Path(sys.argv[1]).read_text())
ids = json.loads(Path(sys.argv[2]).read_text())
for line in sys.stdin:
    request = json.loads(line)
    job = request["job"]
    job_id = ids[f"{job['seed']} {job['plugin']}"]
    folder = Path(request["runs"]) / job_id
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps({**template, "job_id": job_id, "job": job}))
    print(json.dumps({"event": "done", "job_id": job_id, "wall_s": 1.0}), flush=True)
"""
PLAN_S, JOB_MS, LIST_S = 2.0, 20.0, 3.0
T = TypeVar("T")


def main() -> int:
    """Measure; 1 if a figure misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--records", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        goals = [*_jobs(work, given.jobs), _records(work, given.records)]
    return 0 if all(goals) else 1


def _jobs(work: Path, n_jobs: int) -> list[bool]:
    recipe = work / "recipe.toml"
    recipe.write_text(RECIPE.format(seeds=list(range(n_jobs // 2))))
    _prepare(work / "data")
    runs = Runs(work / "runs")

    def look() -> Plan:
        return make_plan(load_recipe(recipe), data_dir=work / "data", runs=runs)

    plan, plan_s = _timed(look)
    template, ids = work / "template.json", work / "ids.json"
    template.write_text(json.dumps(_table(plan)))
    keys = {f"{p.job_spec.seed} {p.job_spec.arm.plugin}": p.job_id for p in plan.jobs}
    ids.write_text(json.dumps(keys))
    engine = LocalEngine(slots=2, command=(sys.executable, "-c", WORKER, str(template), str(ids)))
    tally, run_s = _timed(
        lambda: run_plan(plan, engine, runs=runs, on_event=_ignore, on_outcome=_ignore)
    )
    if tally.done != len(plan.jobs):
        raise RuntimeError(f"{tally.done} of {len(plan.jobs)} jobs done")
    again, again_s = _timed(look)
    if again.counts != {"done": len(plan.jobs)}:
        raise RuntimeError(f"{again.counts}")
    return [
        _goal(f"plan of {len(plan.jobs)} jobs", plan_s, PLAN_S, "s"),
        _goal(f"plan of {len(plan.jobs)} done jobs", again_s, PLAN_S, "s"),
        _goal("run, a job", 1000 * run_s / len(plan.jobs), JOB_MS, "ms"),
    ]


def _records(work: Path, n_records: int) -> bool:
    runs = Runs(work / "many")
    plan = make_plan(load_recipe(work / "recipe.toml"), data_dir=work / "data", runs=runs)
    table, job = _table(plan), plan.jobs[0].job
    for seed in range(n_records):
        seeded = job.model_copy(update={"seed": seed})
        folder = runs.path(seeded.id)
        folder.mkdir(parents=True)
        text = json.dumps({**table, "job_id": seeded.id, "job": seeded.plain()}, indent=2)
        (folder / "record.json").write_text(text)
    (found, _), list_s = _timed(runs.readable)
    if len(found) != n_records:
        raise RuntimeError(f"{len(found)} records")
    return _goal(f"list of {n_records} records", list_s, LIST_S, "s")


def _table(plan: Plan) -> dict[str, object]:
    """A record of the plan's first job, with eight validations and PRIME's routing in each."""
    job, score = plan.jobs[0].job, {"auc": 0.75, "logloss": 0.5}
    routing = dict.fromkeys(("entropy", "effective_experts", "largest_load"), [0.123456789] * 4)
    table = {
        **{"job_id": job.id, "job": job.plain(), "dataset": "synthetic", "arm": "dense"},
        **{"data_variant": "v" * 64, "data_verified": True, "data_notes": ["note"], "wall_s": 1.0},
        "pairing": {"initial_weights": "w" * 64, "row_order": "r" * 64},
        "budget": dict.fromkeys(
            ("backbone_parameters", "plugin_parameters", "backbone_macs", "plugin_macs"), 1
        ),
        "result": {
            **{"best_epoch": 6, "epochs": 8, "stopped": "patience"},
            **{"valid": score, "test": score},
        },
        "history": [
            {
                **{"epoch": e, "step": e, "learning_rate": 1e-3, "train_loss": 0.123456789},
                **{"valid_auc": 0.123456789, "valid_logloss": 0.123456789, "improved": True},
                **{"wall_s": 0.123456789, "routing": routing},
            }
            for e in range(1, 9)
        ],
        "environment": {
            **dict.fromkeys(("package_version", "python", "platform", "device", "started"), "x"),
            **{"commit": "c" * 40, "dirty": False, "device_kind": "cpu", "threads": 1},
            "versions": dict.fromkeys(("torch", "numpy", "fuxictr", "polars"), "1.2.3"),
        },
    }
    return RunRecord.parse(table, where="").plain()


def _prepare(data_dir: Path) -> None:
    """A manifest, which is all that a plan looks at."""
    variant, counts = resolve("synthetic", {"rows": 1000}), SplitCounts(train=8, valid=1, test=1)
    variant.folder(data_dir).mkdir(parents=True)
    Manifest(
        dataset="synthetic",
        settings=variant.settings.plain(),
        variant=variant.digest,
        fingerprint="f" * 64,
        verified=True,
        notes=[],
        rows=counts,
        positives=counts,
        n_fields=22,
        vocabulary_total=100,
        inputs=[],
        outputs={},
        versions={},
    ).write(variant.folder(data_dir))


def _ignore(_said: object) -> None:
    """Of no interest."""


def _timed(do: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = do()
    return result, time.perf_counter() - start


def _goal(name: str, found: float, goal: float, unit: str) -> bool:
    print(f"{name}: {found:.2f} {unit} (goal {goal:g})", flush=True)
    return found <= goal


if __name__ == "__main__":
    sys.exit(main())
