"""An arm on a device, with its optimiser, and real rows to feed it."""

from dataclasses import dataclass

import numpy as np
import torch

from prime_bench.assemble import build_arm
from prime_bench.base.streams import derive
from prime_bench.data.schema import Schema
from prime_bench.data.table import Split
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.job import ResolvedJob
from prime_bench.settings.probes import CostArm
from prime_bench.training.batches import Batch, row_order
from prime_bench.training.optimizer import Optimizer, Penalty


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """An arm and its optimiser."""

    arm: ArmModel
    optimizer: Optimizer


def job_of(job: ResolvedJob, arm: CostArm) -> ResolvedJob:
    """The same job of another arm."""
    changes = {"plugin": arm.plugin, "plugin_settings": arm.settings}
    return job.job.model_copy(update=changes).resolve()


def trainer_of(
    job: ResolvedJob, schema: Schema, *, device: torch.device, dtype: torch.dtype = torch.float32
) -> Trainer:
    """The job's arm with its initial weights, in train mode, on `device`."""
    arm = build_arm(job, schema).arm.to(device, dtype).train()
    torch.manual_seed(derive(job.seed, "dropout"))
    optimizer = Optimizer(arm, job.training, penalty=Penalty.of(job.backbone))
    return Trainer(arm=arm, optimizer=optimizer)


class Pool:
    """N rows of a split on a device, in the order of the seed's first epoch; a split that has fewer
    is read again from its start.
    """

    def __init__(self, split: Split, *, n_rows: int, seed: int, device: torch.device) -> None:
        order = row_order(len(split), seed=seed, epoch=1).numpy()
        rows = np.resize(order, n_rows)
        self._columns = [
            torch.from_numpy(array.take(rows, axis=0)).to(device)
            for array in (split.ids, split.numerics, split.labels)
        ]
        self.distinct_rows = min(len(split), n_rows)
        """Rows of the split that are here."""

    def batches(self, *, batch_size: int, n: int) -> list[Batch]:
        """`n` batches of B = `batch_size` <= N rows, from the pool's start again where it has
        fewer.
        """
        parts = [torch.split(column, batch_size) for column in self._columns]
        n_whole = len(self._columns[0]) // batch_size
        return [Batch(*(part[number % n_whole] for part in parts)) for number in range(n)]
