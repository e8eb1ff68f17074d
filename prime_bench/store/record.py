"""The record of a finished job: the job, its environment, and its result or findings."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.base.identity import digest
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
from prime_bench.settings.training import joins_last_row

RECORD_SCHEMA: Literal[1] = 1
DeviceKind = Literal["cpu", "cuda"]
"""Runs on different kinds of device are not compared."""


GENERATED_NOTE = "synthetic data"
"""How the note begins that every record of generated rows has."""
NODE_VARIABLE = "PRIME_BENCH_NODE"
"""Environment variable of a worker: the id of its node in a cluster."""


class Environment(Frozen):
    """Machine and versions on which a job ran."""

    commit: str | None
    """Git commit of the package; None if it is not installed from a checkout."""
    dirty: bool | None
    """Whether package, recipes or cards of the checkout had changes that no commit has, or files
    that git does not track."""
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
    host: str | None = None
    """Name of the machine; None in old records."""
    node: str | None = None
    """Id of the machine in a Ray cluster; None outside one."""
    started: str
    """UTC, ISO 8601."""

    @property
    def where(self) -> str:
        """Machine and device, in a few words."""
        host = self.host or "this machine"
        node = f" (node {self.node[:8]})" if self.node else ""
        return f"{host}{node}, {self.device}"


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


class Digests(Frozen):
    """Digests that were taken when the record was written. What was changed later has others."""

    record: str
    """SHA-256 over the canonical JSON (keys sorted, no spaces, ASCII) of the record without this
    key."""
    files: dict[str, str]
    """SHA-256 of each file that was beside the record, by name; the log is not among them."""


class _Record(Frozen):
    """What both kinds of record have in common."""

    def plain(self) -> JsonTable:
        """The record as JSON values. Records without digests do not have the key."""
        plain = super().plain()
        if plain.get("digests", 0) is None:
            del plain["digests"]
        return plain


class RunRecord(_Record):
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
    digests: Digests | None = None
    """Digests of the record and of the files beside it; None in old records."""

    @property
    def epoch_s(self) -> float | None:
        """Seconds an epoch with its validation, the mean; None without a validation."""
        return self.history[-1].wall_s / len(self.history) if self.history else None

    @property
    def degenerate(self) -> str | None:
        """Why the run is no sound measurement, as its history and scores say; None if it is one.

        `result.degenerate` gives the words where it agrees, since it counts rows, and is believed
        alone where there is no history to derive it from.
        """
        found = "; ".join([*not_finite(self.history), *not_sound(self.result.scores)])
        if self.history and not found:
            return None
        return self.result.degenerate or found or None


Findings = Annotated[
    GradientFindings | RoutingFindings | SubgroupFindings | CostFindings,
    pydantic.Field(discriminator="kind"),
]


class ProbeRecord(_Record):
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
    digests: Digests | None = None
    """Digests of the record and of the files beside it; None in old records."""


Record = RunRecord | ProbeRecord
"""A record of either kind."""


def sealed(record: Record, files: Mapping[str, str]) -> Record:
    """Return the record with the digest of itself and these, the SHA-256 of files by name."""
    # Read again, so that every default counts as a value that the file has.
    written = type(record).model_validate_json(json.dumps(record.plain()))
    bare = written.model_copy(update={"digests": Digests(record="", files=dict(files))})
    own = Digests(record=_digest_of(bare), files=dict(files))
    return bare.model_copy(update={"digests": own})


def is_as_written(record: Record) -> bool | None:
    """Whether the record has the digest that it was written with; None if it has none."""
    return None if record.digests is None else _digest_of(record) == record.digests.record


def is_generated(record: Record) -> bool:
    """Whether the rows were generated, which the card `synthetic` notes in every record."""
    return any(note.startswith(GENERATED_NOTE) for note in record.data_notes)


def has_lost_digests(record: Record) -> bool:
    """Whether a record without digests has a key that only versions write which write digests."""
    scores = record.result.scores.values() if isinstance(record, RunRecord) else ()
    newer = (
        record.environment.host,
        record.environment.node,
        *(score.deciles for score in scores),
    )
    return record.digests is None and any(key is not None for key in newer)


def _digest_of(record: Record) -> str:
    # Keys that are not in the file do not count: a later version may have more of them.
    plain = record.model_dump(mode="json", by_alias=True, exclude_unset=True)
    del plain["digests"]["record"]
    return digest(plain)


def not_finite(history: Sequence[Validation]) -> list[str]:
    """Sentences about the epochs in which something was not finite."""
    lost = {v.epoch for v in history if v.valid_auc is None and v.valid_logloss is None}
    predictions = [str(v.epoch) for v in history if v.epoch in lost]
    losses = [str(v.epoch) for v in history if v.train_loss is None and v.epoch not in lost]
    return [
        f"{what} not finite {when} {', '.join(epochs)}"
        for what, when, epochs in (
            ("predictions were", "after epochs", predictions),
            ("the training loss was", "in epochs", losses),
        )
        if epochs
    ]


def not_sound(scores: Mapping[str, Score]) -> Iterator[str]:
    """Sentences about the splits whose scores, by name, are no sound measurement."""
    for name, score in scores.items():
        if score.auc is None and score.logloss is None:
            yield f"{name}: predictions are not finite"
        elif score.auc == CONSTANT_AUC:
            yield f"{name}: the AUC is {CONSTANT_AUC}"


CONSTANT_AUC = 0.5
"""AUC of equal predictions."""


def notes_on_batches(n_rows: int, *, batch_size: int) -> list[str]:
    """The notes of a result on `n_rows` training rows."""
    joined = joins_last_row(n_rows, batch_size)
    return ["the last training row of an epoch joined the batch before it"] if joined else []
