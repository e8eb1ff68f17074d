"""One optimiser step by FuxiCTR's rules (fidelity 12, 13): binary cross-entropy (BCE), L2 of all
rows inside the clipped gradient, Adam.

    G = gradient of the loss + l2 W for every parameter under a penalty, all rows of a table
    W <- Adam with min(1, max_norm / (|G| + 1e-6)) G,    |G| over all parameters together

FuxiCTR adds (l2/2) ||W||^2 of every table to the loss; l2 W is its gradient. Adam's `weight_decay`
would differ: it is applied after the clip. Embedding tables are updated by `embedding_adam`, all
other parameters by torch's fused Adam.

A step has a part on the host (`begin_step`) and one on the device (`step_on_device`). The latter
reads and writes the same tensors in each step, and no Python number that changes other than the
learning rate, so that it can be a CUDA graph (`training.graph`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.plugins.attach import ArmModel
from prime_bench.settings.interface import BackboneSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch
from prime_bench.training.device import compiled, leave_out, require_compiler
from prime_bench.training.embedding_adam import (
    TrainedTable,
    TrainedTables,
    compiled_pass,
    fused_adam,
    in_blocks,
)

_NORM_MARGIN = 1e-6  # torch's clip_grad_norm_ has it


def batch_loss(model: ArmModel, batch: Batch, *, kind: Literal["probability", "logit"]) -> Tensor:
    """Mean binary cross-entropy of a batch (fidelity 13); `kind` is `TrainSpec.loss`."""
    if kind == "logit":
        log_p, log_not_p = model.log_probabilities(batch.ids, batch.numerics)
        return -torch.where(batch.labels.bool(), log_p, log_not_p).mean()
    p = model(batch.ids, batch.numerics)
    # FuxiCTR's loss, on purpose: BCE of the float32 probability, logs clamped at -100. A saturated
    # sigmoid has no gradient, which is part of what the paper's Dense runs on raw Criteo numerics
    # show.
    # The kernel raises on NaN, or aborts the CUDA context, so NaN is replaced here. The backward
    # pass still turns every weight into NaN, and the next validation reports it.
    return binary_cross_entropy(torch.nan_to_num(p, nan=0.5), batch.labels.to(p.dtype))


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """L2 factors: (factor/2) ||W||^2 of all rows is added to the loss of each step."""

    embedding: float
    """Factor of the embedding tables, and of the weights of numeric fields."""
    network: float
    """Factor of all other parameters, those of a plug-in included."""

    @classmethod
    def of(cls, backbone: BackboneSettings) -> "Penalty":
        """The factors that a backbone's settings name."""
        return cls(embedding=backbone.embedding_l2, network=backbone.network_l2)


class OptimizerState(TypedDict):
    """State of an `Optimizer` between two steps, weights and buffers not included."""

    steps: int
    """Number of steps so far."""
    learning_rate: float
    """Adam's rate."""
    first: list[Tensor]
    """First moments of the parameters that are no embedding table."""
    second: list[Tensor]
    """Their second moments."""
    counts: Tensor
    """(parameters,): the number of steps that each of them has taken."""
    tables: list[dict[str, Tensor]]
    """`TrainedTable.state_dict()` of each embedding table."""


class Optimizer:
    """Updates a model's parameters. No method waits for the device.

    With `spec.compile`, batches that have as many rows as the first one run compiled; others, such
    as the last one of an epoch, do not. Raises EnvironmentFault if torch.compile does not work.
    """

    def __init__(self, model: ArmModel, spec: TrainSpec, *, penalty: Penalty) -> None:
        self.model = model
        self._loss, self._max_norm = spec.loss, spec.max_gradient_norm
        self.device = next(model.parameters()).device
        """The device of the model."""
        self._compiled, table_pass = self._losses, in_blocks
        if spec.compile:
            require_compiler(self.device)
            leave_out(model.plugin)
            self._compiled = compiled(self._losses)
            table_pass = compiled_pass(self.device)
        self._compiled_rows: int | None = None
        factor = {id(p): penalty.embedding for p in model.embedding_parameters()}
        factor |= {id(p): penalty.network for p in model.network_parameters()}
        self._tables = [
            TrainedTable(module, l2=factor[id(module.table)], table_pass=table_pass)
            for module in model.modules()
            if isinstance(module, FieldEmbedding)
            and module.table is not None
            and module.table.requires_grad
        ]
        self._groups = TrainedTables.grouped(self._tables)
        tables = {id(table.parameter) for table in self._tables}
        self._others = [p for p in model.parameters() if p.requires_grad and id(p) not in tables]
        self._penalties = [(factor[id(p)], p) for p in self._others if factor[id(p)] > 0]
        self._first, self._second = ([torch.zeros_like(p) for p in self._others] for _ in "mv")
        # Adam's count of steps: of each parameter, since one without a gradient takes no step, and
        # of the tables, which take every step.
        self._counts = torch.zeros(len(self._others), device=self.device)
        self._count = torch.zeros((), device=self.device)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        self._learning_rate = spec.learning_rate
        self.steps = 0
        """Number of steps so far."""
        self.version = 0
        """Changes whenever `step_on_device` would compute something else on the same tensors."""

    @property
    def learning_rate(self) -> float:
        """Adam's learning rate. A graph of the step has the old one: `version` counts changes."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if value != self._learning_rate:
            self._learning_rate = value
            self.version += 1

    def step(self, batch: Batch) -> Tensor:
        """Update on one batch, in train mode. Returns the batch's mean cross-entropy on the device,
        without L2 and without a plug-in's auxiliary loss.
        """
        self.begin_step(len(batch.labels))
        return self.step_on_device(batch)

    def begin_step(self, n_rows: int) -> None:
        """Do what the host does in a step on a batch of `n_rows` rows."""
        self.steps += 1
        if self.model.plugin is not None:
            self.model.plugin.prepare_batch(n_rows)

    def step_on_device(self, batch: Batch) -> Tensor:
        """Do the rest of a step, and return what `step` returns."""
        for parameter in self._others:
            parameter.grad = None
        for group in self._groups:
            group.look_up(batch.ids)
        loss, auxiliary = self._chosen(batch)(batch)
        if self.model.plugin is not None:
            self.model.plugin.update_buffers()
        torch.autograd.backward(loss if auxiliary is None else loss + auxiliary)
        self._add_penalties()
        self._update(self._clip())
        loss = loss.detach()
        self._loss_sum += loss
        return loss

    def take_loss(self) -> Tensor:
        """The sum of the losses of all batches since the last call, a float64 scalar on the
        device.
        """
        taken = self._loss_sum.clone()
        self._loss_sum.zero_()
        return taken

    def tensors(self) -> list[Tensor]:
        """Every tensor that a step changes, beside the model's parameters and buffers."""
        moments = [*self._first, *self._second, self._counts, self._count, self._loss_sum]
        return moments + [part for table in self._tables for part in table.state_dict().values()]

    def state_dict(self) -> OptimizerState:
        """Everything that the next step depends on beside weights, buffers and torch's global
        generators. Tensors are not copied.
        """
        return {
            "steps": self.steps,
            "learning_rate": self.learning_rate,
            "first": self._first,
            "second": self._second,
            "counts": self._counts,
            "tables": [table.state_dict() for table in self._tables],
        }

    def load_state_dict(self, state: OptimizerState) -> None:
        """Continue from `state`, whose tensors may be on another device. The model's weights are
        loaded elsewhere.
        """
        self.steps, self.learning_rate = state["steps"], state["learning_rate"]
        self._count.fill_(self.steps)
        self._counts.copy_(state["counts"])
        for name, own in (("first", self._first), ("second", self._second)):
            for mine, saved in zip(own, state[name], strict=True):  # type: ignore[literal-required]
                mine.copy_(saved)
        for table, saved in zip(self._tables, state["tables"], strict=True):
            table.load_state_dict(saved)

    def _chosen(self, batch: Batch) -> Callable[[Batch], tuple[Tensor, Tensor | None]]:
        """`_losses`, compiled if the batch has as many rows as the first one."""
        if self._compiled_rows is None:
            self._compiled_rows = len(batch.labels)
        return self._compiled if len(batch.labels) == self._compiled_rows else self._losses

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The batch's cross-entropy, and the plug-in's auxiliary loss."""
        loss = batch_loss(self.model, batch, kind=self._loss)
        return loss, self.model.auxiliary_loss()

    def _add_penalties(self) -> None:
        for _, parameter in self._penalties:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for factor in {factor for factor, _ in self._penalties}:
            group = [p for other, p in self._penalties if other == factor]
            gradients = [p.grad for p in group if p.grad is not None]
            torch._foreach_add_(gradients, [p.detach() for p in group], alpha=factor)

    def _clip(self) -> Tensor:
        """min(1, max_norm / (|G| + 1e-6)), a float64 scalar; NaN where a gradient is."""
        gradients = [p.grad for p in self._others if p.grad is not None]
        squares = [square for group in self._groups for square in group.collect()]
        parts = [torch.stack(squares)] if squares else []
        if gradients:
            parts.append(torch.stack(torch._foreach_norm(gradients)).double().square())
        # Rounding can make a sum of differences slightly negative.
        norm = torch.cat(parts).sum().clamp(min=0).sqrt()
        return (self._max_norm / (norm + _NORM_MARGIN)).clamp(max=1.0)

    def _update(self, clip: Tensor) -> None:
        self._count += 1
        for group in self._groups:
            group.update(clip, count=self._count, learning_rate=self.learning_rate)
        moved = [place for place, p in enumerate(self._others) if p.grad is not None]
        gradients = [p.grad for p in self._others if p.grad is not None]
        if not gradients:
            return
        torch._foreach_mul_(gradients, clip.to(gradients[0].dtype))
        counts = self._counts.unbind()
        fused_adam(
            [self._others[place].detach() for place in moved],
            gradients,
            [self._first[place] for place in moved],
            [self._second[place] for place in moved],
            [counts[place] for place in moved],
            learning_rate=self.learning_rate,
        )
