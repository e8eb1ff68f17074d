"""An epoch with its validation: ours, plain and compiled, against FuxiCTR 2.3.10's own loop with
its npz and its parquet loader.

    python benchmarks/epoch.py [--rows 300000] [--repeat 2] [--loaders npz,parquet] [--json FILE]
    python benchmarks/epoch.py --rows 2000000 --repeat 1          (the full size: half an hour)

The DNN of `recipes/main13.toml` on Avazu, batch 4,096, one row in ten for validation, 1.54M ids,
the same rows on all sides. What is timed is one epoch as each suite runs it: its loader's shuffle,
the steps, a prediction of the validation split and its AUC. Opening a loader, ray's start and the
first epoch of each side, in which ours compiles, are printed apart. The sides take turns.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import avazu_shape
import numpy as np
import polars as pl
import torch
from tabulate import tabulate

# Ours first: it keeps FuxiCTR's preprocessing, and so ray, out of the import of its layers.
from prime_bench.assemble import build_backbone
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
N_IDS = 1_540_000
WORKERS = 3  # of FuxiCTR's npz loader, its default


def write(split: Split, schema: Schema, folder: Path, name: str) -> None:
    """The rows as FuxiCTR's loaders read them."""
    columns = {
        field.name: split.ids[:, i].astype(np.int64) for i, field in enumerate(schema.categorical)
    }
    columns[fuxictr_dnn.LABEL] = split.labels.astype(np.float64)
    np.savez(folder / f"{name}.npz", **columns)
    pl.DataFrame(columns).write_parquet(folder / f"{name}.parquet")


def our_epoch(
    schema: Schema, splits: TrainingSplits, settings: DNNSettings, *, compiled: bool
) -> Callable[[], Any]:
    """Runs the next epoch each time."""
    backbone = build_backbone("DNN", schema, settings.plain(), seed=0)
    training = Training(
        ArmModel(backbone),
        splits,
        TrainSpec(compile=compiled),
        penalty=Penalty.of(settings),
        seed=0,
        device=torch.device("cpu"),
        on_progress=lambda _: None,
    )
    return training.run_epoch


def their_epoch(
    schema: Schema, folder: Path, settings: DNNSettings, *, loader: str
) -> Callable[[], Any]:
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
        num_workers=WORKERS,
    )
    # One call of `fit` an epoch, so that sides can take turns; it evaluates and saves as it does.
    return lambda: model.fit(train, epochs=1, validation_data=valid)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of each side: opening, the first epoch, and the median of those after it."""
    schema = avazu_shape.schema(N_IDS)
    settings = DNNSettings.parse(
        load_recipe("main13").backbones["DNN"]["avazu"].plain(), where="DNN"
    )
    rows = {"train": options.rows, "valid": options.rows // 10}
    splits = {
        name: avazu_shape.rows(schema, n, seed=seed)
        for seed, (name, n) in enumerate(rows.items(), start=1)
    }
    ours = TrainingSplits(train=splits["train"], valid=splits["valid"])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "benchmark").mkdir()  # where FuxiCTR saves its weights
        for name, split in splits.items():
            write(split, schema, folder, name)
        openers: dict[str, Callable[[], Callable[[], Any]]] = {
            "plain": lambda: our_epoch(schema, ours, settings, compiled=False),
            "compiled": lambda: our_epoch(schema, ours, settings, compiled=True),
        }
        for loader in options.loaders.split(","):
            openers[f"FuxiCTR {loader}"] = lambda loader=loader: their_epoch(
                schema, folder, settings, loader=loader
            )
        times = {name: [] for name in openers}
        epochs = {}
        for name, opener in openers.items():
            start = time.perf_counter()
            epochs[name] = opener()
            times[name].append(time.perf_counter() - start)
        for _ in range(1 + options.repeat):
            for name, epoch in epochs.items():
                start = time.perf_counter()
                epoch()
                times[name].append(time.perf_counter() - start)
    found = [
        {"side": n, "open s": t[0], "first s": t[1], "epoch s": statistics.median(t[2:])}
        for n, t in times.items()
    ]
    for ours_at, name in enumerate(("plain", "compiled")):
        for line in found:
            line[f"over {name}"] = line["epoch s"] / found[ours_at]["epoch s"]
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="An epoch of ours against FuxiCTR's.")
    parser.add_argument("--rows", type=int, default=300_000, help="training rows")
    parser.add_argument("--repeat", type=int, default=2, help="epochs of each side after the first")
    parser.add_argument("--loaders", default="npz,parquet", help="FuxiCTR's, with commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    fix_arithmetic(threads=options.threads)
    found = measure(options)
    print(
        f"{options.rows} rows, batch {BATCH}, {options.threads} threads, torch {torch.__version__}"
    )
    print(tabulate(found, headers="keys", floatfmt=".2f"))
    if options.json:
        table = {"schema": 1, "rows": options.rows, "threads": options.threads, "sides": found}
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
