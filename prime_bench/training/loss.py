"""The loss of a batch (fidelity 13)."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

from prime_bench.plugins.attach import ArmModel
from prime_bench.training.batches import Batch


def batch_loss(model: ArmModel, batch: Batch, *, kind: Literal["probability", "logit"]) -> Tensor:
    """Mean BCE of a batch; `kind` is TrainSpec.loss."""
    if kind == "logit":
        log_p, log_not_p = model.log_probabilities(batch.ids, batch.numerics)
        return -torch.where(batch.labels.bool(), log_p, log_not_p).mean()
    p = model(batch.ids, batch.numerics)
    # FuxiCTR's loss, on purpose: BCE of the float32 probability, logs clamped at -100. A saturated
    # sigmoid stops its own gradient, and that is part of what the paper's Dense runs on raw Criteo
    # numerics show.
    # On NaN the kernel raises, or aborts the CUDA context. Hiding a NaN from it hides nothing:
    # on the way back its row still turns every weight into NaN, and the next validation sees it.
    return binary_cross_entropy(torch.nan_to_num(p, nan=0.5), batch.labels.to(p.dtype))
