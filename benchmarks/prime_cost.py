"""What PRIME adds to a backbone: time of a training step and of an inference batch over Dense's,
beside the multiply-accumulates'.

    python benchmarks/prime_cost.py [--backbones DNN,DCNv2,FiBiNET] [--repeat 25] [--json FILE]

Settings of `recipes/main13.toml` on Avazu, batch 4,096, plain and compiled. Each repetition runs
Dense and PRIME on the same batch, in an order that alternates; a ratio is the median of the
repetitions' ratios. `--threads 1 --clock cpu` counts the process's own CPU time: what to use on a
machine that others use.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import avazu_shape
import torch
from tabulate import tabulate

from prime_bench.assemble import build_arm
from prime_bench.catalog import PLUGINS
from prime_bench.data.schema import Schema
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job, ResolvedJob
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch, Rows
from prime_bench.training.device import compiled, fix_arithmetic
from prime_bench.training.optimizer import Optimizer, Penalty

BATCH = 4096
CPU = torch.device("cpu")
ARMS = ("dense", "prime")
N_BATCHES = 8


def job_of(backbone: str, arm: str, *, compile_: bool) -> ResolvedJob:
    """The job of main13, but for its data."""
    job = Job(
        fingerprint="",
        backbone=backbone,
        backbone_settings=load_recipe("main13").backbones[backbone]["avazu"].plain(),
        plugin=arm,
        plugin_settings=PLUGINS[arm].settings().plain(),
        training=TrainSpec(compile=compile_),
        seed=1,
    )
    return job.resolve()


def trainer(job: ResolvedJob, schema: Schema) -> Callable[[Batch], Any]:
    """Its training step."""
    penalty = Penalty.of(job.backbone)
    return Optimizer(build_arm(job, schema).arm, job.training, penalty=penalty).step


def predictor(job: ResolvedJob, schema: Schema) -> Callable[[Batch], Any]:
    """Its forward pass in evaluation."""
    arm: ArmModel = build_arm(job, schema).arm.eval()
    forward: Any = compiled(arm) if job.training.compile else arm

    @torch.no_grad()
    def predict(batch: Batch) -> Any:
        return forward(batch.ids, batch.numerics)

    return predict


def ratio(
    sides: list[Callable[[Batch], Any]], batches: list[Batch], options: argparse.Namespace
) -> tuple[float, float]:
    """Median milliseconds of Dense, and PRIME over Dense."""
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    times_ms: tuple[list[float], list[float]] = ([], [])
    for repetition in range(options.warmup + options.repeat):
        for side in (0, 1) if repetition % 2 else (1, 0):
            start = clock()
            sides[side](batches[repetition % len(batches)])
            times_ms[side].append((clock() - start) * 1e3)
    dense, prime = (times[options.warmup :] for times in times_ms)
    ratios = [added / base for base, added in zip(dense, prime, strict=True)]
    return statistics.median(dense), statistics.median(ratios)


def measure(backbone: str, options: argparse.Namespace) -> dict[str, Any]:
    """A row of the table."""
    schema = avazu_shape.schema(options.ids)
    rows = Rows(avazu_shape.rows(schema, BATCH * N_BATCHES, seed=1), device=CPU)
    batches = list(rows.in_order(batch_size=BATCH))
    budget = job_of(backbone, "prime", compile_=False).budget(schema.shape)
    added = (budget.backbone_macs + budget.plugin_macs) / budget.backbone_macs
    found: dict[str, Any] = {"backbone": backbone, "MACs": added}
    for compile_ in (False, True):
        form = "compiled" if compile_ else "plain"
        for name, build in (("training", trainer), ("inference", predictor)):
            sides = [build(job_of(backbone, arm, compile_=compile_), schema) for arm in ARMS]
            base_ms, over = ratio(sides, batches, options)
            found[f"{name} {form}"] = over
            found[f"Dense ms, {name} {form}"] = base_ms
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time of PRIME over Dense.")
    parser.add_argument("--backbones", default="DNN,DCNv2,FiBiNET", help="names, with commas")
    parser.add_argument("--ids", type=int, default=1_540_000, help="ids of all fields")
    parser.add_argument("--repeat", type=int, default=25, help="measured steps of each arm")
    parser.add_argument("--warmup", type=int, default=4, help="steps that do not count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    fix_arithmetic(threads=options.threads)
    found = [measure(name, options) for name in options.backbones.split(",")]
    print(
        f"batch {BATCH}, {options.ids} ids, {options.threads} threads, {options.clock} time, "
        f"torch {torch.__version__}"
    )
    print(tabulate(found, headers="keys", floatfmt=".3f"))
    if options.json:
        table = {"schema": 1, "clock": options.clock, "threads": options.threads, "rows": found}
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
