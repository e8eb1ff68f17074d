"""Kill workers and the parent of a `run` at random moments, run it again, and see what it did.

    python scripts/kill_jobs.py --rounds 5 --jobs 60 --work /tmp/kills

Every round starts with empty folders: 60 tiny jobs in 2 slots. Until all are done, `run` is
started; SIGKILL hits workers now and then, and in the end the parent. In the last part
two parents share a folder. Each time every job must have exactly one record, none may have
been trained twice, and no claim is left.
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
from collections import Counter
from pathlib import Path

RECIPE = """
schema = 1
title = "Kill jobs"
seeds = {seeds}
arms = ["dense", "prime"]
[dataset.synthetic]
rows = 2000
[training]
batch_size = 256
max_epochs = 1
[backbone.DNN]
hidden_units = [8]
"""
COMMAND = (sys.executable, "-m", "prime_bench")
RUN = (*COMMAND, "run", "recipe.toml", "--device", "cpu", "--slots", "2")


def main() -> int:
    """Do the rounds; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    work: Path = given.work
    work.mkdir(parents=True)
    (work / "recipe.toml").write_text(RECIPE.format(seeds=list(range(given.jobs // 2))))
    prepare = [*COMMAND, "prepare", "synthetic", "--rows", "2000"]
    subprocess.run(prepare, cwd=work, check=True, stdout=subprocess.DEVNULL)
    dice, faults = random.Random(given.seed), 0
    for number in range(1, given.rounds + 1):
        faults += _round(f"round {number}", work, given.jobs, dice, n_parents=1)
    for number in range(1, given.rounds + 1):
        faults += _round(f"two parents, round {number}", work, given.jobs, dice, n_parents=2)
    print(f"{2 * given.rounds} rounds, {faults} with a fault")
    return 1 if faults else 0


def _round(name: str, work: Path, n_jobs: int, dice: random.Random, *, n_parents: int) -> bool:
    runs = work / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    kills: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    while len(_records(runs)) < n_jobs:
        parents = [
            subprocess.Popen(RUN, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(n_parents)
        ]
        kills += _disturb(parents, dice, runs=runs, seen=seen)
    # Whoever was killed at its very end has left its lock file to the next `run`.
    subprocess.run(RUN, cwd=work, check=True, stdout=subprocess.DEVNULL)
    locks = [path.name for path in (runs / ".claims").iterdir()]
    folders = [path for path in runs.iterdir() if not path.name.startswith(".")]
    seen |= set(_records(runs).items())
    trained = Counter(job_id for job_id, _ in seen)
    good = len(folders) == len(trained) == n_jobs and set(trained.values()) == {1} and not locks
    print(
        f"{name}: {'good' if good else 'WRONG'}: {len(folders)} jobs, {len(trained)} records, "
        f"at most {max(trained.values())} times trained, {len(locks)} claims left; "
        f"{kills['worker']} workers and {kills['parent']} parents were killed",
        flush=True,
    )
    return not good


def _disturb(
    parents: list[subprocess.Popen[bytes]],
    dice: random.Random,
    *,
    runs: Path,
    seen: set[tuple[str, int]],
) -> Counter[str]:
    """Kill a worker every few seconds, and each parent at last; note every record that appears."""
    kills: Counter[str] = Counter()
    now = time.monotonic()
    ends = {parent.pid: now + dice.uniform(6, 20) for parent in parents}
    next_s = now + dice.uniform(2, 6)
    while alive := [parent for parent in parents if parent.poll() is None]:
        # A job takes longer than that: one that is trained twice has two stamps here.
        time.sleep(0.05)
        seen |= set(_records(runs).items())
        now = time.monotonic()
        for parent in alive:
            if now > ends[parent.pid]:
                parent.send_signal(signal.SIGKILL)
                kills["parent"] += 1
        if now > next_s:
            next_s = now + dice.uniform(1, 5)
            if workers := _workers(dice.choice(alive).pid):
                kills["worker"] += _kill(dice.choice(workers))
    return kills


def _workers(parent: int) -> list[int]:
    """Its workers, which its slots' threads have started; each is in the group of its guard."""
    try:
        lists = [file.read_text() for file in Path(f"/proc/{parent}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(pid) for pids in lists for pid in pids.split()]
    return [pid for pid in children if not _leads(pid)]


def _leads(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return True


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _records(runs: Path) -> dict[str, int]:
    """When each record was written. Raises ValueError for one that is not whole."""
    files = list(runs.glob("*/record.json"))
    for file in files:
        json.loads(file.read_text())
    return {file.parent.name: file.stat().st_mtime_ns for file in files}


if __name__ == "__main__":
    sys.exit(main())
