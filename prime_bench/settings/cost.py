"""What a measurement of cost does, and what it finds: the paper's profiling protocol (supplement,
"End-to-End Profiling Details").
"""

from collections.abc import Sequence
from statistics import median
from typing import Any, ClassVar, Literal

import pydantic

from prime_bench.settings.model import Settings
from prime_bench.settings.probe import ProbeSettings

Form = Literal["eager", "graph", "compiled"]
"""How a forward pass is run: operation by operation, as a CUDA graph, by `torch.compile`."""
ClockName = Literal["CUDA events", "wall clock"]
MemoryLabel = Literal["max_memory_allocated", "resident growth", "not measured"]
"""On CUDA what torch's allocator gave out at most; on the CPU by how much the resident memory of a
process of its own grew at most, libraries' own pages included."""


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


class CostArm(Settings):
    """An arm to be measured."""

    plugin: str
    settings: dict[str, Any]


class CostProbe(CostSettings):
    """All that a measurement depends on beside its backbone and data.

    Arms are measured in turn, so a job is of all of them: another list is another measurement.
    """

    device: str
    """Name of the device, as its vendor prints it."""
    threads: pydantic.PositiveInt
    """Threads of one operation on the CPU."""
    arms: list[CostArm]
    """What is measured beside the job's own arm, which is Dense."""


class InferenceCost(Settings):
    """Forward passes of one form at one batch size."""

    form: Form
    batch_size: int
    latencies_ms: list[float]
    """A batch's, one a repetition."""


class ArmCost(Settings):
    """What one arm costs."""

    plugin: str
    settings: dict[str, Any]
    parameters: int
    """Trainable ones, the backbone's included."""
    macs: int
    """Multiply-accumulates of a row's forward pass, by the formulas."""
    inference: list[InferenceCost]
    training_ms: list[float]
    """A training step's: forward, backward and update; one a repetition."""
    peak_memory_bytes: int | None
    """Of training at the protocol's batch size; None where it was not measured."""

    def inference_ms(self, *, batch_size: int, form: Form = "eager") -> list[float]:
        """Latencies, one a repetition. Raises KeyError for what was not measured."""
        for cost in self.inference:
            if (cost.form, cost.batch_size) == (form, batch_size):
                return cost.latencies_ms
        raise KeyError((form, batch_size))

    def memory_ratio(self, dense: "ArmCost") -> float | None:
        """Peak memory of training over Dense's; None where either was not measured."""
        if self.peak_memory_bytes is None or not dense.peak_memory_bytes:
            return None
        return self.peak_memory_bytes / dense.peak_memory_bytes


class CostFindings(Settings):
    """What a measurement found."""

    kind: Literal["cost"] = "cost"
    clock: ClockName
    memory: MemoryLabel
    distinct_rows: int
    """Rows of the table that the batches were made of; smaller tables are read more than once."""
    arms: list[ArmCost]
    """Dense first."""


def median_ratio(latencies_ms: Sequence[float], baseline_ms: Sequence[float]) -> float:
    """Median over repetitions of the ratio within each."""
    return median(a / b for a, b in zip(latencies_ms, baseline_ms, strict=True))
