"""The arms that probes measure: with initial or trained weights, real rows for them to read, and
their forward pass in each form in which a deployment could run it.

Shapes: B rows of a batch, N rows of a pool.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prime_bench.assemble import build_arm
from prime_bench.base.errors import DataError
from prime_bench.base.streams import derive
from prime_bench.data.schema import Schema
from prime_bench.data.table import Split
from prime_bench.findings import Form
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.settings.probes import CostArm
from prime_bench.store.runs import CHECKPOINT, Runs
from prime_bench.training.batches import Batch, row_order
from prime_bench.training.checkpoint import load_weights
from prime_bench.training.device import compiled
from prime_bench.training.graph import GraphedForward, GraphedStep, capture_on
from prime_bench.training.optimizer import Optimizer, Penalty


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """An arm in training: the model and its optimiser."""

    arm: ArmModel
    optimizer: Optimizer
    step: GraphedStep
    """The step of the optimizer as a run does it: a graph, on a device that has them."""


def job_of(job: ResolvedJob, arm: CostArm) -> ResolvedJob:
    """The same job with another arm."""
    changes = {"plugin": arm.plugin, "plugin_settings": arm.settings}
    return job.job.model_copy(update=changes).resolve()


def trainer_of(
    job: ResolvedJob, schema: Schema, *, device: torch.device, dtype: torch.dtype = torch.float32
) -> Trainer:
    """Build the job's arm with its initial weights, in train mode, on `device`.

    A run is in float32; `scripts/gpu_bits.py` compares devices in float64 too.
    """
    arm = build_arm(job, schema).arm.to(device, dtype).train()
    torch.manual_seed(derive(job.seed, "dropout"))
    optimizer = Optimizer(arm, job.training, penalty=Penalty.of(job.backbone))
    step = GraphedStep(optimizer, capture=capture_on(device))
    return Trainer(arm=arm, optimizer=optimizer, step=step)


class Pool:
    """N rows of a split on a device, in the row order of the seed's first epoch. A split with fewer
    rows is read several times.
    """

    def __init__(self, split: Split, *, n_rows: int, seed: int, device: torch.device) -> None:
        rows = np.resize(_first_order(len(split), seed), n_rows)
        self._columns = [
            torch.from_numpy(array.take(rows, axis=0)).to(device)
            for array in (split.ids, split.numerics, split.labels)
        ]
        self.distinct_rows = min(len(split), n_rows)
        """Number of different rows of the split among the N."""

    def batches(self, *, batch_size: int, n: int) -> list[Batch]:
        """Cut `n` batches of B = `batch_size` <= N rows, starting over at the end of the pool."""
        parts = [torch.split(column, batch_size) for column in self._columns]
        n_whole = len(self._columns[0]) // batch_size
        return [Batch(*(part[number % n_whole] for part in parts)) for number in range(n)]


@functools.lru_cache(maxsize=1)  # of a published table it takes seconds, and each backbone asks
def _first_order(n_rows: int, seed: int) -> np.ndarray:
    """The row order of the seed's first epoch (N,)."""
    order: np.ndarray = row_order(n_rows, seed=seed, epoch=1).numpy()
    return order


def load_trained(
    request: JobRequest, job: ResolvedJob, schema: Schema, *, device: torch.device
) -> ArmModel:
    """Build the job's arm with the weights of its training run, in evaluation mode, on `device`. No
    parameter requires a gradient.

    Raises DataError if the training run has no record or its weights cannot be read.
    """
    trained, runs = job.job.training_run.id, Runs(Path(request.runs))
    if not runs.done(trained):
        raise DataError(
            f"{runs.path(trained)}: the run that trains this arm has no record",
            hint="run the recipe again: it trains the arms that it measures",
        )
    arm = build_arm(job, schema).arm
    arm.load_state_dict(load_weights(runs.path(trained) / CHECKPOINT))
    return arm.to(device).eval().requires_grad_(False)


def batch_of(split: Split, rows: np.ndarray, *, device: torch.device) -> Batch:
    """Gather the rows with the indices `rows` (B,) of a split, in that order, on the device."""
    arrays = (split.ids, split.numerics, split.labels)
    return Batch(*(torch.from_numpy(array.take(rows, axis=0)).to(device) for array in arrays))


Forward = Callable[[Batch], Tensor]
"""Batch -> click probabilities (B,). The next call may overwrite the tensor."""


def forms_on(device: torch.device, *, with_compiled: bool) -> tuple[Form, ...]:
    """The forms of a forward pass that a device supports, `torch.compile` only on request: it takes
    minutes.
    """
    on_device: tuple[Form, ...] = ("eager", "graph") if device.type == "cuda" else ("eager",)
    return (*on_device, "compiled") if with_compiled else on_device


def forward_of(arm: ArmModel, form: Form, *, like: Batch) -> Forward:
    """The arm's forward pass in a form, for batches with as many rows as `like`. Call it in
    evaluation mode and under `torch.inference_mode`. On CUDA the compiled form is a graph as well.

    Raises NotCaptured or RuntimeError if the arm cannot be captured.
    """
    run: Any = compiled(arm) if form == "compiled" else arm
    capture = capture_on(like.ids.device)
    if form != "eager" and capture is not None:
        return GraphedForward(run, like, capture=capture)
    return lambda batch: run(batch.ids, batch.numerics)
