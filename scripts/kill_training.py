"""Kill training runs with SIGKILL at random moments, go on with them, and compare with undisturbed
ones, bit for bit.

    python scripts/kill_training.py --rounds 10 --work /tmp/rounds

A round takes one of the jobs of RECIPE, kills its worker `--kills` times at random moments and lets
it come to its end. Record, history, weights and predictions must then be the undisturbed job's, but
for times, and for the commit, which may move meanwhile. One thread a job.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from prime_bench.recipe.events import (
    EpochEvent,
    ProgressEvent,
    ResumedEvent,
    SkippedEvent,
    WorkerEvent,
    read_event,
)

RECIPE = """
schema = 1
title = "Killed in training"
seeds = [1]
arms = ["dense", "prime", "permuted_routing"]
[dataset.synthetic]
rows = 60_000
[training]
batch_size = 256
max_epochs = 6
patience = 6
[backbone.DNN]
hidden_units = [64, 64]
net_dropout = 0.2
batch_norm = true
embedding_l2 = 1e-5
[backbone.DCNv2]
parallel_dnn_hidden_units = [64, 64]
net_dropout = 0.2
embedding_l2 = 1e-5
"""
MOVES = ("wall_s", "started", "commit", "dirty", "at_once", "digests")
COMMAND = (sys.executable, "-m", "prime_bench")
WORKER = (sys.executable, "-m", "prime_bench.worker")


def main() -> int:
    """Do the rounds; 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kills", type=int, default=2, help="in each round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    work: Path = given.work.resolve()
    work.mkdir(parents=True)
    (work / "recipe.toml").write_text(RECIPE)
    whole(["prepare", "synthetic", "--rows", "60000"], work)
    run = ["run", "recipe.toml", "--device", "cpu", "--slots", "1", "--threads-per-job", "1"]
    run += ["--keep-predictions"]
    whole([*run, "--runs-dir", "undisturbed"], work)
    jobs = sorted(path.parent for path in work.glob("undisturbed/*/record.json"))
    print(f"{len(jobs)} jobs, {sum(wall_s(job) for job in jobs):.1f} s undisturbed", flush=True)
    dice, faults = random.Random(given.seed), 0
    for number in range(1, given.rounds + 1):
        wanted = jobs[(number - 1) % len(jobs)]
        said = [
            # Each goes on from the one before: together they may take as long as the job.
            killed(wanted, work, after_s=dice.uniform(0, wall_s(wanted) / given.kills))
            for _ in range(given.kills)
        ]
        events = answers(start(wanted, work))
        found = work / "killed" / wanted.name
        unlike = differences(wanted, found)
        faults += bool(unlike)
        print(
            f"round {number}, {label(wanted)}: killed {' and '.join(said)}, then {began(events)}: "
            + (f"DIFFERS in {', '.join(unlike)}" if unlike else "all bits the same"),
            flush=True,
        )
        shutil.rmtree(found)
    print(f"{given.rounds} rounds, {given.rounds * given.kills} kills, {faults} with a difference")
    return 1 if faults else 0


def whole(arguments: Sequence[str], work: Path) -> None:
    """Run a command to its end."""
    subprocess.run([*COMMAND, *arguments], cwd=work, check=True, stdout=subprocess.DEVNULL)


def start(wanted: Path, work: Path) -> subprocess.Popen[str]:
    """A worker that has been given the job."""
    request = json.loads((wanted / "config.json").read_text())
    del request["job_id"]
    worker = subprocess.Popen(
        WORKER, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pipe(worker.stdin).write(json.dumps({**request, "runs": "killed"}) + "\n")
    pipe(worker.stdin).flush()
    return worker


def pipe(stream: IO[str] | None) -> IO[str]:
    """The stream, which is there."""
    if stream is None:
        raise RuntimeError("the worker's pipes are missing")
    return stream


def answers(worker: subprocess.Popen[str]) -> list[WorkerEvent]:
    """All events of the worker, to its end."""
    out, _ = worker.communicate()
    return [event for line in out.splitlines() if (event := read_event(line)) is not None]


def killed(wanted: Path, work: Path, *, after_s: float) -> str:
    """Kill a worker `after_s` seconds after its first event; returns when that was, as text."""
    worker = start(wanted, work)
    pipe(worker.stdout).readline()
    time.sleep(after_s)
    os.kill(worker.pid, signal.SIGKILL)
    epochs = [
        event.progress.epoch if isinstance(event, ProgressEvent) else event.validation.epoch
        for event in answers(worker)
        if isinstance(event, ProgressEvent | EpochEvent)
    ]
    state = f"in epoch {epochs[-1]}" if epochs else "early"
    return f"at {after_s:.2f} s {state}"


def began(events: list[WorkerEvent]) -> str:
    """Where the last worker began, as text."""
    first = events[0]
    if isinstance(first, ResumedEvent):
        return f"continued after epoch {first.epoch}"
    return "found it done" if isinstance(first, SkippedEvent) else "began with epoch 1"


def differences(wanted: Path, found: Path) -> list[str]:
    """Which files of a job differ in more than times."""
    unlike = sorted(names(wanted) ^ names(found))
    for name in sorted(names(wanted) & names(found)):
        if read(wanted / name) != read(found / name):
            unlike.append(name)
    return unlike


def names(folder: Path) -> set[str]:
    """The job's files but for those that tell of the run itself."""
    own = {"log.txt", "config.json", "environment.json"}
    return {path.name for path in folder.iterdir()} - own


def read(path: Path) -> object:
    """What must be the same in two runs of a job."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: (array.dtype.str, array.tobytes()) for name, array in file.items()}
    if path.name == "history.jsonl":
        return [timeless(json.loads(line)) for line in path.read_text().splitlines()]
    return timeless(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()


def timeless(table: Any) -> Any:
    """The same without times and the commit."""
    if isinstance(table, dict):
        return {key: timeless(part) for key, part in table.items() if key not in MOVES}
    return [timeless(part) for part in table] if isinstance(table, list) else table


def wall_s(job: Path) -> float:
    """Seconds that it took."""
    return float(json.loads((job / "record.json").read_text())["wall_s"])


def label(job: Path) -> str:
    """What the job is."""
    record = json.loads((job / "record.json").read_text())
    return f"{record['job']['backbone']} {record['arm']}"


if __name__ == "__main__":
    sys.exit(main())
