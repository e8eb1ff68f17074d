"""The record of a finished job: what ran, on what, and what came out."""

from typing import Annotated, Literal

import pydantic

from prime_bench.base.frozen import Frozen
from prime_bench.findings import (
    CostFindings,
    GradientFindings,
    RoutingFindings,
    Score,
    SubgroupFindings,
    Validation,
)
from prime_bench.recipe.budget import Budget
from prime_bench.recipe.job import Job

RECORD_SCHEMA: Literal[1] = 1
DeviceKind = Literal["cpu", "cuda"]
"""What two runs must share to be compared."""


class Environment(Frozen):
    """Where and with what the job ran."""

    commit: str | None
    """Git commit of the package; None where it is no checkout."""
    dirty: bool | None
    """Whether the checkout had changes that are in no commit."""
    package_version: str
    python: str
    platform: str
    versions: dict[str, str]
    """Installed versions of the packages that can change a number."""
    device: str
    """Name of the device, as the vendor prints it."""
    device_kind: DeviceKind
    threads: int
    """Threads of one operation on the CPU."""
    started: str
    """UTC, ISO 8601."""


class Result(Frozen):
    """What the run found."""

    best_epoch: int | None
    """None where no validation had an AUC: the scores are then those of the last weights."""
    epochs: int
    """Epochs that were run."""
    stopped: Literal["patience", "max_epochs"]
    valid: Score
    test: Score
    degenerate: str | None = None
    """Why the run is no sound measurement (constant output, AUC 0.5, NaN), or None."""
    notes: list[str] = []
    """What else a reader may ask about (a last batch of one row joined the batch before it)."""


class Pairing(Frozen):
    """What two arms of one seed must share to be compared."""

    initial_weights: str
    """SHA-256 of the backbone's weights before a plug-in was attached."""
    row_order: str
    """SHA-256 of epoch 1's permutation of the training rows."""


class RunRecord(Frozen):
    """record.json: written last, so that its existence is the only sign that a job is done."""

    record_schema: Literal[1] = RECORD_SCHEMA
    job_id: str
    job: Job
    dataset: str
    """Name of the card when the job ran, a label."""
    arm: str
    """Name of the arm when the job ran, a label."""
    data_variant: str
    """Digest of the data's settings, as `variant` in the table's manifest.

    A recipe finds its records by it where the data themselves are not at hand.
    """
    data_verified: bool
    """Whether the prepared data matched the card's digests."""
    data_notes: list[str] = []
    """What a report must say about the data (synthetic, a split of our own, test-only ids)."""
    pairing: Pairing
    budget: Budget
    result: Result
    history: list[Validation]
    environment: Environment
    wall_s: float
    """Seconds of the whole job, reading data included."""
    weights: str | None = None
    """SHA-256 of the file with the best weights; None where it was not noted."""


Findings = Annotated[
    GradientFindings | RoutingFindings | SubgroupFindings | CostFindings,
    pydantic.Field(discriminator="kind"),
]


class ProbeRecord(Frozen):
    """record.json of a job that measures; keys as in a training run's."""

    record_schema: Literal[1] = RECORD_SCHEMA
    job_id: str
    job: Job
    dataset: str
    arm: str
    data_variant: str
    data_verified: bool
    data_notes: list[str] = []
    findings: Findings
    environment: Environment
    wall_s: float
