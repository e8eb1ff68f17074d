"""What the jobs of a plan will take: parameters, multiply-accumulates, time, memory and disk."""

import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prime_bench.base.files import nearest_folder
from prime_bench.data.manifest import SCHEMA_NAME
from prime_bench.data.schema import Schema
from prime_bench.recipe.job import Job
from prime_bench.schedule.plan import Plan, Planned
from prime_bench.settings.interface import Budget, TableShape, budget_of
from prime_bench.store.record import DeviceKind, ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

BudgetKey = tuple[str, str, str]
"""Data set, arm, backbone: what a job's budget depends on within one plan."""
Added = dict[str, dict[str, dict[str, Budget]]]


def budget_key(planned: Planned) -> BudgetKey:
    """Return the key of a job's budget."""
    job_spec = planned.job_spec
    return job_spec.dataset, job_spec.arm.name, job_spec.backbone


def budgets_of(plan: Plan) -> dict[BudgetKey, Budget]:
    """Return the budgets of all jobs whose tables are prepared. A probe has that of its arm."""
    shapes: dict[str, TableShape] = {}
    budgets: dict[BudgetKey, Budget] = {}
    for planned in plan.jobs:
        key, job_spec = budget_key(planned), planned.job_spec
        file = planned.table_spec.folder(plan.data_dir) / SCHEMA_NAME
        if planned.job is None or key in budgets or not file.exists():
            continue
        if job_spec.dataset not in shapes:
            shapes[job_spec.dataset] = Schema.read(file).shape
        budgets[key] = budget_of(
            job_spec.backbone_settings, job_spec.arm.settings, shape=shapes[job_spec.dataset]
        )
    return budgets


def added_budgets(plan: Plan) -> Added:
    """Return data set -> arm -> backbone -> budget; without `dense`, which adds nothing."""
    plugins = {planned.job_spec.arm.name: planned.job_spec.arm.plugin for planned in plan.jobs}
    added: Added = {}
    for (dataset, arm, backbone), budget in budgets_of(plan).items():
        if plugins[arm] != "dense":
            added.setdefault(dataset, {}).setdefault(arm, {})[backbone] = budget
    return added


MEMORY_NOTE = (
    "memory: weights, Adam's two moments, a copy of the best weights, and roughly the activations "
    "of a batch; the process itself and the data come on top"
)
_FLOAT_BYTES = 4
_COPIES_IN_TRAINING = 4
# A layer of 400 units stores a value and a gradient for each 200 to 400 multiply-accumulates.
_ACTIVATIONS_A_MAC = 0.01


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast an arm trains on a backbone and a data set."""

    epoch_s: float
    macs: int
    """Multiply-accumulates a row; the pace of another arm is scaled by them."""
    rest_s: float = 0.0
    """Seconds of a job outside its epochs."""
    epochs: float | None = None
    """Median number of epochs of jobs that early stopping has ended; None if there are none."""
    source: str
    """Where the pace is from, as text."""


SimilarityKey = tuple[str, str, str]
"""Fingerprint of the table, backbone, plug-in. Jobs with the same three are similar: they train at
one pace and end after about the same number of epochs.
"""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one job will take, estimated."""

    wall_s: float | None = None
    """Seconds; None if no similar job has run."""
    source: str = "no similar job has run"
    """Where `wall_s` is from."""
    memory_bytes: int | None = None
    """Memory of what `MEMORY_NOTE` lists; None for a probe."""
    disk_bytes: int = 0
    """Size of its checkpoint."""

    def plain(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {
            "estimate_s": self.wall_s,
            "estimate_from": self.source,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class Total:
    """What all jobs that are to run will take, estimated."""

    jobs: int
    known_jobs: int
    """Jobs whose time is known."""
    wall_s: float
    """Seconds of the jobs whose time is known, one after another."""
    sources: tuple[str, ...]
    """Where the times are from."""
    memory_bytes: int
    """Memory of the largest job."""
    disk_bytes: int
    """Size of all checkpoints."""
    disk_at_work_bytes: int
    """Size of the saved state of the largest job while it runs."""
    disk_free_bytes: int
    """Free bytes on the disk of the records."""

    def plain(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {**vars(self), "sources": list(self.sources), "memory_note": MEMORY_NOTE}


@dataclass(frozen=True, kw_only=True)
class PlanEstimate:
    """What the jobs of a plan that are to run will take, estimated."""

    jobs: dict[str, Estimate]
    """Job id -> estimate."""
    total: Total
    """Of all of them."""
    added: Added
    """Data set -> arm -> backbone -> what the plug-in adds; without `dense`."""
    not_measured: tuple[str, ...] = ()
    """A line for each backbone whose pace could not be measured."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        jobs: dict[str, Estimate],
        *,
        folder: Path,
        not_measured: Sequence[str] = (),
    ) -> "PlanEstimate":
        """Add up the estimates of a plan's jobs. `folder` is on the disk of the records."""
        return cls(
            jobs=jobs,
            total=total_of(jobs.values(), folder=folder),
            added=added_budgets(plan),
            not_measured=tuple(not_measured),
        )


def estimates_of(
    plan: Plan,
    *,
    runs: Runs,
    device_kind: DeviceKind,
    measured: Mapping[SimilarityKey, Pace] | None = None,
) -> dict[str, Estimate]:
    """Estimate each job that is to run.

    Args:
        plan: The plan.
        runs: Its records give the paces. Records that cannot be read are left out.
        device_kind: The kind of device on which the jobs will run.
        measured: Paces from `measure`, used if there is no record of a similar job.

    Returns:
        Job id -> estimate.
    """
    if not plan.to_run:
        return {}
    records, _ = runs.readable()
    trained = [record for record in records if isinstance(record, RunRecord)]
    paces = {**(measured or {}), **paces_of(trained, device_kind=device_kind)}
    probes = [
        record
        for record in records
        if isinstance(record, ProbeRecord) and record.environment.device_kind == device_kind
    ]
    budgets = budgets_of(plan)
    found = {}
    for planned in plan.to_run:
        if planned.job is None or planned.job_id is None:
            continue
        if planned.job_spec.kind == "train":
            found[planned.job_id] = _of_training(planned.job, budgets[budget_key(planned)], paces)
        else:
            found[planned.job_id] = _of_probe(planned.job, probes)
    return found


def total_of(estimates: Iterable[Estimate], *, folder: Path) -> Total:
    """Return the sum of estimates. `folder`, which need not exist, is on their disk."""
    found = list(estimates)
    known = [estimate for estimate in found if estimate.wall_s is not None]
    return Total(
        jobs=len(found),
        known_jobs=len(known),
        wall_s=sum(estimate.wall_s or 0 for estimate in known),
        sources=tuple(dict.fromkeys(estimate.source for estimate in known)),
        memory_bytes=max((estimate.memory_bytes or 0 for estimate in found), default=0),
        disk_bytes=sum(estimate.disk_bytes for estimate in found),
        disk_at_work_bytes=max(
            (_COPIES_IN_TRAINING * estimate.disk_bytes for estimate in found), default=0
        ),
        disk_free_bytes=shutil.disk_usage(nearest_folder(folder)).free,
    )


def paces_of(records: Iterable[RunRecord], *, device_kind: DeviceKind) -> dict[SimilarityKey, Pace]:
    """Return the median pace of similar jobs that have a record on this kind of device."""
    groups: dict[SimilarityKey, list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.history and record.environment.device_kind == device_kind:
            groups[similarity_key(record.job)].append(record)
    return {key: _pace(members) for key, members in groups.items()}


def usual_epochs(records: Iterable[RunRecord]) -> dict[SimilarityKey, float]:
    """Return the median number of epochs of similar jobs that early stopping has ended."""
    found: dict[SimilarityKey, list[int]] = defaultdict(list)
    for record in records:
        if record.result.stopped == "patience":
            found[similarity_key(record.job)].append(record.result.epochs)
    return {key: statistics.median(epochs) for key, epochs in found.items()}


def similarity_key(job: Job) -> SimilarityKey:
    """Return the key that a job shares with similar ones."""
    return job.fingerprint, job.backbone, job.plugin


def _pace(members: Sequence[RunRecord]) -> Pace:
    budget = members[0].budget
    return Pace(
        epoch_s=statistics.median(r.history[-1].wall_s / r.result.epochs for r in members),
        macs=budget.backbone_macs + budget.plugin_macs,
        rest_s=statistics.median(r.wall_s - r.history[-1].wall_s for r in members),
        epochs=usual_epochs(members).get(similarity_key(members[0].job)),
        source="records of similar jobs",
    )


def _of_training(job: Job, budget: Budget, paces: Mapping[SimilarityKey, Pace]) -> Estimate:
    parameters = budget.backbone_parameters + budget.plugin_parameters
    macs = budget.backbone_macs + budget.plugin_macs
    activations = _ACTIVATIONS_A_MAC * macs * job.training.batch_size
    size = Estimate(
        memory_bytes=round(_FLOAT_BYTES * (_COPIES_IN_TRAINING * parameters + activations)),
        disk_bytes=_FLOAT_BYTES * parameters,
    )
    pace, scale = paces.get(similarity_key(job)), 1.0
    if pace is None:
        near = [pace for key, pace in paces.items() if key[:2] == (job.fingerprint, job.backbone)]
        if not near:
            return size
        pace = near[0]
        scale = macs / pace.macs if pace.macs else 1.0
    # Without a record: two validations that improve, and `patience` that do not.
    epochs = min(pace.epochs or job.training.patience + 2, job.training.max_epochs)
    return Estimate(
        wall_s=epochs * pace.epoch_s * scale + pace.rest_s,
        source=pace.source if scale == 1.0 else f"{pace.source}, scaled from another arm",
        memory_bytes=size.memory_bytes,
        disk_bytes=size.disk_bytes,
    )


def _of_probe(job: Job, probes: Sequence[ProbeRecord]) -> Estimate:
    like = [
        record.wall_s
        for record in probes
        if (record.job.kind, record.job.fingerprint, record.job.backbone)
        == (job.kind, job.fingerprint, job.backbone)
    ]
    if not like:
        return Estimate()
    return Estimate(wall_s=statistics.median(like), source="records of similar jobs")
