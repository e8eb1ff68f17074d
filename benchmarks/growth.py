"""How an epoch grows: its time against training rows and against ids of the table, and how soon the
first batch of a large table is there.

    python benchmarks/growth.py [--steps 60] [--json FILE]

The DNN of `recipes/main13.toml` on Avazu, batch 4,096. An epoch costs a step for each batch, so
what is timed of one of N rows is its row order, its first `--steps` steps, and the rest at their
median; `--steps 0` runs all of them. Rows are mapped from a file, as prepared tables are.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import avazu_shape
import numpy as np
import torch
from tabulate import tabulate

from prime_bench.assemble import build_backbone
from prime_bench.data.schema import Schema
from prime_bench.data.table import Split
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Rows, batch_bounds, row_order
from prime_bench.training.device import fix_arithmetic
from prime_bench.training.optimizer import Optimizer, Penalty

BATCH = 4096
CPU = torch.device("cpu")
ROWS, IDS = (500_000, 1_000_000, 2_000_000, 4_000_000), (100_000, 1_000_000, 10_000_000)
BASE_ROWS, BASE_IDS = 1_000_000, 1_000_000
LARGEST = 40_000_000
_BLOCK = 1_000_000


def mapped(schema: Schema, n_rows: int, folder: Path) -> Split:
    """Rows in files: a block of random ones, over and over."""
    block = avazu_shape.rows(schema, min(_BLOCK, n_rows), seed=1)
    found = {}
    for name in ("ids", "numerics", "labels"):
        part = getattr(block, name)
        if part.size == 0:
            found[name] = np.empty((n_rows, *part.shape[1:]), dtype=part.dtype)
            continue
        path = folder / f"{name}.npy"
        shape = (n_rows, *part.shape[1:])
        array = np.lib.format.open_memmap(path, mode="w+", dtype=part.dtype, shape=shape)
        for start in range(0, n_rows, len(part)):
            array[start : start + len(part)] = part[: n_rows - start]
        array.flush()
        found[name] = np.load(path, mmap_mode="r")
    return Split(**found)


def epoch(n_rows: int, n_ids: int, *, n_steps: int) -> dict[str, Any]:
    """Seconds of an epoch and what they are made of."""
    schema = avazu_shape.schema(n_ids)
    settings = load_recipe("main13").backbones["DNN"]["avazu"]
    arm = ArmModel(build_backbone("DNN", schema, settings.plain(), seed=0))
    penalty = Penalty.of(settings)
    optimizer = Optimizer(arm, TrainSpec(), penalty=penalty)
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(mapped(schema, n_rows, Path(folder)), device=CPU)
        start = time.perf_counter()
        order = row_order(n_rows, seed=1, epoch=1)
        order_s = time.perf_counter() - start
        times = []
        last = time.perf_counter()
        for number, batch in enumerate(rows.shuffled(order, batch_size=BATCH), start=1):
            optimizer.step(batch)
            now = time.perf_counter()
            times.append(now - last)
            last = now
            if number == n_steps:
                break
    step_s = statistics.median(times)
    left = len(batch_bounds(n_rows, BATCH)) - len(times)
    return {
        "rows": n_rows,
        "ids": n_ids,
        "row order s": order_s,
        "step ms": step_s * 1e3,
        "epoch s": order_s + sum(times) + left * step_s,
    }


def first_batch(n_rows: int) -> dict[str, Any]:
    """Seconds until the first batch of `n_rows` rows is there."""
    schema = avazu_shape.schema(BASE_IDS)
    with tempfile.TemporaryDirectory() as folder:
        split = mapped(schema, n_rows, Path(folder))
        start = time.perf_counter()
        order = row_order(n_rows, seed=1, epoch=1)
        next(iter(Rows(split, device=CPU).shuffled(order, batch_size=BATCH)))
        return {"rows": n_rows, "first batch s": time.perf_counter() - start}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="An epoch's time against rows and ids.")
    parser.add_argument("--steps", type=int, default=60, help="steps to run; 0: all of them")
    parser.add_argument("--largest", type=int, default=LARGEST, help="rows of the largest table")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    fix_arithmetic(threads=options.threads)
    by_rows = [epoch(n, BASE_IDS, n_steps=options.steps) for n in ROWS]
    by_ids = [epoch(BASE_ROWS, n, n_steps=options.steps) for n in IDS]
    large = first_batch(options.largest)
    print(f"batch {BATCH}, {options.threads} threads, torch {torch.__version__}")
    for table in (by_rows, by_ids, [large]):
        print(tabulate(table, headers="keys", floatfmt=".2f", intfmt=","))
    if options.json:
        table = {"schema": 1, "threads": options.threads, "by rows": by_rows, "by ids": by_ids}
        options.json.write_text(json.dumps(table | {"first batch": large}, indent=2) + "\n")


if __name__ == "__main__":
    main()
