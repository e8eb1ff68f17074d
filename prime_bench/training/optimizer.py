"""One optimiser step by FuxiCTR's rules (fidelity 12, 13): BCE, dense L2 inside the clipped
gradient, Adam.

FuxiCTR adds (l2/2) ||W||^2 of every table to the loss; its gradient l2 W is added here to `.grad`
directly, which is the same number without the walk over the tables in the forward pass. Adam's
`weight_decay` would not be: it comes after the clip.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prime_bench.plugins.attach import Arm
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """L2 factors: (factor/2) ||W||^2 of all rows joins the loss of each step."""

    embedding: float
    network: float


class Optimizer:
    """Steps a model's parameters. Nothing here waits for the device."""

    def __init__(self, model: Arm, spec: TrainSpec, *, penalty: Penalty) -> None:
        self._model = model
        self._loss = spec.loss
        self._max_norm = spec.max_gradient_norm
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._penalties = [
            (factor, [p for p in group if p.requires_grad])
            for factor, group in (
                (penalty.embedding, model.embedding_parameters()),
                (penalty.network, model.network_parameters()),
            )
            if factor > 0
        ]
        self.steps = 0
        """Steps so far."""
        # Fused Adam is one pass over a table of tens of millions of numbers in place of a dozen.
        self._adam = torch.optim.Adam(self._parameters, lr=spec.learning_rate, fused=True)

    @property
    def learning_rate(self) -> float:
        """Adam's rate."""
        return float(self._adam.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._adam.param_groups[0]["lr"] = value

    def step(self, batch: Batch) -> Tensor:
        """Update on one batch, in train mode; its mean cross-entropy, without L2 and a plug-in's
        auxiliary loss, stays on the device.
        """
        loss = batch_loss(self._model, batch, kind=self._loss)
        auxiliary = self._model.auxiliary_loss()
        self._adam.zero_grad(set_to_none=True)
        torch.autograd.backward(loss if auxiliary is None else loss + auxiliary)
        self._add_penalties()
        nn.utils.clip_grad_norm_(self._parameters, self._max_norm)
        self._adam.step()
        self.steps += 1
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on beside weights, buffers and torch's global generators:
        tensors and numbers, for `torch.save`. The tensors are the optimizer's own, no copies.
        """
        return {"steps": self.steps, "adam": self._adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the optimizer that gave `state` would; the model has its weights already.

        `state` may lie on another device. The learning rate is part of it.
        """
        self.steps = state["steps"]
        self._adam.load_state_dict(dict(state["adam"]))

    def _add_penalties(self) -> None:
        for factor, group in self._penalties:
            for parameter in group:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            gradients = [p.grad for p in group if p.grad is not None]
            torch._foreach_add_(gradients, [p.detach() for p in group], alpha=factor)


def batch_loss(model: Arm, batch: Batch, *, kind: Literal["probability", "logit"]) -> Tensor:
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
    return nn.functional.binary_cross_entropy(
        torch.nan_to_num(p, nan=0.5), batch.labels.to(p.dtype)
    )
