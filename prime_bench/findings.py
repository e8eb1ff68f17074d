"""Typed results of measurements: the scores of a training run, and the findings of the probes
`gradients`, `routing`, `subgroups` and `cost`.
"""

from collections.abc import Sequence
from statistics import median
from typing import Literal

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.settings.probes import Split


class Routing(Frozen):
    """What PRIME's routers did in an epoch's training batches: a number a bag."""

    entropy: list[float]
    """Mean over rows of the entropy of the experts' weights, in nats."""
    effective_experts: list[float]
    """exp of the entropy."""
    largest_load: list[float]
    """The largest mean weight of one expert."""


class Validation(Frozen):
    """One validation, a line of history.jsonl."""

    epoch: int
    """From 1."""
    step: int
    """Optimiser steps so far."""
    learning_rate: float
    """The rate of the epoch that this validation closes."""
    train_loss: float | None
    """Mean of the batches' losses over the epoch, L2 not included; None where it is not finite."""
    valid_auc: float | None
    """None, as `valid_logloss`, where a prediction is not a number."""
    valid_logloss: float | None
    improved: bool
    wall_s: float
    """Seconds since the run's first step."""
    routing: Routing | None = None
    """None without routers, or where a weight is not finite."""


class Score(Frozen):
    """Metrics of one split at the best weights; None where a prediction is not a number."""

    auc: float | None = pydantic.Field(ge=0, le=1)
    logloss: float | None = pydantic.Field(ge=0)


class GroupSize(Frozen):
    """Rows of one value of a semantic field."""

    name: str
    """The value as the log has it."""
    rows: int
    positives: int


class Gap(Frozen):
    """Semantic groups against random ones of the same sizes and label counts, by one unit."""

    permutations: int
    random: float
    """Mean over random groupings of the mean pairwise cosine of the groups' gradients."""
    random_deviation: float
    """Standard deviation of that over random groupings."""
    gap: float
    """`random` less that of the semantic groups (Eq. 28)."""
    monte_carlo_error: float
    """Standard error of `random`, and so of the gap, for the finite number of groupings."""
    p_value: float
    """(1 + groupings whose cosine is at most the semantic groups') / (1 + groupings)."""


class Measure(Frozen):
    """Cosines and gaps over one set of parameters."""

    parameters: Literal["top", "top_and_head"]
    n_parameters: int
    semantic: float
    """Mean pairwise cosine of the semantic groups' gradients."""
    cosines: list[list[float]]
    """Of each two groups, in the order of `groups`."""
    block: Gap
    example: Gap | None = None
    """None where it was not asked for, or not possible: `note` says why."""
    note: str | None = None


class GroupLoss(Frozen):
    """What a group loses by sharing the Top-NN with the others, in nats a row."""

    name: str
    share: float
    """Its share of the measured groups' rows."""
    shared: float
    """LogLoss on half of its validation rows with the shared weights."""
    own: float
    """The same after the steps of fine-tuning on its other half alone."""


class Sharing(Frozen):
    """The loss of sharing (Eq. 4) as far as a few steps reach it."""

    steps: int
    groups: list[GroupLoss]
    expected: float
    """Sum over groups of share times (shared - own)."""


class FieldGradients(Frozen):
    """One semantic field."""

    field: str
    groups: list[GroupSize]
    """Groups that were measured."""
    too_small: list[GroupSize]
    """Groups without enough rows of both labels."""
    skipped: str | None = None
    """Why nothing was measured."""
    measures: list[Measure] = []
    sharing: Sharing | None = None


class GradientFindings(Frozen):
    """What a job of the kind found, on validation rows."""

    kind: Literal["gradients"] = "gradients"
    fields: list[FieldGradients]
    rows: str
    """SHA-256 of the rows of all blocks: equal in all arms that may be compared."""


class BagRouting(Frozen):
    """One bag's routing over a set of rows."""

    entropy: float
    """Mean over rows of the entropy of the experts' weights, in nats."""
    normalised_entropy: float
    """Over ln M, the entropy of M equal weights; 0 for a single expert."""
    effective_experts: float
    """exp of the entropy."""
    load: list[float]
    """Mean weight of each of the M experts."""
    largest_load: float


class GroupRouting(Frozen):
    """Routing of one group's rows."""

    size: GroupSize
    bags: list[BagRouting]


class FieldRouting(Frozen):
    """One semantic field."""

    field: str
    groups: list[GroupRouting]
    too_small: list[GroupSize]
    overlap: list[list[float]]
    """Of each two groups, in their order: the mean over bags of the sum over experts of the smaller
    load; 1 for equal loads, 0 for groups that share no expert."""
    skipped: str | None = None
    """Why there are no groups."""


class RoutingFindings(Frozen):
    """What a job of the kind found."""

    kind: Literal["routing"] = "routing"
    split: Split
    rows: int
    entropy: float
    """Mean over bags, in nats, as are the two below."""
    normalised_entropy: float
    effective_experts: float
    largest_load: float
    """The largest mean weight of one expert, over all bags."""
    bags: list[BagRouting]
    fields: list[FieldRouting]


class SubgroupScore(Frozen):
    """An arm on one group's rows; None where a prediction is not a number."""

    size: GroupSize
    click_rate: float
    mean_prediction: float | None
    auc: float | None
    """None, as `logloss`, for rows of one class as well."""
    logloss: float | None
    calibration_error: float | None
    """Mean over rows of |click rate - mean prediction| of the row's bin."""


class FieldSubgroups(Frozen):
    """One semantic field."""

    field: str
    groups: list[SubgroupScore]
    too_small: list[GroupSize]
    skipped: str | None = None
    """Why there are no groups."""


class SubgroupFindings(Frozen):
    """What a job of the kind found."""

    kind: Literal["subgroups"] = "subgroups"
    split: Split
    overall: SubgroupScore
    """All rows of the split."""
    fields: list[FieldSubgroups]


Form = Literal["eager", "graph", "compiled"]
"""How a forward pass is run: operation by operation, as a CUDA graph, by `torch.compile`."""


ClockName = Literal["CUDA events", "wall clock"]


MemoryLabel = Literal["max_memory_allocated", "resident growth", "not measured"]
"""On CUDA what torch's allocator gave out at most; on the CPU by how much the resident memory of a
process of its own grew at most, libraries' own pages included."""


class InferenceCost(Frozen):
    """Forward passes of one form at one batch size."""

    form: Form
    batch_size: int
    latencies_ms: list[float]
    """A batch's, one a repetition."""


class ArmCost(Frozen):
    """What one arm costs."""

    plugin: str
    settings: JsonTable
    """All keys of the plug-in's settings."""
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


class CostFindings(Frozen):
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
