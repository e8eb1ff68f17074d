"""Our engine of local processes against pools of the standard library and of packages: the cost of
a job that does nothing, the start, and what becomes of the other jobs when a worker is killed.

    python benchmarks/engines.py [--jobs 400] [--repeat 3] [--sides ours,futures,joblib,ray,dask]

Two worker processes each. `start` is from nothing to the end of the first job (imports of the
package included, which a run pays once), `job` the milliseconds of a further one. `killed`: of
twelve jobs one kills its own process with SIGKILL; done / failed / lost, where a lost job is a
sound one whose result does not come, and whether the engine takes a job afterwards. Sides whose
package is not installed are left out. Every run is a process of its own; runs of the sides
alternate, and medians are printed.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabulate import tabulate

MODULES = {"ours": "prime_bench", "futures": "concurrent.futures", "joblib": "joblib"}
MODULES |= {"ray": "ray", "dask": "distributed"}
KILLED_JOBS, BAD = 12, 3
RAY = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Our engine of local processes against others.")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sides", default=",".join(MODULES), help="with commas")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        side, what = options.one.split(":")
        print("\n" + json.dumps({"time": timed, "kill": killed}[what](side, options.jobs)))
        return
    sides = [side for side in options.sides.split(",") if importlib.util.find_spec(MODULES[side])]
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(options.repeat):
        for side in sides:
            runs[side].append(child(f"{side}:time", options.jobs))
    table = []
    for side in sides:
        ends = child(f"{side}:kill", KILLED_JOBS)
        table.append(
            {
                "side": side,
                "start s": statistics.median(run["start_s"] for run in runs[side]),
                "job ms": statistics.median(run["job_ms"] for run in runs[side]),
                "killed: done/failed/lost": f"{ends['done']}/{ends['failed']}/{ends['lost']}",
                "as it says": ends["said"],
                "goes on": ends["goes_on"],
            }
        )
    print(f"{os.cpu_count()} cores, {options.jobs} jobs, medians of {options.repeat}")
    print(tabulate(table, headers="keys", floatfmt=".2f"))


def child(what: str, jobs: int) -> dict[str, Any]:
    """Run a side in a process of its own."""
    script = [sys.executable, __file__, "--one", what, "--jobs", str(jobs)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{what}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def nothing(number: int) -> int:
    """A job."""
    return number


def kills_itself(number: int) -> int:
    """A job that is killed, if it is that one."""
    time.sleep(0.05)
    if number == BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def timed(side: str, jobs: int) -> dict[str, float]:
    """Seconds to the first result, milliseconds of each further job."""
    start = time.perf_counter()
    if side == "ours":
        return ours_timed(jobs)
    with ENGINES[side]() as submit_all:
        submit_all(nothing, range(1))
        started = time.perf_counter()
        submit_all(nothing, range(jobs))
        ended = time.perf_counter()
    return {"start_s": started - start, "job_ms": 1000 * (ended - started) / jobs}


def killed(side: str, jobs: int) -> dict[str, Any]:
    """How many jobs got their results though one of them was killed."""
    if side == "ours":
        return ours_killed(jobs)
    with ENGINES[side]() as submit_all:
        ends = submit_all(kills_itself, range(jobs))
        try:
            goes_on = submit_all(nothing, range(1)) == [0]
        except Exception:  # noqa: BLE001  # whatever a broken pool raises
            goes_on = False
    done = sum(not isinstance(end, str) for end in ends)
    said = Counter(end for end in ends if isinstance(end, str))
    return {
        "done": done,
        "failed": int(isinstance(ends[BAD], str)),
        "lost": jobs - done - int(isinstance(ends[BAD], str)),
        "said": ", ".join(f"{name} ({count})" for name, count in said.items()),
        "goes_on": goes_on,
    }


Submit = Callable[[Callable[[int], int], range], list[Any]]
"""Runs a job a number; a result each, or the name of the error."""


@contextlib.contextmanager
def futures_engine() -> Any:
    """ProcessPoolExecutor."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # As ours, a worker does not inherit the caller's threads.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:

        def submit_all(job: Callable[[int], int], numbers: range) -> list[Any]:
            return [result_of(f.result) for f in [pool.submit(job, n) for n in numbers]]

        yield submit_all


@contextlib.contextmanager
def joblib_engine() -> Any:
    """joblib with loky, its default; a generator, so that results come as they are there."""
    from joblib import Parallel, delayed

    def submit_all(job: Callable[[int], int], numbers: range) -> list[Any]:
        ends: list[Any] = []
        try:
            found = Parallel(n_jobs=2, return_as="generator", batch_size=1)(
                delayed(job)(n) for n in numbers
            )
            ends.extend(found)
        except Exception as error:  # noqa: BLE001  # counted by its name
            ends += [type(error).__name__] * (len(numbers) - len(ends))
        return ends

    yield submit_all


@contextlib.contextmanager
def ray_engine() -> Any:
    """Ray on this machine alone."""
    import ray

    ray.init(**RAY)

    def submit_all(job: Callable[[int], int], numbers: range) -> list[Any]:
        task = ray.remote(max_retries=0)(job)
        references = [task.remote(n) for n in numbers]
        return [result_of(lambda r=r: ray.get(r)) for r in references]

    yield submit_all
    ray.shutdown()


@contextlib.contextmanager
def dask_engine() -> Any:
    """dask.distributed with two worker processes."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.logging.distributed": "critical"})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def submit_all(job: Callable[[int], int], numbers: range) -> list[Any]:
            tasks = [client.submit(job, n, pure=False, retries=0) for n in numbers]
            return [result_of(task.result) for task in tasks]

        yield submit_all


ENGINES = {
    "futures": futures_engine,
    "joblib": joblib_engine,
    "ray": ray_engine,
    "dask": dask_engine,
}


def result_of(get: Callable[[], Any]) -> Any:
    """The result, or the name of the error."""
    try:
        return get()
    except Exception as error:  # noqa: BLE001  # counted by its name
        return type(error).__name__


WORKER = """
import json, os, signal, sys, time
from pathlib import Path
template = json.loads(Path(sys.argv[1]).read_text())
ids = json.loads(Path(sys.argv[2]).read_text())
for line in sys.stdin:
    request = json.loads(line)
    job = request["job"]
    if sys.argv[3] == "kill":
        time.sleep(0.05)
        if job["seed"] == 1 and job["plugin"] != "dense":
            os.kill(os.getpid(), signal.SIGKILL)
    job_id = ids[f"{job['seed']} {job['plugin']}"]
    folder = Path(request["runs"]) / job_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps({**template, "job_id": job_id, "job": job}))
    print(json.dumps({"event": "done", "job_id": job_id, "wall_s": 1.0}), flush=True)
"""


def ours_timed(jobs: int) -> dict[str, float]:
    """As for the others; a job also gets a folder and a record."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = of_plan(Path(folder), jobs=jobs, what="time")
        first, last = run["times"][0], run["times"][-1]
    return {"start_s": first - start, "job_ms": 1000 * (last - first) / (jobs - 1)}


def ours_killed(jobs: int) -> dict[str, Any]:
    """As for the others."""
    with tempfile.TemporaryDirectory() as folder:
        run = of_plan(Path(folder), jobs=jobs, what="kill")
        again = of_plan(Path(folder), jobs=jobs, what="time")
    failed = [outcome for outcome in run["ends"] if outcome.state != "done"]
    return {
        "done": len(run["ends"]) - len(failed),
        "failed": 1,
        "lost": len(failed) - 1,
        "said": "; ".join(outcome.why for outcome in failed),
        "goes_on": [outcome.state for outcome in again["ends"]] == ["done"],
    }


def of_plan(work: Path, *, jobs: int, what: str) -> dict[str, Any]:
    """Run a plan's jobs that are not done; the outcomes and when they came."""
    import scheduler

    from prime_bench.recipe.file import load_recipe
    from prime_bench.schedule.local import LocalEngine
    from prime_bench.schedule.plan import make_plan
    from prime_bench.schedule.run import run_plan
    from prime_bench.store.runs import Runs

    recipe = work / "recipe.toml"
    if not recipe.exists():
        recipe.write_text(scheduler.RECIPE.format(seeds=list(range(jobs // 2))))
        scheduler._prepare(work / "data")
    runs = Runs(work / "runs")
    plan = make_plan(load_recipe(recipe), data_dir=work / "data", runs=runs)
    template, ids = work / "template.json", work / "ids.json"
    template.write_text(json.dumps(scheduler._table(plan)))
    ids.write_text(
        json.dumps({f"{p.job_spec.seed} {p.job_spec.arm.plugin}": p.job_id for p in plan.jobs})
    )
    command = (sys.executable, "-c", WORKER, str(template), str(ids), what)
    ends: list[Any] = []
    times: list[float] = []

    def note(outcome: Any) -> None:
        ends.append(outcome)
        times.append(time.perf_counter())

    engine = LocalEngine(slots=2, command=command)
    run_plan(plan, engine, runs=runs, on_event=lambda _: None, on_outcome=note)
    return {"ends": ends, "times": times}


if __name__ == "__main__":
    main()
