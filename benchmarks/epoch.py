"""An epoch with its validation: ours, plain and compiled, against FuxiCTR 2.3.10's own loop with
its npz and its parquet loader.

    python benchmarks/epoch.py [--rows 300000] [--repeat 2] [--loaders npz,parquet] [--json FILE]
    python benchmarks/epoch.py --rows 2000000 --repeat 1          (the full size: half an hour)
    python benchmarks/epoch.py --ids frappe --rows 45000 --repeat 15 --loaders npz --threads 1 \
        --workers 0                                               (a small table, one thread a side)

The DNN of `recipes/main13.toml` on Avazu, batch 4,096, one row in ten for validation, the same rows
on all sides, in the shape of Avazu_x1 (1.54M ids) or of Frappe_x1 (5,382 ids). What is timed is one
epoch as each suite runs it: its loader's shuffle, the steps, a prediction of the validation split
and its AUC. Opening a loader, ray's start and the first epoch of each side, in which ours compiles,
are printed apart. Each side is a process of its own, with its own memory allocator. They take
turns, and a ratio is the median of those within a turn. `--clock cpu` counts the process's own CPU
time (with `--workers 0 --loaders npz`): what to use on a machine that others use.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import avazu_shape
import numpy as np
import polars as pl
import torch
from tabulate import tabulate

# Ours first: it keeps FuxiCTR's preprocessing, and so ray, out of the import of its layers.
from prime_bench.assemble import build_backbone
from prime_bench.base.machine import keep_freed_memory
from prime_bench.data.schema import Schema
from prime_bench.data.table import Split
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.device import fix_arithmetic
from prime_bench.training.loop import Training, TrainingSplits
from prime_bench.training.optimizer import Penalty

# isort: split
import fuxictr_dnn
from fuxictr.pytorch.dataloaders import RankDataLoader

BATCH = 4096


OURS = ("plain", "compiled")
Epoch = Callable[[], Any]
Rows = dict[str, int]  # of each split


def write(split: Split, schema: Schema, folder: Path, name: str) -> None:
    """The rows as FuxiCTR's loaders read them."""
    columns = {
        field.name: split.ids[:, i].astype(np.int64) for i, field in enumerate(schema.categorical)
    }
    columns[fuxictr_dnn.LABEL] = split.labels.astype(np.float64)
    np.savez(folder / f"{name}.npz", **columns)
    pl.DataFrame(columns).write_parquet(folder / f"{name}.parquet")


def our_epoch(schema: Schema, settings: DNNSettings, rows: Rows, *, compiled: bool) -> Epoch:
    """Runs the next epoch each time."""
    backbone = build_backbone("DNN", schema, settings.plain(), seed=0)
    training = Training(
        ArmModel(backbone),
        TrainingSplits(**made(schema, rows)),
        TrainSpec(compile=compiled),
        penalty=Penalty.of(settings),
        seed=0,
        device=torch.device("cpu"),
        on_progress=lambda _: None,
    )
    return training.run_epoch


def their_epoch(
    schema: Schema, settings: DNNSettings, folder: Path, *, loader: str, workers: int
) -> Epoch:
    """The same for FuxiCTR with the loader `npz` or `parquet`."""
    fields = fuxictr_dnn.feature_map(schema, folder)
    model = fuxictr_dnn.FuxiDNN(fields, settings, folder=folder)
    train, valid = RankDataLoader(
        fields,
        stage="train",
        train_data=str(folder / f"train.{loader}"),
        valid_data=str(folder / f"valid.{loader}"),
        batch_size=BATCH,
        data_format=loader,
        num_workers=workers,
    )
    # One call of `fit` an epoch, so that sides can take turns; it evaluates and saves as it does.
    return lambda: model.fit(train, epochs=1, validation_data=valid)


def made(schema: Schema, rows: Rows) -> dict[str, Split]:
    """The splits by name."""
    return {
        name: avazu_shape.rows(schema, n, seed=seed)
        for seed, (name, n) in enumerate(rows.items(), start=1)
    }


class Side:
    """A side in its process. Each method returns the seconds that it took there."""

    _epoch: ClassVar[Epoch]

    def __init__(self, name: str, options: argparse.Namespace, rows: Rows, folder: Path) -> None:
        self._process = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self._arguments = (name, options, rows, folder)

    def open(self) -> float:
        """Make the model and the loader."""
        return self._process.submit(Side._open, *self._arguments).result()

    def epoch(self) -> float:
        """Run the next epoch."""
        return self._process.submit(Side._run, self._arguments[1].clock).result()

    @staticmethod
    def _open(name: str, options: argparse.Namespace, rows: Rows, folder: Path) -> float:
        fix_arithmetic(threads=options.threads)
        schema = avazu_shape.schema_of(options.ids)
        settings = DNNSettings.parse(
            load_recipe("main13").backbones["DNN"]["avazu"].plain(), where="DNN"
        )
        start = time.perf_counter()
        if name in OURS:
            keep_freed_memory()  # as a worker does
            Side._epoch = our_epoch(schema, settings, rows, compiled=name == "compiled")
        else:
            loader = name.removeprefix("FuxiCTR ")
            Side._epoch = their_epoch(
                schema, settings, folder, loader=loader, workers=options.workers
            )
        return time.perf_counter() - start

    @staticmethod
    def _run(clock: str) -> float:
        now = time.process_time if clock == "cpu" else time.perf_counter
        start = now()
        Side._epoch()
        return now() - start


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of each side: opening, the first epoch, and the median of those after it."""
    rows = {"train": options.rows, "valid": options.rows // 10}
    names = [*OURS, *(f"FuxiCTR {loader}" for loader in options.loaders.split(","))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        schema = avazu_shape.schema_of(options.ids)
        for name, split in made(schema, rows).items():
            write(split, schema, folder, name)
        sides = {}
        for name in names:
            own = folder / name.replace(" ", "-")
            (own / "benchmark").mkdir(parents=True)  # where FuxiCTR saves its weights
            for file in folder.glob("*.*"):
                (own / file.name).symlink_to(file)
            sides[name] = Side(name, options, rows, own)
        times = {name: [side.open()] for name, side in sides.items()}
        for _ in range(1 + options.repeat):
            for name, side in sides.items():
                times[name].append(side.epoch())
    found = [
        {"side": n, "open s": t[0], "first s": t[1], "epoch s": statistics.median(t[2:])}
        for n, t in times.items()
    ]
    for name in OURS:
        for line in found:
            line[f"over {name}"] = statistics.median(
                t / o for t, o in zip(times[line["side"]][2:], times[name][2:], strict=True)
            )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="An epoch of ours against FuxiCTR's.")
    parser.add_argument("--ids", default="1540000", help="of Avazu's fields, or frappe")
    parser.add_argument("--rows", type=int, default=300_000, help="training rows")
    parser.add_argument("--repeat", type=int, default=2, help="epochs of each side after the first")
    parser.add_argument("--loaders", default="npz,parquet", help="FuxiCTR's, with commas")
    parser.add_argument("--workers", type=int, default=3, help="of its loader; 3 is its default")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    found = measure(options)
    print(
        f"{options.ids} ids, {options.rows} rows, batch {BATCH}, {options.threads} threads,"
        f" {options.clock} time, torch {torch.__version__}"
    )
    print(tabulate(found, headers="keys", floatfmt=".2f"))
    if options.json:
        table = {"schema": 1, "rows": options.rows, "threads": options.threads, "sides": found}
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
