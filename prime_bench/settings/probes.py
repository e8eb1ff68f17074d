"""Settings of probes: jobs that measure a trained arm, or what an arm costs."""

from typing import Annotated, ClassVar, Literal

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.settings.interface import ArmSettings, BackboneSettings
from prime_bench.settings.plugins import PrimeConfig

PAPER_FIELDS = ("site_category", "app_category", "device_type", "hour")
"""The paper's semantic fields (section 4.2), by what a card says that its columns mean."""

Split = Literal["valid", "test"]
"""Rows that are measured; no model was trained on them."""
SemanticFields = Annotated[tuple[str, ...], pydantic.Strict(False)]


class ProbeSettings(Frozen):
    """Keys of a recipe's `[probe]`."""

    unit: ClassVar[Literal["arm", "group"]] = "arm"
    """What one job measures: an arm, or all arms of one data set, backbone and seed together."""
    reads_checkpoint: ClassVar[bool] = True
    """Whether a job needs the record and the weights of the job that trained its arm."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:  # noqa: ARG002
        """Why this arm on this backbone cannot be measured; None: it can."""
        return None


NULL_FIELD = "null_"
"""How the names of random labels start, which are measured as if they were fields."""


class GradientsSettings(ProbeSettings):
    """The paper's numbers are the defaults."""

    fields: SemanticFields = PAPER_FIELDS
    """Semantic fields whose values make the groups."""
    null_labels: int = pydantic.Field(0, ge=0)
    """Random labels of groups that no model sees, measured as fields `null_1`, ...: their gap is 0
    but for noise."""
    null_groups: int = pydantic.Field(4, ge=2)
    """Equally likely groups of each of them."""
    blocks: int = pydantic.Field(8, ge=1)
    """Disjoint blocks of rows a group."""
    positives_per_block: int = pydantic.Field(256, ge=1)
    """Clicks a block."""
    negatives_per_block: int = pydantic.Field(256, ge=1)
    """Rows without a click a block."""
    permutations: int = pydantic.Field(2000, ge=1)
    """Random groupings that reassign whole blocks."""
    example_permutations: int = pydantic.Field(100, ge=0)
    """Random groupings that reassign rows within each label; 0: this gap is not measured."""
    include_head: bool = False
    """Whether gaps with the output layer are measured as well where it is shared with another path
    (fidelity 36)."""
    sharing_steps: int = pydantic.Field(0, ge=0)
    """Steps of fine-tuning the Top-NN on one group alone, for the loss of sharing (Eq. 4); 0: it is
    not measured."""
    sharing_learning_rate: float = pydantic.Field(1e-4, gt=0)
    """Adam's rate there."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:
        """There must be a Top-NN, and each row must have a gradient of its own."""
        if not backbone.top_nn:
            return "it has no Top-NN, so there are no shared weights whose gradients could compete"
        if isinstance(arm, PrimeConfig) and arm.routing == "permuted":
            return "a row's routing is another row's, so no row has a gradient of its own"
        return None


class RoutingSettings(ProbeSettings):
    """Which rows, and which groups of them."""

    split: Split = "valid"
    """Rows that are routed, in evaluation mode."""
    fields: SemanticFields = PAPER_FIELDS
    """Semantic fields whose values make the groups; may be empty."""
    min_rows: int = pydantic.Field(1000, ge=1)
    """Rows that a group needs."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:  # noqa: ARG002
        """There must be routers."""
        if not isinstance(arm, PrimeConfig):
            return "the arm has no routers"
        return None


class SubgroupsSettings(ProbeSettings):
    """Which rows, and which groups of them."""

    split: Split = "test"
    """Rows that are scored."""
    fields: SemanticFields = pydantic.Field(PAPER_FIELDS, min_length=1)
    """Semantic fields whose values make the groups."""
    min_rows: int = pydantic.Field(1000, ge=1)
    """Rows that a group needs."""
    calibration_bins: int = pydantic.Field(15, ge=1)
    """Bins with equally many rows over which the calibration error is taken."""


class CostSettings(ProbeSettings):
    """`[probe]` of a recipe of the kind `cost`; the defaults are the paper's."""

    unit: ClassVar[Literal["arm", "group"]] = "group"
    reads_checkpoint: ClassVar[bool] = False

    warm_up_steps: int = pydantic.Field(20, ge=1)
    """Steps of each arm before a repetition's first timed one."""
    inference_steps: int = pydantic.Field(100, ge=1)
    """Timed forward passes of a repetition, in evaluation mode and without gradients."""
    training_steps: int = pydantic.Field(50, ge=1)
    """Timed optimiser steps of a repetition."""
    repetitions: int = pydantic.Field(3, ge=1)
    """Each gives one latency an arm, and one ratio to Dense."""
    other_batch_sizes: list[pydantic.PositiveInt] = [1, 4, 16, 64, 256, 1024, 16_384, 65_536]
    """Rows of a forward pass, beside the protocol's `training.batch_size`: as many steps as keep
    the rows within those of `inference_steps`, but no fewer than five."""


class CostOnDevice(CostSettings):
    """The same keys, and the device that is measured, which is part of a job's identity."""

    device: str
    """Name of the device, as its vendor prints it."""
    threads: pydantic.PositiveInt
    """Threads of one operation on the CPU."""


class CostArm(Frozen):
    """An arm as a job of the kind `cost` names it."""

    plugin: str
    settings: JsonTable
    """All keys of the plug-in's settings."""


class CostProbe(CostOnDevice):
    """`probe` of a job of the kind `cost`: all that a measurement depends on beside its backbone
    and its data.

    The arms take turns, so one job measures all of them; other arms make another job.
    """

    arms: list[CostArm]
    """The arms that are measured beside the job's own, which is Dense."""


Kind = Literal["train", "gradients", "routing", "subgroups", "cost"]

PROBES: dict[Kind, type[ProbeSettings]] = {
    "gradients": GradientsSettings,
    "routing": RoutingSettings,
    "subgroups": SubgroupsSettings,
    "cost": CostSettings,
}
