"""What groups lose by sharing the Top-NN, as far as a few steps reach (Eq. 4).

From the shared weights the Top-NN alone is fine-tuned by Adam on one half of a group's validation
rows, in evaluation mode (no dropout, fixed batch statistics); the loss is taken on the other half,
before and after. Training rows would not do: their embeddings know their labels. The optimum of Eq.
4 is further away, and some of the drop comes from any further rows at all, which a random label of
groups shows.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from prime_bench.data.table import Split
from prime_bench.findings import GroupLoss, Sharing
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.groups import Choice, Grouping, draw_rows
from prime_bench.probes.trained import batch_of
from prime_bench.settings.probes import GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.loss import batch_loss

EVALUATION_ROWS = 1 << 16
"""Rows of a group on which its losses are taken, at most."""


def sharing_of(
    arm: ArmModel,
    split: Split,
    grouping: Grouping,
    choice: Choice,
    *,
    settings: GradientsSettings,
    spec: TrainSpec,
    seed: int,
) -> Sharing:
    """The loss of sharing over the chosen groups of a split, weighed by their rows."""
    total = sum(size.rows for size in choice.groups)
    groups = []
    for code, size in zip(choice.codes, choice.groups, strict=True):
        learnt, judged = np.array_split(draw_rows(grouping, code, seed=seed), 2)
        judged = judged[:EVALUATION_ROWS]
        shared = _loss(arm, split, judged, spec=spec)
        with _put_back(arm):
            _fine_tune(arm, split, learnt, settings=settings, spec=spec)
            own = _loss(arm, split, judged, spec=spec)
        share = size.rows / total
        groups.append(GroupLoss(name=size.name, share=share, shared=shared, own=own))
    expected = sum(group.share * (group.shared - group.own) for group in groups)
    return Sharing(steps=settings.sharing_steps, groups=groups, expected=expected)


@contextmanager
def _put_back(arm: ArmModel) -> Iterator[None]:
    """Afterwards the Top-NN's weights are as they were."""
    parameters = _top_parameters(arm)
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)


def _top_parameters(arm: ArmModel) -> list[nn.Parameter]:
    return [arm.backbone.get_parameter(name) for name in arm.backbone.top_parameters]


def _fine_tune(
    arm: ArmModel, split: Split, rows: np.ndarray, *, settings: GradientsSettings, spec: TrainSpec
) -> None:
    """`sharing_steps` steps of the Top-NN's weights on the rows, from their start again where they
    are too few.
    """
    parameters = [parameter.requires_grad_() for parameter in _top_parameters(arm)]
    adam = torch.optim.Adam(parameters, lr=settings.sharing_learning_rate)
    device = parameters[0].device
    for step in range(settings.sharing_steps):
        positions = np.arange(step * spec.batch_size, (step + 1) * spec.batch_size)
        batch = batch_of(split, rows.take(positions[: len(rows)], mode="wrap"), device=device)
        adam.zero_grad(set_to_none=True)
        torch.autograd.backward(batch_loss(arm, batch, kind=spec.loss))
        adam.step()


@torch.no_grad()
def _loss(arm: ArmModel, split: Split, rows: np.ndarray, *, spec: TrainSpec) -> float:
    """Mean BCE over the rows."""
    device = next(arm.parameters()).device
    total = 0.0
    for part in np.array_split(rows, -(-len(rows) // spec.batch_size)):
        loss = batch_loss(arm, batch_of(split, part, device=device), kind=spec.loss)
        total += float(loss) * len(part)
    return total / len(rows)
