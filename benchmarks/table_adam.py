"""Our Adam of embedding tables against torch's, as one step of the same DNN on the same batches.

    python benchmarks/table_adam.py [--ids 1540000] [--repeat 30] [--threads 2] [--clock wall]

The DNN of `recipes/main13.toml` on Avazu (400-400-400, dropout 0 so that the sides can be compared,
L2 on the tables, clip at 10), batch 4,096. Sides:

    ours            rows looked up, gradient summed by rows, one pass over the table
    Adam            torch.optim.Adam(fused=True) on the dense gradient of `F.embedding`, L2 added to
                    it, clip_grad_norm_: the textbook way
    Adam, index_add the same with the look-up of our embedding layer, whose gradient is cheaper
    SparseAdam      torch.optim.SparseAdam on a sparse gradient, without L2, Adam(fused=True) else
    ours compiled, Adam compiled (with `--compile`): the first and the third with loss and network
                    compiled; ours with the pass over the table compiled as well

`--part table` leaves the network out: the loss is then a linear function of the looked-up rows.
Each repetition runs one step of each side on the same batch, in an order that rotates. Prints the
median milliseconds of each, the median ratio to ours within a repetition, and how far the table's
weights are from those of `Adam` after all steps: the largest difference, and the share of rows that
differ by more than a thousandth of the learning rate. `--clock cpu` counts the process's own CPU
time: what to use on a machine that others use.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import avazu_shape
import torch
import torch.nn.functional as F
from tabulate import tabulate
from torch import Tensor, nn

from prime_bench.assemble import build_backbone
from prime_bench.backbones.embedding import FieldEmbedding, LookedUp
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch, Rows
from prime_bench.training.device import compiled, fix_arithmetic
from prime_bench.training.optimizer import Optimizer, Penalty, batch_loss

BATCH = 4096
MAX_NORM = 10.0
RATE = 1e-3
Step = Callable[[Batch], Any]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Our Adam of embedding tables against torch's.")
    parser.add_argument("--ids", type=int, default=1_540_000, help="ids of all fields")
    parser.add_argument("--repeat", type=int, default=30, help="measured steps of each side")
    parser.add_argument("--warmup", type=int, default=5, help="steps that do not count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--part", choices=["step", "table"], default="step")
    parser.add_argument("--compile", action="store_true", help="compiled sides as well")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    fix_arithmetic(threads=options.threads)
    schema = avazu_shape.schema(options.ids)
    table = dict(load_recipe("main13").backbones["DNN"]["avazu"] or {}) | {"net_dropout": 0.0}
    l2 = DNNSettings.parse(table, where="DNN").embedding_l2
    network = options.part == "step"
    makers: dict[str, Callable[[ArmModel], Step]] = {
        "ours": lambda arm: ours(arm, l2, compile=False),
        "Adam": lambda arm: dense(textbook(arm), l2),
        "Adam, index_add": lambda arm: dense(arm, l2),
        "SparseAdam": sparse,
    }
    if options.compile:
        makers |= {
            "ours compiled": lambda arm: ours(arm, l2, compile=True),
            "Adam compiled": lambda arm: dense(arm, l2, compile=True),
        }
    arms = {name: ArmModel(build_backbone("DNN", schema, table, seed=0)).train() for name in makers}
    if not network:
        for arm in arms.values():
            arm.backbone = TableAlone(embedding_of(arm))
    steps = {name: make(arms[name]) for name, make in makers.items()}
    n_batches = options.warmup + options.repeat
    rows = avazu_shape.rows(schema, BATCH * n_batches, seed=1)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    times_ms: dict[str, list[float]] = {name: [] for name in steps}
    for number, batch in enumerate(
        Rows(rows, device=torch.device("cpu")).in_order(batch_size=BATCH)
    ):
        for turn in range(len(steps)):
            name = list(steps)[(number + turn) % len(steps)]
            start = clock()
            steps[name](batch)
            times_ms[name].append((clock() - start) * 1e3)
    kept = {name: times[options.warmup :] for name, times in times_ms.items()}
    reference = table_of(arms["Adam"]).detach()
    found = []
    for name, times in kept.items():
        apart = (table_of(arms[name]).detach() - reference).abs().amax(dim=1)
        found.append(
            {
                "side": name,
                "ms": f"{statistics.median(times):.1f}",
                "over ours": statistics.median(
                    t / o for t, o in zip(times, kept["ours"], strict=True)
                ),
                "largest difference": f"{float(apart.max()):.0e}",
                "rows apart": f"{float((apart > RATE / 1000).float().mean()):.2%}",
            }
        )
    print(
        f"{options.part}, {options.ids:,} ids, batch {BATCH:,}, L2 {l2:g},"
        f" {options.threads} threads, {options.clock} time, torch {torch.__version__},"
        f" {options.repeat} steps"
    )
    print(tabulate(found, headers="keys", floatfmt=".2f", disable_numparse=[1, 3, 4]))


def embedding_of(arm: ArmModel) -> FieldEmbedding:
    """The one table of a DNN."""
    (embedding,) = [module for module in arm.modules() if isinstance(module, FieldEmbedding)]
    return embedding


def table_of(arm: ArmModel) -> nn.Parameter:
    """Its weights."""
    table = embedding_of(arm).table
    if table is None:
        raise ValueError("the schema has no categorical field")
    return table


class TableAlone(nn.Module):
    """A logit that is the mean of the looked-up rows: no network, so that the table is timed."""

    def __init__(self, embedding: FieldEmbedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """ids (B, C) -> (B,)."""
        return self.embedding(ids, numerics).mean(dim=(1, 2)) * self.weight

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Those under the L2 of tables."""
        return list(self.embedding.parameters())

    def network_parameters(self) -> list[nn.Parameter]:
        """All others."""
        return [self.weight]


def ours(arm: ArmModel, l2: float, *, compile: bool) -> Step:
    """The product's own optimizer."""
    penalty = Penalty(embedding=l2, network=0.0)
    return Optimizer(arm, TrainSpec(compile=compile), penalty=penalty).step


def textbook(arm: ArmModel) -> ArmModel:
    """The arm with torch's own look-up."""
    embedding = embedding_of(arm)
    table = table_of(arm)

    def forward(ids: Tensor, _numerics: Tensor) -> Tensor:
        return F.embedding(ids + embedding.offsets, table)

    embedding.forward = forward  # type: ignore[method-assign]
    return arm


def dense(arm: ArmModel, l2: float, *, compile: bool = False) -> Step:
    """With torch alone."""
    table = table_of(arm)
    adam = torch.optim.Adam(arm.parameters(), lr=RATE, fused=True)

    def loss_of(batch: Batch) -> Tensor:
        return batch_loss(arm, batch, kind="probability")

    chosen = compiled(loss_of) if compile else loss_of

    def step(batch: Batch) -> None:
        adam.zero_grad(set_to_none=True)
        chosen(batch).backward()
        if table.grad is None:
            raise ValueError("no gradient")
        table.grad.add_(table.detach(), alpha=l2)
        torch.nn.utils.clip_grad_norm_(arm.parameters(), MAX_NORM)
        adam.step()

    return step


def sparse(arm: ArmModel) -> Step:
    """Only the rows of the batch are updated, which is another rule: no L2, and m and v of the
    others do not decay.
    """
    embedding = embedding_of(arm)
    table = table_of(arm)
    others = [p for p in arm.parameters() if p is not table]
    adam = torch.optim.Adam(others, lr=RATE, fused=True)
    of_table = torch.optim.SparseAdam([table], lr=RATE)

    def step(batch: Batch) -> None:
        adam.zero_grad(set_to_none=True)
        places = (batch.ids + embedding.offsets).flatten()
        rows = table.detach().index_select(0, places).view(*batch.ids.shape, -1).requires_grad_()
        embedding.looked_up = LookedUp(batch.ids, rows)
        batch_loss(arm, batch, kind="probability").backward()
        embedding.looked_up = None
        if rows.grad is None:
            raise ValueError("no gradient")
        gradient: Tensor = torch.sparse_coo_tensor(
            places[None], rows.grad.flatten(0, 1), table.shape
        ).coalesce()
        squares = [p.grad.square().sum() for p in others if p.grad is not None]
        norm = torch.stack([*squares, gradient.values().square().sum()]).sum().sqrt()
        clip = (MAX_NORM / (norm + 1e-6)).clamp(max=1.0)
        for parameter in others:
            if parameter.grad is not None:
                parameter.grad.mul_(clip)
        table.grad = gradient * clip
        adam.step()
        of_table.step()
        table.grad = None

    return step


if __name__ == "__main__":
    main()
