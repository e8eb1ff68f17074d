"""Kill `prepare` and `run` at random moments, run them again, and compare with undisturbed runs.

    python scripts/kill_rounds.py --rounds 20 --work /tmp/rounds

Every round kills with SIGKILL, so nothing can tidy up. Afterwards the same command must finish,
give the same bytes (`prepare`) and the same results (`run`), and repeat no job that was done.
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

RECIPE = """
schema = 1
title = "Kill rounds"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.avazu]
[training]
batch_size = 512
max_epochs = 2
[backbone.DNN]
hidden_units = [32, 32]
net_dropout = 0.1
"""
COMMAND = (sys.executable, "-m", "prime_bench")


def main() -> int:
    """Do the rounds; 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    work: Path = given.work
    work.mkdir(parents=True)
    (work / "recipe.toml").write_text(RECIPE)
    raw = ["prepare", "synthetic", "--raw", "raw", "--raw-format", "avazu"]
    _whole([*raw, "--rows", str(given.rows)], work)
    prepare = ["prepare", "avazu", "--from", "raw", "--allow-unverified", "--data-dir"]
    run = ["run", "recipe.toml", "--slots", "2", "--data-dir", "reference", "--runs-dir"]
    prepare_s = _whole([*prepare, "reference"], work)
    run_s = _whole([*run, "reference-runs"], work)
    print(f"undisturbed: prepare {prepare_s:.1f} s, run {run_s:.1f} s")
    wanted_table, wanted_runs = _bytes(work / "reference"), _results(work / "reference-runs")
    dice, faults = random.Random(given.seed), 0
    for number in range(1, given.rounds + 1):
        table, runs = work / "table", work / "runs"
        killed_at = _kill([*prepare, "table"], work, after_s=dice.uniform(0, prepare_s))
        _whole([*prepare, "table"], work)
        same_table = _bytes(table) == wanted_table
        run_killed_at = _kill([*run, "runs"], work, after_s=dice.uniform(0, run_s))
        before = _records(runs)
        _whole([*run, "runs"], work)
        kept = all(_records(runs)[path] == stamp for path, stamp in before.items())
        same_runs = _results(runs) == wanted_runs
        faults += not (same_table and same_runs and kept)
        print(
            f"round {number}: prepare killed at {killed_at}, table "
            f"{'same' if same_table else 'DIFFERS'}; run killed at {run_killed_at} with "
            f"{len(before)} of {len(wanted_runs) - 1} done, results "
            f"{'same' if same_runs else 'DIFFER'}, done jobs {'kept' if kept else 'REPEATED'}",
            flush=True,
        )
        shutil.rmtree(table)
        shutil.rmtree(runs)
    print(f"{given.rounds} rounds, {faults} with a difference")
    return 1 if faults else 0


def _whole(arguments: Sequence[str], work: Path) -> float:
    """Run to the end; seconds."""
    start = time.perf_counter()
    subprocess.run([*COMMAND, *arguments], cwd=work, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _kill(arguments: Sequence[str], work: Path, *, after_s: float) -> str:
    process = subprocess.Popen([*COMMAND, *arguments], cwd=work, stdout=subprocess.DEVNULL)
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return f"{after_s:.2f} s"
    return "its own end"


def _bytes(folder: Path) -> dict[str, bytes]:
    """Every file, hidden ones too: nothing may be left over."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _results(folder: Path) -> dict[str, object]:
    """What a job found, without the times it took: result, hashes, history, weights."""
    found: dict[str, object] = {}
    for path in sorted(folder.glob("*/record.json")):
        record = json.loads(path.read_text())
        history = [{**line, "wall_s": None} for line in record["history"]]
        weights = (path.parent / "checkpoint.safetensors").read_bytes()
        found[path.parent.name] = (record["result"], record["pairing"], history, weights)
    left = [path.name for path in folder.glob(".claims/*")]
    return {**found, "claims left": left}


def _records(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.glob("*/record.json")}


if __name__ == "__main__":
    sys.exit(main())
