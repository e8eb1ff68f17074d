"""The record of a finished job: the job, its environment, and its result or findings."""

from typing import Annotated, Literal

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.findings import (
    CostFindings,
    GradientFindings,
    RoutingFindings,
    Score,
    SubgroupFindings,
    Validation,
)
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import Budget

RECORD_SCHEMA: Literal[1] = 1
DeviceKind = Literal["cpu", "cuda"]
"""Runs on different kinds of device are not compared."""


class Environment(Frozen):
    """Machine and versions on which a job ran."""

    commit: str | None
    """Git commit of the package; None if it is not installed from a checkout."""
    dirty: bool | None
    """Whether the checkout had changes that were not committed."""
    package_version: str
    """Version of prime-bench."""
    python: str
    """Version of Python."""
    platform: str
    """Operating system and processor architecture, as Python gives them."""
    versions: dict[str, str]
    """Installed versions of the packages that can change a number."""
    device: str
    """Name of the device, as the vendor gives it."""
    device_kind: DeviceKind
    """`cpu` or `cuda`."""
    threads: int
    """Threads of one operation on the CPU."""
    at_once: int | None = None
    """Jobs that shared the device, which tells what its times mean; None if it is not known."""
    started: str
    """UTC, ISO 8601."""


class Result(Frozen):
    """Result of a training run."""

    best_epoch: int | None
    """None if no validation had an AUC; the scores are then those of the last weights."""
    epochs: int
    """Number of epochs that were run."""
    stopped: Literal["patience", "max_epochs"]
    """`patience`: early stopping ended the run. `max_epochs`: it ran all epochs."""
    valid: Score
    """Scores on the validation split."""
    test: Score
    """Scores on the test split, which is read only once, after training."""
    degenerate: str | None = None
    """Why the run is degenerate (constant output, AUC 0.5, NaN); None if it is not."""
    notes: list[str] = []
    """Remarks, such as that a last batch of one row was added to the batch before it."""

    @property
    def scores(self) -> dict[str, Score]:
        """Scores by the name of the split."""
        return {"valid": self.valid, "test": self.test}


class Pairing(Frozen):
    """Digests that two runs of a pair must have in common."""

    initial_weights: str
    """SHA-256 of the backbone's weights before a plug-in was attached."""
    row_order: str
    """SHA-256 of epoch 1's permutation of the training rows."""


class RunRecord(Frozen):
    """record.json of a training run. Written last: a job is done if and only if it has a record."""

    record_schema: Literal[1] = RECORD_SCHEMA
    """Version of this format."""
    job_id: str
    """First 16 hex digits of a SHA-256 over the job."""
    job: Job
    """Everything that can change the result."""
    dataset: str
    """Name of the card when the job ran, a label."""
    arm: str
    """Name of the arm when the job ran, a label."""
    data_variant: str
    """Digest of the data settings, as `variant` in the table's manifest.

    By it the records of a recipe are found on a machine that does not have the table.
    """
    data_verified: bool | Literal["own"]
    """Whether the prepared data matched the card's digests; `own` for a card of one's own without
    digests."""
    data_notes: list[str] = []
    """Notes for reports about the data: that they are synthetic, that the split is our own, ..."""
    pairing: Pairing
    """What two runs of a pair have in common."""
    budget: Budget
    """Parameters and multiply-accumulates, by the formulas."""
    result: Result
    """Scores, and how training ended."""
    history: list[Validation]
    """The validations, one an epoch."""
    environment: Environment
    """Machine and versions."""
    wall_s: float
    """Seconds of the whole job, including reading the data."""
    weights: str | None = None
    """SHA-256 of the file with the best weights; None in old records."""
    data_card: JsonTable | None = None
    """The content of the user's own card; None for a bundled one."""


Findings = Annotated[
    GradientFindings | RoutingFindings | SubgroupFindings | CostFindings,
    pydantic.Field(discriminator="kind"),
]


class ProbeRecord(Frozen):
    """record.json of a probe; the keys mean the same as in `RunRecord`."""

    record_schema: Literal[1] = RECORD_SCHEMA
    """Version of this format."""
    job_id: str
    """First 16 hex digits of a SHA-256 over the job."""
    job: Job
    """Everything that can change the findings."""
    dataset: str
    """Name of the card when the job ran, a label."""
    arm: str
    """Name of the arm when the job ran, a label."""
    data_variant: str
    """Digest of the data settings, as `variant` in the table's manifest."""
    data_verified: bool | Literal["own"]
    """Whether the prepared data matched the card's digests; `own` for a card of one's own without
    digests."""
    data_notes: list[str] = []
    """Notes for reports about the data."""
    findings: Findings
    """What the probe measured; `kind` tells which probe."""
    environment: Environment
    """Machine and versions."""
    wall_s: float
    """Seconds of the whole job, including reading the data."""
    data_card: JsonTable | None = None
    """The content of the user's own card; None for a bundled one."""


Record = RunRecord | ProbeRecord
"""A record of either kind."""
