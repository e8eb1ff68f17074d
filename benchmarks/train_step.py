"""One training step on the same batch: ours, plain and compiled, against FuxiCTR 2.3.10's
`BaseModel.train_step` and against what bounds it.

    python benchmarks/train_step.py [--ids frappe,1050000,1540000] [--repeat 30] [--json FILE]

The DNN of `recipes/main13.toml` on Avazu (400-400-400, dropout 0.1, L2 on the tables, clip at 10,
Adam), batch 4,096. All three start from the same weights; before they train, their predictions are
compared. Each repetition runs one step of each on the same batch, in an order that rotates, so that
a machine whose speed drifts slows all of them. FuxiCTR is given what its own loader hands over
(columns of int64), ours what ours does (a matrix of int32); both are ready before the clock starts.
All keep the memory that they free, as our workers do.

The bound is two more sides: the nine matrix products of the three layers alone, and one pass over
the bytes of the table that reads weights, gradient and two moments and writes all but the gradient.
`--threads 1 --clock cpu` counts the process's own CPU time: what to use on a machine that others
use.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import avazu_shape
import torch
from tabulate import tabulate
from torch import Tensor

# Ours first: it keeps FuxiCTR's preprocessing, and so ray, out of the import of its layers.
from prime_bench.assemble import build_backbone
from prime_bench.base.machine import keep_freed_memory
from prime_bench.data.schema import Schema
from prime_bench.integrations.fuxictr import load_checkpoint
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch, Rows
from prime_bench.training.device import compiled, fix_arithmetic
from prime_bench.training.optimizer import Optimizer, Penalty

# isort: split
import fuxictr_dnn

BATCH = 4096
CPU = torch.device("cpu")
OURS = ("plain", "compiled")
SIDES = ("FuxiCTR", *OURS, "products", "bytes")


def build(schema: Schema, folder: Path) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Of each side the model and its step; FuxiCTR's takes columns, ours a Batch."""
    settings = load_recipe("main13").backbones["DNN"]["avazu"]
    fields = fuxictr_dnn.feature_map(schema, folder)
    theirs = fuxictr_dnn.FuxiDNN(fields, settings, folder=folder)
    sides: dict[str, Any] = {"FuxiCTR": (theirs, theirs.train_step)}
    for name in OURS:
        backbone = build_backbone("DNN", schema, settings.plain(), seed=0)
        load_checkpoint(backbone, theirs.state_dict())
        arm = ArmModel(backbone)
        spec = TrainSpec(compile=name == "compiled")
        penalty = Penalty.of(settings)
        sides[name] = (arm, Optimizer(arm, spec, penalty=penalty).step)
    sides["products"] = (None, products(schema, settings))
    sides["bytes"] = (None, table_bytes(schema, settings))
    return sides


def products(schema: Schema, settings: DNNSettings) -> Callable[[Any], None]:
    """The forward product of each layer, and those for the gradients of its weight and input."""
    widths = [len(schema.fields) * settings.embedding_dim, *settings.hidden_units]
    layers = []
    for n_in, n_out in itertools.pairwise(widths):
        x, y, w = (torch.randn(n) for n in ((BATCH, n_in), (BATCH, n_out), (n_out, n_in)))
        layers.append((x, y, w, torch.empty_like(x), torch.empty_like(y), torch.empty_like(w)))

    def step(_inputs: object) -> None:
        for x, y, w, to_x, to_y, to_w in layers:
            torch.mm(x, w.t(), out=to_y)
            torch.mm(y, w, out=to_x)
            torch.mm(y.t(), x, out=to_w)

    return step


def table_bytes(schema: Schema, settings: DNNSettings) -> Callable[[Any], None]:
    """One compiled loop over W, S, m and v."""
    tensors = torch.ones(4, schema.shape.embedding_rows * settings.embedding_dim).unbind()

    def touch(w: Tensor, s: Tensor, m: Tensor, v: Tensor) -> None:
        w.add_(s)
        m.add_(s)
        v.add_(s)

    loop = compiled(touch)
    return lambda _inputs: loop(*tensors)


def check_equal(sides: dict[str, Any], columns: dict[str, Any], batch: Batch) -> None:
    """Raise where the sides are not the same function."""
    with torch.no_grad():
        theirs = sides["FuxiCTR"][0].eval()(columns)["y_pred"].squeeze(1)
        for name in OURS:
            torch.testing.assert_close(sides[name][0].eval()(batch.ids, batch.numerics), theirs)
    for name in ("FuxiCTR", *OURS):
        sides[name][0].train()


def measure(ids: str, options: argparse.Namespace) -> dict[str, Any]:
    """Median milliseconds of each side, and FuxiCTR's over ours as the median of the repetitions'
    ratios, and ours over the bound likewise.
    """
    schema = avazu_shape.schema_of(ids)
    n_batches = options.warmup + options.repeat
    split = avazu_shape.rows(schema, BATCH * n_batches, seed=1)
    batches = list(Rows(split, device=CPU).in_order(batch_size=BATCH))
    columns = [fuxictr_dnn.columns(schema, batch.ids, batch.labels) for batch in batches]
    with tempfile.TemporaryDirectory() as folder:
        sides = build(schema, Path(folder))
    check_equal(sides, columns[0], batches[0])
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    times_ms: dict[str, list[float]] = {name: [] for name in SIDES}
    for number, (batch, named) in enumerate(zip(batches, columns, strict=True)):
        for turn in range(len(SIDES)):
            name = SIDES[(number + turn) % len(SIDES)]
            inputs = named if name == "FuxiCTR" else batch
            start = clock()
            sides[name][1](inputs)
            times_ms[name].append((clock() - start) * 1e3)
    kept = {name: times[options.warmup :] for name, times in times_ms.items()}
    bound = [a + b for a, b in zip(kept["products"], kept["bytes"], strict=True)]
    return {
        "ids": ids,
        **{f"{name} ms": statistics.median(times) for name, times in kept.items()},
        **{f"FuxiCTR / {name}": ratio(kept["FuxiCTR"], kept[name]) for name in OURS},
        **{f"{name} / bound": ratio(kept[name], bound) for name in OURS},
    }


def ratio(one: list[float], other: list[float]) -> float:
    """Median of the repetitions' ratios."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Training step of ours against FuxiCTR's.")
    parser.add_argument("--ids", default="frappe,1050000,1540000", help="tables, with commas")
    parser.add_argument("--repeat", type=int, default=40, help="measured steps of each side")
    parser.add_argument("--warmup", type=int, default=5, help="steps that do not count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    fix_arithmetic(threads=options.threads)
    keep_freed_memory()
    found = [measure(ids, options) for ids in options.ids.split(",")]
    print(
        f"batch {BATCH}, {options.threads} threads, {options.clock} time, torch {torch.__version__}"
    )
    print(tabulate(found, headers="keys", floatfmt=".2f"))
    if options.json:
        table = {
            "schema": 1,
            "clock": options.clock,
            "threads": options.threads,
            "torch": torch.__version__,
        }
        options.json.write_text(json.dumps(table | {"rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
