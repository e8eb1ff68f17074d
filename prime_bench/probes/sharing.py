"""What groups of rows lose by sharing the Top-NN (Eq. 4), as far as a few steps of fine-tuning show
it.

Starting at the shared weights, Adam fine-tunes the Top-NN alone on one half of a group's validation
rows, in evaluation mode (no dropout, fixed batch statistics). The loss of the other half is taken
before and after. Train rows are unsuitable, because their embeddings have been fitted to their
labels. The optimum of Eq. 4 would take more steps. Part of the gain comes from training on more
rows, whatever the group; random groups (`null_labels`) show how much.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from prime_bench.data.table import Split
from prime_bench.findings import GroupLoss, Sharing
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.arms import batch_of
from prime_bench.probes.groups import ChosenGroups, Grouping, draw_rows
from prime_bench.settings.probes import GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.optimizer import batch_loss

EVALUATION_ROWS = 1 << 16
"""Maximum number of rows of a group on which its losses are taken."""


def sharing_of(
    arm: ArmModel,
    split: Split,
    grouping: Grouping,
    choice: ChosenGroups,
    *,
    settings: GradientsSettings,
    spec: TrainSpec,
    seed: int,
) -> Sharing:
    """The loss of sharing of each chosen group of a split, and its mean weighted by rows."""
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
    """Restore the Top-NN's weights on leaving the context."""
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
    """Train the Top-NN's weights for `sharing_steps` steps on the rows, starting over at the end of
    the rows.
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
