"""Typed results of measurements: the scores of a training run, and the findings of the probes
`gradients`, `routing`, `subgroups` and `cost`.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal, get_args

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.settings.probes import ProbedSplit


class Routing(Frozen):
    """Routing over the training batches of an epoch; each list has one number a bag."""

    entropy: list[float]
    """Mean over rows of the entropy of the experts' weights, in nats."""
    effective_experts: list[float]
    """exp of the entropy."""
    largest_load: list[float]
    """The largest mean weight of an expert."""


class Validation(Frozen):
    """Scores of the validation split after an epoch; a line of history.jsonl."""

    epoch: int
    """From 1."""
    step: int
    """Optimiser steps so far."""
    learning_rate: float
    """Learning rate of the epoch."""
    train_loss: float | None
    """Mean over the epoch's batches of the loss without L2; None if it is not finite."""
    valid_auc: float | None
    """Area under the ROC curve; None, like `valid_logloss`, if a prediction is not a number."""
    valid_logloss: float | None
    """Mean negative log-likelihood of a validation row, in nats."""
    improved: bool
    """Whether the AUC was the best so far."""
    wall_s: float
    """Seconds since the run's first step."""
    routing: Routing | None = None
    """None if the arm has no routers, or if a weight is not finite."""


Metric = Literal["auc", "logloss", "gauc", "ne", "pcoc", "ece", "ece_all"]
"""A number of a `Score` by its name there."""
ALL_METRICS: tuple[Metric, ...] = get_args(Metric)
METRIC_LABELS: dict[Metric, str] = {
    "auc": "AUC",
    "logloss": "LogLoss",
    "gauc": "GAUC",
    "ne": "NE",
    "pcoc": "PCOC",
    "ece": "ECE",
    "ece_all": "ECE (all)",
}
"""What reports call them."""


class CalibrationBin(Frozen):
    """Rows whose predictions are next to each other, and what was predicted of their clicks."""

    rows: int = pydantic.Field(gt=0)
    """Number of rows."""
    clicks: int = pydantic.Field(ge=0)
    """Rows with the label 1."""
    predicted: float = pydantic.Field(ge=0)
    """Sum of the predicted probabilities, which is the expected number of clicks."""


class GroupCounts(Frozen):
    """What a group AUC is computed from, and what is left out of it."""

    column: str
    """The column of the log whose values are the groups."""
    groups: int = pydantic.Field(ge=0)
    """Groups with clicks and rows without one."""
    rows: int = pydantic.Field(ge=0)
    """Their rows."""
    one_class_groups: int = pydantic.Field(ge=0)
    """Groups that are left out since all their labels are equal."""
    one_class_rows: int = pydantic.Field(ge=0)
    """Their rows."""
    rows_without_group: int = pydantic.Field(ge=0)
    """Rows that are left out since the column has no value."""


class Score(Frozen):
    """Metrics of one split with the best weights; None if a prediction is not a number.

    Records of versions before a metric was there have None too.
    """

    auc: float | None = pydantic.Field(ge=0, le=1)
    """Area under the ROC curve."""
    logloss: float | None = pydantic.Field(ge=0)
    """Mean negative log-likelihood of a row, in nats."""
    gauc: float | None = pydantic.Field(None, ge=0, le=1)
    """Group AUC: mean over groups of the AUC within the group, weighted by rows. None without
    `gauc_by`, and where no group has both classes."""
    ne: float | None = pydantic.Field(None, ge=0)
    """Normalised entropy: LogLoss over the entropy of the split's own click rate."""
    pcoc: float | None = pydantic.Field(None, ge=0)
    """Predicted over actual clicks: sum of the predictions over the number of clicks."""
    ece: float | None = pydantic.Field(None, ge=0, le=1)
    """Calibration error by decile: mean over rows of |mean prediction - click rate| of the row's
    bin in `deciles`."""
    ece_all: float | None = pydantic.Field(None, ge=0, le=1)
    """Calibration error over all rows: |mean prediction - click rate|."""
    deciles: list[CalibrationBin] | None = None
    """Bins of equally many rows by rising prediction; equal predictions are in one bin, that in
    which the first of them falls, so there may be fewer than ten."""
    groups: GroupCounts | None = None
    """The groups of `gauc`; None without `gauc_by`."""


def normalised_entropy(logloss: float, *, clicks: int, rows: int) -> float:
    """LogLoss over the entropy of the click rate p = clicks / rows, 0 < p < 1.

    LogLoss / -(p ln p + (1 - p) ln(1 - p)): below 1 where the predictions tell more than the rate
    alone. The rate is that of the rows that are scored, not of the training rows. He et al.,
    Practical Lessons from Predicting Clicks on Ads at Facebook (ADKDD 2014), Eq. 1.
    """
    p = clicks / rows
    return logloss / -(p * math.log(p) + (1 - p) * math.log1p(-p))


def predicted_over_clicks(bins: Sequence[CalibrationBin]) -> float:
    """Sum of the predictions over the number of clicks, at least one; 1 is calibrated.

    He et al. (ADKDD 2014) call it calibration; elsewhere it is PCOC, predicted clicks over clicks.
    """
    return math.fsum(item.predicted for item in bins) / sum(item.clicks for item in bins)


def calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """Sum over bins of (rows of the bin / all rows) |mean prediction - click rate| of the bin.

    The expected calibration error of Naeini, Cooper and Hauskrecht (AAAI 2015), with bins of equal
    mass (Nguyen and O'Connor, EMNLP 2015). As `rows` cancels, a bin adds |predicted - clicks|.
    """
    rows = sum(item.rows for item in bins)
    return math.fsum(abs(item.predicted - item.clicks) for item in bins) / rows


def whole(bins: Sequence[CalibrationBin]) -> CalibrationBin:
    """One bin of all rows."""
    return CalibrationBin(
        rows=sum(item.rows for item in bins),
        clicks=sum(item.clicks for item in bins),
        predicted=math.fsum(item.predicted for item in bins),
    )


class GroupSize(Frozen):
    """A group: the rows that have one value of a semantic field."""

    name: str
    """The value as the log has it."""
    rows: int
    """Number of rows."""
    positives: int
    """Number of clicks among them."""


EQUAL_COSINES = 1e-9
"""Mean cosines that differ by no more are equal: gradients of float32 have 7 digits."""


class Gap(Frozen):
    """Semantic groups compared with random groups of the same sizes and label counts."""

    permutations: int
    """Number of random groupings."""
    random: float
    """Mean over random groupings of the mean pairwise cosine of the groups' gradients."""
    random_deviation: float
    """Standard deviation of that over random groupings."""
    gap: float
    """`random` minus the mean pairwise cosine of the semantic groups (Eq. 28)."""
    monte_carlo_error: float
    """Standard error of `random`, and so of the gap, for the finite number of groupings."""
    p_value: float
    """(1 + groupings whose cosine is at most the semantic groups') / (1 + groupings); equal within
    `EQUAL_COSINES`."""


class Measure(Frozen):
    """Cosines and gaps of the gradients with respect to one set of parameters."""

    parameters: Literal["top", "top_and_head"]
    """`top`: the Top-NN. `top_and_head`: the Top-NN and the layer that gives the logit."""
    n_parameters: int
    """Number of parameters in the set."""
    semantic: float
    """Mean pairwise cosine of the semantic groups' gradients."""
    cosines: list[list[float]]
    """Cosine of each two groups' gradients, in the order of `groups`."""
    block: Gap
    """The gap of gradients of blocks of rows."""
    example: Gap | None = None
    """The gap of gradients of single rows; None if it was not asked for or not possible."""
    note: str | None = None
    """Why `example` was not measured; None if it was, or was not asked for."""


class GroupLoss(Frozen):
    """What a group loses by sharing the Top-NN with the others, in nats a row."""

    name: str
    """The value of the field, as the log has it."""
    share: float
    """Its share of the measured groups' rows."""
    shared: float
    """LogLoss on half of its validation rows with the shared weights."""
    own: float
    """The same after fine-tuning on its other half alone."""


class Sharing(Frozen):
    """The loss of sharing (Eq. 4), estimated by some steps of fine-tuning."""

    steps: int
    """Number of steps of fine-tuning."""
    groups: list[GroupLoss]
    """One for each group that was measured."""
    expected: float
    """Sum over groups of share times (shared - own), in nats a row."""


class FieldGradients(Frozen):
    """Findings for one semantic field."""

    field: str
    """Name of the field."""
    groups: list[GroupSize]
    """Groups that were measured."""
    too_small: list[GroupSize]
    """Groups without enough rows of both labels."""
    skipped: str | None = None
    """Why nothing was measured; None if something was."""
    measures: list[Measure] = []
    """One for each set of parameters."""
    sharing: Sharing | None = None
    """The loss of sharing; None if it was not asked for."""


class GradientFindings(Frozen):
    """Findings of the probe `gradients`, on validation rows."""

    kind: Literal["gradients"] = "gradients"
    """`gradients`."""
    fields: list[FieldGradients]
    """One for each field of the recipe."""
    rows: str
    """SHA-256 of the rows of all blocks. Arms are compared only if it is equal."""


class BagRouting(Frozen):
    """One bag's routing over a set of rows."""

    entropy: float
    """Mean over rows of the entropy of the experts' weights, in nats."""
    normalised_entropy: float
    """Entropy over ln M, the entropy of M equal weights; 0 for a single expert."""
    effective_experts: float
    """exp of the entropy."""
    load: list[float]
    """Mean weight of each of the M experts."""
    largest_load: float
    """The largest of these."""


class GroupRouting(Frozen):
    """Routing of one group's rows."""

    size: GroupSize
    """The group and its rows."""
    bags: list[BagRouting]
    """One for each bag of experts."""


class FieldRouting(Frozen):
    """Findings for one semantic field."""

    field: str
    """Name of the field."""
    groups: list[GroupRouting]
    """One for each group that was measured."""
    too_small: list[GroupSize]
    """Groups without enough rows."""
    overlap: list[list[float]]
    """(k, k) for the k groups in their order: the mean over bags of the sum over experts of the
    smaller of two groups' loads; 1 for equal loads, 0 for groups that share no expert."""
    skipped: str | None = None
    """Why there are no groups; None if there are."""


class RoutingFindings(Frozen):
    """Findings of the probe `routing`."""

    kind: Literal["routing"] = "routing"
    """`routing`."""
    split: ProbedSplit
    """The split whose rows were measured."""
    rows: int
    """Number of rows."""
    entropy: float
    """Mean over bags of the entropy, in nats."""
    normalised_entropy: float
    """Mean over bags of the entropy over ln M."""
    effective_experts: float
    """Mean over bags of exp of the entropy."""
    largest_load: float
    """The largest mean weight of one expert, over all bags."""
    bags: list[BagRouting]
    """One for each bag of experts."""
    fields: list[FieldRouting]
    """One for each field of the recipe."""


class SubgroupScore(Frozen):
    """Scores of an arm on the rows of one group; None if a prediction is not a number."""

    size: GroupSize
    """The group and its rows."""
    click_rate: float
    """Share of the rows that are clicks."""
    mean_prediction: float | None
    """Mean predicted probability."""
    auc: float | None
    """Area under the ROC curve; None, like `logloss`, also if all labels are equal."""
    logloss: float | None
    """Mean negative log-likelihood of a row, in nats."""
    calibration_error: float | None
    """Mean over rows of |click rate - mean prediction| of the row's bin."""


class FieldSubgroups(Frozen):
    """Findings for one semantic field."""

    field: str
    """Name of the field."""
    groups: list[SubgroupScore]
    """One for each group that was measured."""
    too_small: list[GroupSize]
    """Groups without enough rows."""
    skipped: str | None = None
    """Why there are no groups; None if there are."""


class SubgroupFindings(Frozen):
    """Findings of the probe `subgroups`."""

    kind: Literal["subgroups"] = "subgroups"
    """`subgroups`."""
    split: ProbedSplit
    """The split whose rows were measured."""
    overall: SubgroupScore
    """Scores on all rows of the split."""
    fields: list[FieldSubgroups]
    """One for each field of the recipe."""


Form = Literal["eager", "graph", "compiled"]
"""How a forward pass is run: operation by operation, as a CUDA graph, or by torch.compile."""


ClockName = Literal["CUDA events", "wall clock"]


MemoryLabel = Literal["max_memory_allocated", "resident growth", "not measured"]
"""On CUDA the peak of torch's allocator; on the CPU how much the resident memory of a separate
process grew at most, including the pages of libraries."""


class InferenceCost(Frozen):
    """Time of forward passes of one form at one batch size."""

    form: Form
    """`eager`, `graph` (a CUDA graph) or `compiled` (torch.compile)."""
    batch_size: int
    """Rows of a batch."""
    latencies_ms: list[float]
    """Milliseconds of a batch, one number a repetition."""


class ArmCost(Frozen):
    """Cost of one arm."""

    plugin: str
    """Name of the plug-in, or `dense`."""
    settings: JsonTable
    """All keys of the plug-in's settings."""
    parameters: int
    """Trainable parameters, including those of the backbone."""
    macs: int
    """Multiply-accumulates of the forward pass of a row, by the formulas."""
    inference: list[InferenceCost]
    """One for each form and batch size."""
    training_ms: list[float]
    """Milliseconds of a training step (forward, backward, update) as a run does it, one number a
    repetition: on CUDA as a graph."""
    eager_training_ms: list[float] | None = None
    """The same of eager steps, on CUDA; elsewhere all steps are eager."""
    peak_memory_bytes: int | None
    """Peak memory of training at the protocol's batch size; None if it was not measured."""

    def deployed(self, *, batch_size: int) -> list[float]:
        """Return the latencies of the form that one would deploy, one a repetition: a CUDA graph
        where there is one. Raises KeyError if they were not measured.
        """
        forms = {cost.form for cost in self.inference if cost.batch_size == batch_size}
        return self.inference_ms(
            batch_size=batch_size, form="graph" if "graph" in forms else "eager"
        )

    def inference_ms(self, *, batch_size: int, form: Form = "eager") -> list[float]:
        """Return the latencies, one a repetition. Raises KeyError if they were not measured."""
        for cost in self.inference:
            if (cost.form, cost.batch_size) == (form, batch_size):
                return cost.latencies_ms
        raise KeyError((form, batch_size))

    def memory_ratio(self, dense: "ArmCost") -> float | None:
        """Return peak memory of training over that of `dense`; None if either is unknown."""
        if self.peak_memory_bytes is None or not dense.peak_memory_bytes:
            return None
        return self.peak_memory_bytes / dense.peak_memory_bytes


class CostFindings(Frozen):
    """Findings of the probe `cost`."""

    kind: Literal["cost"] = "cost"
    """`cost`."""
    clock: ClockName
    """How times were measured."""
    memory: MemoryLabel
    """How memory was measured."""
    distinct_rows: int
    """Rows of the table in the batches. Rows of a small table occur more than once."""
    arms: list[ArmCost]
    """The arms, `dense` first."""


def median_ratio(latencies_ms: Sequence[float], baseline_ms: Sequence[float]) -> float:
    """Return the median over repetitions of the ratio within each repetition."""
    return median(a / b for a, b in zip(latencies_ms, baseline_ms, strict=True))
