"""What it costs to save a run's state after a validation, and to go on from it.

    python benchmarks/saved_state.py --ids 1544489 --repeat 5

The DNN and DCNv2 with PRIME of `recipes/main13.toml` on Avazu's fields, after an epoch of a few
batches. `write s` is what a run on a CPU waits for; on a GPU it waits for the copy alone (`copy s`,
here from memory to memory) and the rest happens meanwhile. Medians.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import avazu_shape
import torch
from tabulate import tabulate

from prime_bench.assemble import build_arm
from prime_bench.catalog import PLUGINS
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.training.checkpoint import StateFile, load_state
from prime_bench.training.loop import Training, TrainingSplits
from prime_bench.training.optimizer import Penalty

CPU = torch.device("cpu")
BATCH = 4096
HERE = {"device": "this one"}


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description="Seconds and bytes of a saved state.")
    parser.add_argument("--ids", type=int, default=1_544_489, help="rows of the embedding table")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    rows = [
        measure(backbone, plugin, n_ids=given.ids, repeat=given.repeat)
        for backbone, plugin in (("DNN", "dense"), ("DCNv2", "prime"))
    ]
    print(
        f"{given.ids:,} ids, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )
    print(tabulate(rows, headers="keys", floatfmt=".2f"))


def measure(backbone: str, plugin: str, *, n_ids: int, repeat: int) -> dict[str, Any]:
    """Medians of writing, of copying for the background, and of reading."""
    training = trained(backbone, plugin, n_ids=n_ids)
    seconds: dict[str, list[float]] = {"write s": [], "copy s": [], "read s": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        for _ in range(repeat):
            start = time.perf_counter()
            StateFile(path, conditions=HERE, background=False).write(training.state_dict())
            seconds["write s"].append(time.perf_counter() - start)
            with StateFile(path, conditions=HERE, background=True) as file:
                start = time.perf_counter()
                file.write(training.state_dict())
                seconds["copy s"].append(time.perf_counter() - start)
            start = time.perf_counter()
            load_state(path, conditions=HERE)
            seconds["read s"].append(time.perf_counter() - start)
        size = path.stat().st_size
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"model": f"{backbone}, {plugin}", "MB": size / 1e6, **medians}


def trained(backbone: str, plugin: str, *, n_ids: int) -> Training:
    """A run that has an epoch behind it, so that every part of the state is there."""
    schema = avazu_shape.schema(n_ids)
    settings = load_recipe("main13").backbones[backbone]["avazu"]
    job = Job(
        fingerprint="benchmark",
        backbone=backbone,
        backbone_settings=settings.plain(),
        plugin=plugin,
        plugin_settings=PLUGINS[plugin].settings.parse({}, where=plugin).plain(),
        training=TrainSpec(batch_size=BATCH),
        seed=0,
    )
    training = Training(
        build_arm(job.resolve(), schema).arm,
        TrainingSplits(
            train=avazu_shape.rows(schema, 4 * BATCH, seed=1),
            valid=avazu_shape.rows(schema, BATCH, seed=2),
        ),
        job.training,
        penalty=Penalty.of(settings),
        seed=0,
        device=CPU,
        on_progress=lambda _: None,
    )
    training.run_epoch()
    return training


if __name__ == "__main__":
    main()
