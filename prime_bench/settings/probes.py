"""Settings of probes, jobs that measure a trained arm or what an arm costs."""

from typing import Annotated, ClassVar, Literal

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.settings.interface import ArmSettings, BackboneSettings
from prime_bench.settings.plugins import PrimeConfig

PAPER_FIELDS = ("site_category", "app_category", "device_type", "hour")
"""The paper's semantic fields (section 4.2), by the meaning that a card gives to its columns."""

ProbedSplit = Literal["valid", "test"]
"""Split that a probe reads. No model was trained on either."""
SemanticFields = Annotated[tuple[str, ...], pydantic.Strict(False)]


class ProbeSettings(Frozen):
    """Base of the keys of a recipe's `[probe]`."""

    unit: ClassVar[Literal["arm", "all arms"]] = "arm"
    """What one job measures: one arm, or all arms of a data set, backbone and seed."""
    reads_checkpoint: ClassVar[bool] = True
    """Whether a job reads the weights of the job that trained its arm."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:  # noqa: ARG002
        """The reason for which this arm on this backbone cannot be measured, or None."""
        return None


NULL_FIELD = "null_"
"""Prefix of the names of random labels, which are measured as if they were fields."""


class GradientsSettings(ProbeSettings):
    """Keys of the probe `gradients`. The defaults are the paper's numbers."""

    fields: SemanticFields = PAPER_FIELDS
    """Semantic fields by whose values rows are grouped."""
    null_labels: int = pydantic.Field(0, ge=0)
    """Number of random labels, measured as if they were fields `null_1`, ... No model sees them, so
    their gap is noise around 0."""
    null_groups: int = pydantic.Field(4, ge=2)
    """Number of groups of each random label; all are equally likely."""
    blocks: int = pydantic.Field(8, ge=1)
    """Number of disjoint blocks of rows in each group."""
    positives_per_block: int = pydantic.Field(256, ge=1)
    """Rows with a click in each block."""
    negatives_per_block: int = pydantic.Field(256, ge=1)
    """Rows without a click in each block."""
    permutations: int = pydantic.Field(2000, ge=1)
    """Number of random groupings that reassign whole blocks."""
    example_permutations: int = pydantic.Field(100, ge=0)
    """Number of random groupings that reassign single rows within each label; 0: this gap is not
    measured."""
    include_head: bool = False
    """Whether gaps are also measured over the Top-NN with the output layer that it shares with
    another path (fidelity 36)."""
    sharing_steps: int = pydantic.Field(0, ge=0)
    """Steps of fine-tuning the Top-NN on one group alone, for the loss of sharing (Eq. 4); 0: it is
    not measured."""
    sharing_learning_rate: float = pydantic.Field(1e-4, gt=0)
    """Learning rate of that fine-tuning."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:
        """None if the backbone has a Top-NN and a row's gradient depends on that row alone; else
        why not.
        """
        if not backbone.top_nn:
            return "it has no Top-NN, so there are no shared weights whose gradients could compete"
        if isinstance(arm, PrimeConfig) and arm.routing == "permuted":
            return "a row's routing is another row's, so no row has a gradient of its own"
        return None


class RoutingSettings(ProbeSettings):
    """Keys of the probe `routing`."""

    split: ProbedSplit = "valid"
    """Split that is routed, in evaluation mode."""
    fields: SemanticFields = PAPER_FIELDS
    """Semantic fields by whose values rows are grouped; may be empty."""
    min_rows: int = pydantic.Field(1000, ge=1)
    """Minimum number of rows of a group."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:  # noqa: ARG002
        """None if the arm has routers, else that it has none."""
        if not isinstance(arm, PrimeConfig):
            return "the arm has no routers"
        return None


class SubgroupsSettings(ProbeSettings):
    """Keys of the probe `subgroups`."""

    split: ProbedSplit = "test"
    """Split that is scored."""
    fields: SemanticFields = pydantic.Field(PAPER_FIELDS, min_length=1)
    """Semantic fields by whose values rows are grouped."""
    min_rows: int = pydantic.Field(1000, ge=1)
    """Minimum number of rows of a group."""
    calibration_bins: int = pydantic.Field(15, ge=1)
    """Number of bins, with equally many rows each, of the calibration error."""


class CostSettings(ProbeSettings):
    """Keys of the probe `cost`. The defaults are the paper's numbers."""

    unit: ClassVar[Literal["arm", "all arms"]] = "all arms"
    reads_checkpoint: ClassVar[bool] = False

    warm_up_steps: int = pydantic.Field(20, ge=1)
    """Steps that each arm does before the timed steps of a repetition."""
    inference_steps: int = pydantic.Field(100, ge=1)
    """Timed forward passes of each arm in a repetition, in evaluation mode and without
    gradients."""
    training_steps: int = pydantic.Field(50, ge=1)
    """Timed optimiser steps of each arm in a repetition."""
    repetitions: int = pydantic.Field(3, ge=1)
    """Number of repetitions. Each gives one latency of each arm, and one ratio to Dense."""
    other_batch_sizes: list[pydantic.PositiveInt] = [1, 4, 16, 64, 256, 1024, 16_384, 65_536]
    """Batch sizes of forward passes that are timed beside `training.batch_size`. A large batch gets
    fewer steps, so that it reads no more rows than `inference_steps` of the protocol's batches, but
    at least five."""


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
"""What a job does: train, or a probe."""

PROBES: dict[Kind, type[ProbeSettings]] = {
    "gradients": GradientsSettings,
    "routing": RoutingSettings,
    "subgroups": SubgroupsSettings,
    "cost": CostSettings,
}
