"""Parameters and multiply-accumulates of a plan's jobs, where their data are prepared."""

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

Cell = tuple[str, str, str]
"""Data set, arm, backbone."""
Added = dict[str, dict[str, dict[str, Budget]]]


def cell_of(planned: Planned) -> Cell:
    """What a job's budget depends on, within one plan."""
    trial = planned.trial
    return trial.dataset, trial.arm.name, trial.backbone


def budgets_of(plan: Plan) -> dict[Cell, Budget]:
    """The budget of every cell whose data are prepared; jobs that measure share their arm's."""
    shapes: dict[str, TableShape] = {}
    budgets: dict[Cell, Budget] = {}
    for planned in plan.jobs:
        cell, trial = cell_of(planned), planned.trial
        file = planned.variant.folder(plan.data_dir) / SCHEMA_NAME
        if planned.job is None or cell in budgets or not file.exists():
            continue
        if trial.dataset not in shapes:
            shapes[trial.dataset] = Schema.read(file).shape
        budgets[cell] = budget_of(
            trial.backbone_settings, trial.arm.settings, shape=shapes[trial.dataset]
        )
    return budgets


def added_budgets(plan: Plan) -> Added:
    """Data set -> arm -> backbone -> budget; Dense, which adds nothing, is left out."""
    plugins = {planned.trial.arm.name: planned.trial.arm.plugin for planned in plan.jobs}
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
# A layer of 400 units keeps 1 value and 1 gradient for each 200 to 400 multiply-accumulates.
_ACTIVATIONS_A_MAC = 0.01


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast an arm trains on a backbone and a data set."""

    epoch_s: float
    macs: int
    """Multiply-accumulates a row, by which the pace of another arm is scaled."""
    rest_s: float = 0.0
    """Seconds of a job outside its epochs."""
    epochs: float | None = None
    """Epochs of jobs that early stopping has ended; None where there is none."""
    source: str


Likeness = tuple[str, str, str]
"""Fingerprint of the data, backbone, plug-in: what jobs share that train at one pace and end after
about as many epochs.
"""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one job will take."""

    wall_s: float | None = None
    """None where nothing like it has run."""
    source: str = "nothing like it has run"
    """Where `wall_s` is from."""
    memory_bytes: int | None = None
    """Of what `MEMORY_NOTE` says; None for a job that measures."""
    disk_bytes: int = 0
    """Its checkpoint."""

    def plain(self) -> dict[str, object]:
        """As JSON, for `--json`."""
        return {
            "estimate_s": self.wall_s,
            "estimate_from": self.source,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class Total:
    """What all jobs to run will take."""

    jobs: int
    known_jobs: int
    """Those with a time."""
    wall_s: float
    """Of the known jobs, one after another."""
    sources: tuple[str, ...]
    memory_bytes: int
    """Of the largest job."""
    disk_bytes: int
    """Of all checkpoints."""
    disk_at_work_bytes: int
    """Of the saved state of the largest job while it is at work."""
    disk_free_bytes: int
    """Where the records go."""

    def plain(self) -> dict[str, object]:
        """As JSON, for `--json`."""
        return {**vars(self), "sources": list(self.sources), "memory_note": MEMORY_NOTE}


def estimates_of(
    plan: Plan,
    *,
    runs: Runs,
    device_kind: DeviceKind,
    measured: Mapping[Likeness, Pace] | None = None,
) -> dict[str, Estimate]:
    """An estimate for each job that is to run, by its id. Records go before measurements; those
    that cannot be read say nothing here.
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
        if planned.trial.kind == "train":
            found[planned.job_id] = _of_training(planned.job, budgets[cell_of(planned)], paces)
        else:
            found[planned.job_id] = _of_probe(planned.job, probes)
    return found


def total_of(estimates: Iterable[Estimate], *, folder: Path) -> Total:
    """The sum of estimates; `folder`, or the nearest one above it that is there, has the disk."""
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


def paces_of(records: Iterable[RunRecord], *, device_kind: DeviceKind) -> dict[Likeness, Pace]:
    """The median pace of the records of each likeness on such a device."""
    groups: dict[Likeness, list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.history and record.environment.device_kind == device_kind:
            groups[likeness_of(record.job)].append(record)
    return {key: _pace(members) for key, members in groups.items()}


def usual_epochs(records: Iterable[RunRecord]) -> dict[Likeness, float]:
    """The median number of epochs of the jobs of each likeness that early stopping has ended."""
    found: dict[Likeness, list[int]] = defaultdict(list)
    for record in records:
        if record.result.stopped == "patience":
            found[likeness_of(record.job)].append(record.result.epochs)
    return {key: statistics.median(epochs) for key, epochs in found.items()}


def likeness_of(job: Job) -> Likeness:
    """The job's."""
    return job.fingerprint, job.backbone, job.plugin


def _pace(members: Sequence[RunRecord]) -> Pace:
    budget = members[0].budget
    return Pace(
        epoch_s=statistics.median(r.history[-1].wall_s / r.result.epochs for r in members),
        macs=budget.backbone_macs + budget.plugin_macs,
        rest_s=statistics.median(r.wall_s - r.history[-1].wall_s for r in members),
        epochs=usual_epochs(members).get(likeness_of(members[0].job)),
        source="records of like jobs",
    )


def _of_training(job: Job, budget: Budget, paces: Mapping[Likeness, Pace]) -> Estimate:
    parameters = budget.backbone_parameters + budget.plugin_parameters
    macs = budget.backbone_macs + budget.plugin_macs
    activations = _ACTIVATIONS_A_MAC * macs * job.training.batch_size
    size = Estimate(
        memory_bytes=round(_FLOAT_BYTES * (_COPIES_IN_TRAINING * parameters + activations)),
        disk_bytes=_FLOAT_BYTES * parameters,
    )
    pace, scale = paces.get(likeness_of(job)), 1.0
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
    return Estimate(wall_s=statistics.median(like), source="records of like jobs")
