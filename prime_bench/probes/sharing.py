"""What groups lose by sharing the Top-NN, as far as a few steps reach (Eq. 4).

From the shared weights the Top-NN alone is fine-tuned on one group's training rows, in evaluation
mode (no dropout, fixed batch statistics), by Adam; the loss is taken on the group's validation
rows, before and after. The optimum of Eq. 4 is further away, so this is a lower bound of what
training on the group alone could gain, and below 0 where the steps overfit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from prime_bench.data.table import Split
from prime_bench.plugins.attach import Arm
from prime_bench.probes.groups import Choice, Grouping, draw_rows
from prime_bench.probes.trained import batch_of
from prime_bench.settings.gradients import GradientsSettings, GroupLoss, Sharing
from prime_bench.settings.training import TrainSpec
from prime_bench.training.loss import batch_loss

EVALUATION_ROWS = 1 << 16
"""Validation rows of a group on which its losses are taken, at most."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The rows that a group learns from, and those on which its loss is taken."""

    train: Split
    train_grouping: Grouping
    valid: Split
    valid_grouping: Grouping


def sharing_of(
    arm: Arm,
    sides: Sides,
    *,
    choice: Choice,
    settings: GradientsSettings,
    spec: TrainSpec,
    seed: int,
) -> Sharing:
    """The loss of sharing over the chosen groups, weighed by their validation rows."""
    total = sum(size.rows for size in choice.groups)
    groups = []
    for code, size in zip(choice.codes, choice.groups, strict=True):
        n_rows = settings.sharing_steps * spec.batch_size
        learnt = draw_rows(sides.train_grouping, code, n=n_rows, seed=seed)
        judged = draw_rows(sides.valid_grouping, code, n=EVALUATION_ROWS, seed=seed)
        shared = own = _loss(arm, sides.valid, judged, spec=spec)
        if len(learnt):
            with _put_back(arm):
                _fine_tune(arm, sides.train, learnt, settings=settings, spec=spec)
                own = _loss(arm, sides.valid, judged, spec=spec)
        share = size.rows / total
        groups.append(GroupLoss(name=size.name, share=share, shared=shared, own=own))
    expected = sum(group.share * (group.shared - group.own) for group in groups)
    return Sharing(steps=settings.sharing_steps, groups=groups, expected=expected)


@contextmanager
def _put_back(arm: Arm) -> Iterator[None]:
    """Afterwards the Top-NN's weights are as they were."""
    parameters = _top_parameters(arm)
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)


def _top_parameters(arm: Arm) -> list[nn.Parameter]:
    return [arm.backbone.get_parameter(name) for name in arm.backbone.top_parameters]


def _fine_tune(
    arm: Arm, split: Split, rows: np.ndarray, *, settings: GradientsSettings, spec: TrainSpec
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
def _loss(arm: Arm, split: Split, rows: np.ndarray, *, spec: TrainSpec) -> float:
    """Mean BCE over the rows."""
    device = next(arm.parameters()).device
    total = 0.0
    for part in np.array_split(rows, -(-len(rows) // spec.batch_size)):
        loss = batch_loss(arm, batch_of(split, part, device=device), kind=spec.loss)
        total += float(loss) * len(part)
    return total / len(rows)
