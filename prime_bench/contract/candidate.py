"""The arm or backbone that is checked, and the functions from which all rules are made.

Models are built as the jobs of a recipe build them, with default settings, on the CPU.

Shapes: B rows, C categorical and K numeric fields.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from prime_bench.assemble import build_arm
from prime_bench.base.errors import UsageError
from prime_bench.catalog import (
    BACKBONES,
    DENSE,
    BackboneEntry,
    PluginEntry,
    find_backbone,
    find_plugin,
)
from prime_bench.data.schema import Field, Schema
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import BackboneSettings
from prime_bench.settings.training import TrainSpec

Inputs = tuple[Tensor, Tensor]
ROWS, STEPS, SEED = 16, 4, 2021
_SMALL = {"embedding_dim": 4, "hidden_units": [8, 6], "net_dropout": 0.25}
"""Settings of the DNN on which an arm is checked. It has dropout, whose masks an arm must not
change."""
SCHEMAS = (
    Schema(
        fields=[
            Field(name="C1", kind="categorical", vocabulary_size=7),
            Field(name="I1", kind="numeric"),
            Field(name="C2", kind="categorical", vocabulary_size=5),
            Field(name="C3", kind="categorical", vocabulary_size=11),
        ]
    ),
    Schema(
        fields=[
            Field(name=f"C{number}", kind="categorical", vocabulary_size=3 + number)
            for number in range(6)
        ]
    ),
)
"""Two schemas, so that a formula cannot be right by chance."""


class RuleBroken(Exception):
    """A rule is broken; the message says how."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An arm on a backbone, or a backbone with its dense arm."""

    is_backbone: bool
    """Whether the backbone is checked, and not the arm."""
    backbone: str
    backbone_settings: BackboneSettings
    backbone_entry: BackboneEntry
    plugin: str
    plugin_entry: PluginEntry

    def build(
        self, *, plugin: str | None = None, schema: Schema = SCHEMAS[0], seed: int = SEED
    ) -> ArmModel:
        """Build the arm in train mode, with another plug-in if one is named."""
        name = plugin or self.plugin
        entry = find_plugin(name)
        codes = {self.backbone: self.backbone_entry.code, name: entry.code}
        job = Job(
            fingerprint="",
            backbone=self.backbone,
            backbone_settings=self.backbone_settings.plain(),
            plugin=name,
            plugin_settings=entry.settings().plain(),
            training=TrainSpec(),
            seed=seed,
            code={of: code for of, code in codes.items() if code is not None},
        )
        return build_arm(job.resolve(), schema).arm


def find_candidate(name: str) -> Candidate:
    """Find the arm or backbone `name`: a bundled one, an entry point, or `module:Class`.

    An arm is checked on a small DNN. If it does not fit a DNN, it is checked on the first bundled
    backbone that it fits. Raises UsageError for an unknown name, for settings without defaults, and
    for an arm that fits no bundled backbone.
    """
    backbone, plugin = "DNN", name
    try:
        plugin_entry = find_plugin(name)
    except UsageError as no_plugin:
        try:
            find_backbone(name)
        except UsageError as error:
            if error.message == no_plugin.message:
                raise
            raise UsageError(f"{no_plugin.message}\n{error.message}") from None
        backbone, plugin, plugin_entry = name, DENSE, find_plugin(DENSE)
    entry = find_backbone(backbone)
    keys: dict[str, object] = {"embedding_dim": 4} if backbone == name else _SMALL
    settings = entry.settings.parse(keys, where=backbone)
    arm = plugin_entry.settings.parse({}, where=f"{plugin}, default settings")
    for other in BACKBONES if arm.misfit(settings) is not None else ():
        fitting = BACKBONES[other].settings.parse({"embedding_dim": 4}, where=other)
        if arm.misfit(fitting) is None:
            backbone, entry, settings = other, BACKBONES[other], fitting
            break
    if fault := arm.misfit(settings):
        raise UsageError(f"{name}: it fits no bundled backbone: {fault}")
    return Candidate(
        is_backbone=backbone == name,
        backbone=backbone,
        backbone_settings=settings,
        backbone_entry=entry,
        plugin=plugin,
        plugin_entry=plugin_entry,
    )


def need(condition: bool, fault: str) -> None:
    """Raise RuleBroken with `fault` unless the condition holds."""
    if not condition:
        raise RuleBroken(fault)


def batch(schema: Schema, n_rows: int) -> Inputs:
    """A batch of random rows: ids (B, C) int32 and values (B, K) float32."""
    rng = np.random.default_rng(n_rows)
    sizes = schema.shape.vocabulary_sizes
    ids = np.stack([rng.integers(1, size, n_rows) for size in sizes], axis=1).astype(np.int32)
    numerics = rng.normal(size=(n_rows, schema.shape.n_numeric)).astype(np.float32)
    return torch.from_numpy(ids), torch.from_numpy(numerics)


@contextmanager
def streams_untouched(what: str) -> Iterator[None]:
    """Raise RuleBroken if the block draws from a global random generator.

    `what` names the block in the message.
    """
    before = (torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate())
    yield
    after = (torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate())
    drawn = {
        "torch's": not torch.equal(before[0], after[0]),
        "NumPy's": repr(before[1]) != repr(after[1]),
        "Python's": before[2] != after[2],
    }
    for owner, changed in drawn.items():
        need(not changed, f"{what} draws from {owner} global generator; draw from your own")


def train(arm: ArmModel) -> None:
    """Train for a few steps of Adam on one batch."""
    inputs = batch(SCHEMAS[0], ROWS)
    labels = torch.arange(ROWS).remainder(2).float()
    optimizer = torch.optim.Adam(arm.parameters(), lr=1e-2)
    arm.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy(arm(*inputs), labels)
        extra = arm.auxiliary_loss()
        (loss if extra is None else loss + extra).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
