"""Kill `prepare` and `run` at random moments, run them again, and compare with undisturbed runs.

    python scripts/kill_rounds.py --rounds 20 --work /tmp/rounds
    python scripts/kill_rounds.py --rounds 40 --work /tmp/rounds --tiny

Every round kills `prepare` once with SIGKILL, and `run` up to three times in a random way: SIGKILL,
SIGTERM or SIGINT, to the parent, its process group, a worker, or a worker's process group.
Afterwards the same command must finish, give the same bytes (`prepare`) and the same results
(`run`), and repeat no job that was done; and after every kill no process of it may live on.
`--tiny` leaves `prepare` out and takes a small synthetic log.
"""

import argparse
import contextlib
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
MARK = "PRIME_BENCH_KILL_ROUND"
COMMAND = (sys.executable, "-m", "prime_bench")


def main() -> int:
    """Do the rounds; 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    work: Path = given.work
    work.mkdir(parents=True)
    if given.tiny:
        return _tiny(work, rounds=given.rounds, dice=random.Random(given.seed))
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
        said, run_faults = _disturbed([*run, "runs"], work, dice, run_s=run_s, wanted=wanted_runs)
        faults += not same_table or bool(run_faults)
        print(
            f"round {number}: prepare killed at {killed_at}, table "
            f"{'same' if same_table else 'DIFFERS'}; run: {said}",
            flush=True,
        )
        shutil.rmtree(table)
        shutil.rmtree(runs)
    print(f"{given.rounds} rounds, {faults} with a fault")
    return 1 if faults else 0


def _tiny(work: Path, *, rounds: int, dice: random.Random) -> int:
    """Rounds of `run` alone."""
    (work / "recipe.toml").write_text(
        RECIPE.replace("[dataset.avazu]", "[dataset.synthetic]\nrows = 6000")
    )
    _whole(["prepare", "synthetic", "--rows", "6000", "--data-dir", "data"], work)
    run = ["run", "recipe.toml", "--slots", "2", "--data-dir", "data", "--runs-dir"]
    run_s = _whole([*run, "reference-runs"], work)
    wanted, faults = _results(work / "reference-runs"), 0
    print(f"undisturbed: {len(wanted) - 1} jobs in {run_s:.1f} s", flush=True)
    for number in range(1, rounds + 1):
        said, found = _disturbed([*run, "runs"], work, dice, run_s=run_s, wanted=wanted)
        faults += bool(found)
        print(f"round {number}: {said}", flush=True)
        shutil.rmtree(work / "runs")
    print(f"{rounds} rounds, {faults} with a fault")
    return 1 if faults else 0


def _disturbed(
    run: Sequence[str],
    work: Path,
    dice: random.Random,
    *,
    run_s: float,
    wanted: dict[str, object],
) -> tuple[str, list[str]]:
    """Run to the end with up to three kills: what happened, and what was wrong."""
    runs, said, faults = work / "runs", [], []
    stamps: dict[str, int] = {}
    for n_kills in range(4):
        mark = f"{MARK}={os.getpid()}-{dice.getrandbits(48):x}"
        process = subprocess.Popen(
            [*COMMAND, *run],
            cwd=work,
            env={**os.environ, **dict([mark.split("=")])},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if n_kills < 3:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=dice.uniform(0, run_s))
            said.append(_hit(process, dice))
        code = process.wait(timeout=600)
        if n_kills < 3:
            said[-1] += f" -> {code}"
        if left := _left(mark):
            faults.append(f"LEFT {left}")
        now = _records(runs)
        faults += [f"REPEATED {path}" for path, at in stamps.items() if now.get(path) != at]
        stamps = now
        if code == 0:
            break
        if n_kills == 3:
            faults.append(f"NOT DONE, exit code {code}")
    if _results(runs) != wanted:
        faults.append("DIFFERENT RESULTS")
    return ", ".join([*said, *(faults or ["all the same, nobody left"])]), faults


def _hit(process: subprocess.Popen[bytes], dice: random.Random) -> str:
    """Send a signal to the run or a part of it; says which."""
    number = dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    who = dice.choice(["parent", "parent's group", "worker", "worker's group"])
    victim = process.pid
    if who.startswith("worker"):
        # Beside the guards, each of which leads the group of a worker.
        workers = [pid for pid in _children(process.pid) if _group(pid) not in (pid, None)]
        who, victim = (who, dice.choice(workers)) if workers else ("parent", victim)
    with contextlib.suppress(ProcessLookupError):
        if who.endswith("group"):
            os.killpg(os.getpgid(victim), number)
        else:
            os.kill(victim, number)
    return f"{number.name} to {who}"


def _children(pid: int) -> list[int]:
    try:
        lists = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for children in lists for child in children.split()]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _left(mark: str) -> list[str]:
    """The processes that have the mark among their environment variables after three seconds."""
    end = time.monotonic() + 3
    while True:
        found = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark.encode() in file.read_bytes().split(b"\0"):
                    found.append(file.parent.name)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


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
