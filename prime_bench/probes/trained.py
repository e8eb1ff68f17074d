"""The arm that a training run has left behind, as a measurement reads it."""

from pathlib import Path

import numpy as np
import torch

from prime_bench.assemble import build_arm
from prime_bench.base.errors import DataError
from prime_bench.data.schema import Schema
from prime_bench.data.table import Split
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.store.runs import CHECKPOINT, Runs
from prime_bench.training.batches import Batch
from prime_bench.training.checkpoint import load_weights


def load_trained(
    request: JobRequest, job: ResolvedJob, schema: Schema, *, device: torch.device
) -> ArmModel:
    """The arm with the weights that its training run kept, in evaluation mode, on `device`; none of
    them asks for a gradient.

    Raises DataError where the run has no record, or its weights cannot be read.
    """
    trained, runs = job.job.trained.id, Runs(Path(request.runs))
    if not runs.done(trained):
        raise DataError(
            f"{runs.path(trained)}: the run that trains this arm has no record",
            hint="run the recipe again: it trains what it measures",
        )
    arm = build_arm(job, schema).arm
    arm.load_state_dict(load_weights(runs.path(trained) / CHECKPOINT))
    return arm.to(device).eval().requires_grad_(False)


def batch_of(split: Split, rows: np.ndarray, *, device: torch.device) -> Batch:
    """The rows (B,) of a split, in that order, on the device."""
    arrays = (split.ids, split.numerics, split.labels)
    return Batch(*(torch.from_numpy(array.take(rows, axis=0)).to(device) for array in arrays))
