"""`run --slots auto` against one slot with a thread a core, with and without a busy neighbour.

    python benchmarks/slots.py [--rounds 3] [--rows 60000] [--jobs 4] [--epochs 3]

The same jobs (the DNN of `recipes/quick.toml`, Dense and PRIME, a fixed number of epochs) run in
both ways, in turns, each time into an empty folder. The neighbour is one process that computes in
a thread of its own on each core all the time. Seconds are of the whole run, with the start of the
workers; `epoch` is the median of the epochs' seconds that the records give. Prints the medians, and
the median of the rounds' ratios.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

from prime_bench import api
from prime_bench.base.machine import cores
from prime_bench.schedule.engine import Engine
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

# Large products release Python's lock, so that a process of plain Python threads fills all cores.
NEIGHBOUR = """
import sys, threading
import numpy as np

def compute():
    block = np.ones(2_000_000)
    while True:
        np.sqrt(block, out=block)

for _ in range(int(sys.argv[1])):
    threading.Thread(target=compute).start()
"""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="Slots against threads.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slots-") as folder:
        work = Path(folder)
        api.prepare("synthetic", settings={"rows": given.rows}, data_dir=work / "data")
        table = []
        for neighbour in (False, True):
            with _busy() if neighbour else contextlib.nullcontext():
                rounds = [_round(work, given, number) for number in range(given.rounds)]
            table.append(_row(neighbour, rounds))
    print(f"{cores()} cores, {given.jobs} jobs of {given.epochs} epochs")
    print(tabulate(table, headers="keys", floatfmt=".2f"))


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Keep every core busy meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(cores())])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _round(work: Path, given: argparse.Namespace, number: int) -> dict[str, tuple[float, float]]:
    """Seconds of the run and of an epoch, by side. The sides take turns in who comes first."""
    sides: dict[str, Engine] = {
        "one slot": api.open_engine(device="cpu", slots=1, threads=cores()),
        "auto": api.open_engine(device="cpu", slots="auto"),
    }
    names = list(sides) if number % 2 == 0 else list(reversed(sides))
    return {name: _timed(work, given, sides[name]) for name in names}


def _timed(work: Path, given: argparse.Namespace, engine: Engine) -> tuple[float, float]:
    changes = [
        f"dataset.synthetic.rows={given.rows}",
        f"training.max_epochs={given.epochs}",
        f"training.patience={given.epochs}",
        f"seeds={list(range(1, given.jobs // 2 + 1))}",
    ]
    with tempfile.TemporaryDirectory(dir=work) as runs:
        start = time.perf_counter()
        summary = api.run(
            "quick",
            only=["backbone=DNN", "arm=dense", "arm=prime"],
            changes=changes,
            engine=engine,
            data_dir=work / "data",
            runs_dir=runs,
        )
        wall_s = time.perf_counter() - start
        if not summary.ok or summary.done != given.jobs:
            raise SystemExit(f"not measured: {summary}")
        records, _ = Runs(Path(runs)).readable()
        epochs = [
            record.history[-1].wall_s / record.result.epochs
            for record in records
            if isinstance(record, RunRecord)
        ]
    return wall_s, statistics.median(epochs)


def _row(neighbour: bool, rounds: list[dict[str, tuple[float, float]]]) -> dict[str, object]:
    row: dict[str, object] = {"neighbour": "busy" if neighbour else "none started"}
    for place, unit in enumerate(("run s", "epoch s")):
        for name in ("one slot", "auto"):
            row[f"{name}, {unit}"] = statistics.median(one[name][place] for one in rounds)
        row[f"ratio of {unit}"] = statistics.median(
            one["one slot"][place] / one["auto"][place] for one in rounds
        )
    return row


if __name__ == "__main__":
    main()
