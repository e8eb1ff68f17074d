"""What the jobs of a plan will take: parameters, multiply-accumulates, time, memory and disk."""

import functools
import heapq
import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prime_bench.base.files import nearest_folder
from prime_bench.findings import CostFindings, median_ratio
from prime_bench.recipe.job import Job
from prime_bench.schedule.devices import Device
from prime_bench.schedule.plan import Plan, Planned
from prime_bench.schedule.slots import Slots
from prime_bench.settings.interface import Budget, budget_of
from prime_bench.settings.memory import MemoryNeed
from prime_bench.store.record import ProbeRecord, Record, RunRecord

BudgetKey = tuple[str, str, str]
"""Data set, arm, backbone: what a job's budget depends on within one plan."""
Added = dict[str, dict[str, dict[str, Budget]]]


def budget_key(planned: Planned) -> BudgetKey:
    """Return the key of a job's budget."""
    job_spec = planned.job_spec
    return job_spec.dataset, job_spec.arm.name, job_spec.backbone_name


def budgets_of(plan: Plan) -> dict[BudgetKey, Budget]:
    """Return the budgets of all jobs of one recipe whose tables are prepared. A probe has that of
    its arm.
    """
    budgets: dict[BudgetKey, Budget] = {}
    for planned in plan.jobs:
        key, job_spec = budget_key(planned), planned.job_spec
        if planned.job is not None and key not in budgets and job_spec.dataset in plan.shapes:
            budgets[key] = budget_of(
                job_spec.backbone_settings,
                job_spec.arm.settings,
                shape=plan.shapes[job_spec.dataset],
            )
    return budgets


def needs_of(plan: Plan) -> dict[str, MemoryNeed]:
    """Return job id -> memory need of each job that is to run, where its table is prepared."""
    needs: dict[str, MemoryNeed] = {}
    for part in plan.by_recipe:
        needs |= _needs_of_recipe(part)
    return needs


def _needs_of_recipe(plan: Plan) -> dict[str, MemoryNeed]:
    budgets, needs = budgets_of(plan), {}
    for planned in plan.to_run:
        job_spec, manifest = planned.job_spec, plan.manifests[planned.job_spec.dataset]
        budget = budgets.get(budget_key(planned))
        if planned.job_id is not None and manifest is not None and budget is not None:
            needs[planned.job_id] = MemoryNeed.of(
                budget,
                plan.shapes[job_spec.dataset],
                embedding_dim=job_spec.backbone_settings.embedding_dim,
                batch_size=job_spec.training.batch_size,
                train_rows=manifest.rows.train,
                valid_rows=manifest.rows.valid,
                test_rows=manifest.rows.test,
            )
    return needs


def added_budgets(plan: Plan) -> Added:
    """Return data set -> arm -> backbone -> budget; without `dense`, which adds nothing."""
    plugins = {planned.job_spec.arm.name: planned.job_spec.arm.plugin for planned in plan.jobs}
    added: Added = {}
    for (dataset, arm, backbone), budget in budgets_of(plan).items():
        if plugins[arm] != "dense":
            added.setdefault(dataset, {}).setdefault(arm, {})[backbone] = budget
    return added


MEMORY_NOTE = (
    "memory: the process, weights, gradients, Adam's moments, copies, row order, and roughly the "
    "activations of a batch; on a GPU also the rows"
)
RANGE_NOTE = (
    "range: every job as fast and as short as the fastest and shortest of its similar records, or "
    "as the slowest and longest"
)
_FLOAT_BYTES = 4
_COPIES_IN_STATE = 4


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A median with the smallest and the largest value."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of one value or more."""
        found = sorted(values)
        return cls(low=found[0], middle=statistics.median(found), high=found[-1])

    def times(self, other: "Spread") -> "Spread":
        """Multiply; both are positive."""
        return Spread(
            low=self.low * other.low, middle=self.middle * other.middle, high=self.high * other.high
        )

    def plus(self, other: "Spread") -> "Spread":
        """Return the spread of the sum of two numbers that are low or high together."""
        return Spread(
            low=self.low + other.low, middle=self.middle + other.middle, high=self.high + other.high
        )

    def at_most(self, limit: float) -> "Spread":
        """Cut off what is above `limit`."""
        return Spread(
            low=min(self.low, limit), middle=min(self.middle, limit), high=min(self.high, limit)
        )


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast an arm trains on a backbone and a data set."""

    epoch_s: Spread
    macs: int
    """Multiply-accumulates a row; the pace of an arm that nothing was measured of is scaled by
    them.
    """
    rest_s: Spread = Spread(low=0.0, middle=0.0, high=0.0)
    """Seconds of a job outside its epochs."""
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
    """Seconds; None if nothing like the job has run."""
    low_s: float | None = None
    """Seconds if it is as fast and short as the fastest and shortest of its similar records."""
    high_s: float | None = None
    """Seconds if it is as slow and long as the slowest and longest."""
    source: str = "no similar job has run"
    """Where `wall_s` is from."""
    memory_bytes: int | None = None
    """Memory of what `MEMORY_NOTE` lists."""
    disk_bytes: int = 0
    """Size of its checkpoint."""

    def plain(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {
            "estimate_s": self.wall_s,
            "estimate_low_s": self.low_s,
            "estimate_high_s": self.high_s,
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
    slots: Slots
    """How many run at once."""
    wall_s: float
    """Seconds of the jobs whose time is known, one after another."""
    elapsed_s: float
    """Seconds until the last of them ends, with so many at once."""
    elapsed_low_s: float
    """The same with `Estimate.low_s` of each."""
    elapsed_high_s: float
    """The same with `Estimate.high_s` of each."""
    sources: tuple[str, ...]
    """Where the times are from."""
    memory_bytes: int
    """Memory of the largest job."""
    disk_bytes: int
    """Size of all checkpoints."""
    disk_at_work_bytes: int
    """Size of the saved states of the largest jobs while they run."""
    disk_free_bytes: int
    """Free bytes on the disk of the records."""

    def plain(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {
            **vars(self),
            "slots": vars(self.slots),
            "sources": list(self.sources),
            "memory_note": MEMORY_NOTE,
            "range_note": RANGE_NOTE,
        }


@dataclass(frozen=True, kw_only=True)
class PlanEstimate:
    """What the jobs of a plan that are to run will take, estimated."""

    jobs: dict[str, Estimate]
    """Job id -> estimate."""
    total: Total
    """What all of them will take together."""
    added: Added
    """Data set -> arm -> backbone -> what the plug-in adds; without `dense`. Empty for the plans of
    several recipes, whose arms of one name may differ."""
    not_measured: tuple[str, ...] = ()
    """A line for each arm whose pace could not be measured."""


class Experience:
    """What records, and measurements, tell of the time that jobs take on a device.

    The records of similar jobs come first: those of the same device, and on a CPU of as many
    threads, with as many jobs at once; if there are none, those of the same kind of device.
    """

    def __init__(self, records: Iterable[Record], *, device: Device, slots: Slots) -> None:
        here = [one for one in records if one.environment.device_kind == device.kind]
        self._likeness = functools.partial(_likeness, device=device, slots=slots)
        trained: dict[SimilarityKey, list[RunRecord]] = defaultdict(list)
        self._probes: dict[tuple[str, str, str], list[ProbeRecord]] = defaultdict(list)
        self._ratios: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
        for record in here:
            if isinstance(record, ProbeRecord):
                job = record.job
                self._probes[job.kind, job.fingerprint, job.backbone].append(record)
                self._learn_costs(record)
            elif record.history:
                trained[similarity_key(record.job)].append(record)
        self._paces = {key: self._pace(members) for key, members in trained.items()}
        self._learn_ratios()
        self._epochs = _epochs(record for members in trained.values() for record in members)

    def learn(self, key: SimilarityKey, pace: Pace) -> None:
        """Add a pace that was measured, unless records tell one."""
        self._paces.setdefault(key, pace)

    def knows(self, job: Job) -> bool:
        """Whether the job's pace is known without a guess from multiply-accumulates."""
        if similarity_key(job) in self._paces:
            return True
        return any(self._ratio(job, other=key[2]) for key in self._siblings(job))

    def estimate(self, job: Job, *, macs: int) -> tuple[Spread | None, str]:
        """Return the seconds of a job and where they are from; None and why not."""
        if job.kind != "train":
            return self._of_probe(job)
        pace, scale, source = self._scaled(job, macs=macs)
        if pace is None:
            return None, source
        epochs = self._usual_epochs(job).at_most(job.training.max_epochs)
        scaled = Spread.of([scale])
        return epochs.times(pace.epoch_s).times(scaled).plus(pace.rest_s), source

    def _scaled(self, job: Job, *, macs: int) -> tuple[Pace | None, float, str]:
        """A pace, the factor from its arm to the job's, and where both are from."""
        pace = self._paces.get(similarity_key(job))
        if pace is not None:
            return pace, 1.0, pace.source
        siblings = self._siblings(job)
        if not siblings:
            return None, 1.0, Estimate.source
        for key in siblings:
            found = self._ratio(job, other=key[2])
            if found is not None:
                pace, (scale, of) = self._paces[key], found
                return pace, scale, f"{pace.source} of {key[2]}, times the ratio of {of}"
        pace = self._paces[siblings[0]]
        scale = macs / pace.macs if pace.macs else 1.0
        return pace, scale, f"{pace.source} of {siblings[0][2]}, scaled by multiply-accumulates"

    def _siblings(self, job: Job) -> list[SimilarityKey]:
        """Keys of the paces of other arms; Dense first, since most ratios are over it."""
        keys = (key for key in self._paces if key[:2] == (job.fingerprint, job.backbone))
        return sorted(keys, key=lambda key: (key[2] != "dense", key[2]))

    def _ratio(self, job: Job, *, other: str) -> tuple[float, str] | None:
        """How much longer the job's arm takes than `other`, measured anywhere on the backbone."""
        own, baseline = (self._over_dense(job, plugin) for plugin in (job.plugin, other))
        if own is None or baseline is None:
            return None
        return own[0] / baseline[0], own[1] if job.plugin != "dense" else baseline[1]

    def _over_dense(self, job: Job, plugin: str) -> tuple[float, str] | None:
        if plugin == "dense":
            return 1.0, "dense"
        found = self._ratios.get((job.backbone, plugin))
        if not found:
            return None
        return statistics.median(ratio for _, ratio in found), found[0][0]

    def _learn_costs(self, record: ProbeRecord) -> None:
        if not isinstance(record.findings, CostFindings):
            return
        dense, *others = record.findings.arms
        for arm in others:
            ratio = median_ratio(arm.training_ms, dense.training_ms)
            self._ratios[record.job.backbone, arm.plugin].append(("measured costs", ratio))

    def _learn_ratios(self) -> None:
        for (fingerprint, backbone, plugin), pace in self._paces.items():
            dense = self._paces.get((fingerprint, backbone, "dense"))
            if plugin != "dense" and dense is not None:
                ratio = pace.epoch_s.middle / dense.epoch_s.middle
                self._ratios[backbone, plugin].append(("records on other data", ratio))

    def _pace(self, members: Sequence[RunRecord]) -> Pace:
        best = max(map(self._likeness, members))
        alike = [record for record in members if self._likeness(record) == best]
        budget = alike[0].budget
        return Pace(
            epoch_s=Spread.of(r.history[-1].wall_s / r.result.epochs for r in alike),
            macs=budget.backbone_macs + budget.plugin_macs,
            rest_s=Spread.of(max(0.0, r.wall_s - r.history[-1].wall_s) for r in alike),
            source=_SOURCES[best],
        )

    def _usual_epochs(self, job: Job) -> Spread:
        """Epochs of similar jobs; else of the backbone's other arms; else of all on the data."""
        key = similarity_key(job)
        for length in (3, 2, 1):
            if (found := self._epochs.get(key[:length])) is not None:
                return Spread.of(found)
        # Without a record: two validations that improve, and `patience` that do not. Early stopping
        # allows no run with fewer than one that improves; the largest number is a guess.
        assumed = job.training.patience + 2
        return Spread(low=assumed - 1, middle=assumed, high=2 * assumed)

    def _of_probe(self, job: Job) -> tuple[Spread | None, str]:
        like = self._probes.get((job.kind, job.fingerprint, job.backbone))
        if not like:
            return None, Estimate.source
        best = max(map(self._likeness, like))
        alike = [record.wall_s for record in like if self._likeness(record) == best]
        return Spread.of(alike), _SOURCES[best]


_SOURCES = (
    "records of similar jobs on another device, with other threads or another number at once",
    "records of similar jobs",
)


def _likeness(record: Record, *, device: Device, slots: Slots) -> int:
    """Index into `_SOURCES`: whether a record is of this device and this number of jobs."""
    environment = record.environment
    return int(
        environment.device == device.title
        and (device.kind == "cuda" or environment.threads == slots.threads)
        and environment.at_once in (None, slots.on_each)
    )


def estimates_of(
    plan: Plan, *, experience: Experience, device: Device, slots: Slots, folder: Path
) -> PlanEstimate:
    """Estimate each job that is to run, and all of them together.

    Args:
        plan: The plan.
        experience: What is known of the time that jobs take.
        device: The device on which they will run; of several the first.
        slots: How many run at once.
        folder: A folder on the disk of the records, which need not exist.
    """
    found: dict[str, Estimate] = {}
    for part in plan.by_recipe:
        found |= _estimates_of_recipe(part, experience=experience, device=device)
    return PlanEstimate(
        jobs=found,
        total=total_of(found.values(), slots=slots, folder=folder),
        added={} if plan.parts else added_budgets(plan),
    )


def _estimates_of_recipe(
    plan: Plan, *, experience: Experience, device: Device
) -> dict[str, Estimate]:
    needs, budgets, found = needs_of(plan), budgets_of(plan), {}
    for planned in plan.to_run:
        if planned.job is None or planned.job_id is None:
            continue
        budget, need = budgets.get(budget_key(planned)), needs.get(planned.job_id)
        macs = 0 if budget is None else budget.backbone_macs + budget.plugin_macs
        time, source = experience.estimate(planned.job, macs=macs)
        memory_bytes = None
        if need is not None:
            total_bytes = device.memory_bytes
            memory_bytes = need.gpu_bytes(total_bytes) if total_bytes else need.host_bytes
        trains = planned.job_spec.kind == "train"
        found[planned.job_id] = Estimate(
            wall_s=None if time is None else time.middle,
            low_s=None if time is None else time.low,
            high_s=None if time is None else time.high,
            source=source,
            memory_bytes=memory_bytes,
            disk_bytes=_FLOAT_BYTES * need.parameters if trains and need is not None else 0,
        )
    return found


def total_of(estimates: Iterable[Estimate], *, slots: Slots, folder: Path) -> Total:
    """Return the sum of estimates. `folder`, which need not exist, is on their disk."""
    found = list(estimates)
    known = [estimate for estimate in found if estimate.wall_s is not None]
    largest = sorted((estimate.disk_bytes for estimate in found), reverse=True)[: slots.total]
    return Total(
        jobs=len(found),
        known_jobs=len(known),
        slots=slots,
        wall_s=sum(estimate.wall_s or 0 for estimate in known),
        elapsed_s=elapsed((estimate.wall_s or 0 for estimate in known), at_once=slots.total),
        elapsed_low_s=elapsed((estimate.low_s or 0 for estimate in known), at_once=slots.total),
        elapsed_high_s=elapsed((estimate.high_s or 0 for estimate in known), at_once=slots.total),
        sources=tuple(dict.fromkeys(estimate.source for estimate in known)),
        memory_bytes=max((estimate.memory_bytes or 0 for estimate in found), default=0),
        disk_bytes=sum(estimate.disk_bytes for estimate in found),
        disk_at_work_bytes=_COPIES_IN_STATE * sum(largest),
        disk_free_bytes=shutil.disk_usage(nearest_folder(folder)).free,
    )


def elapsed(times_s: Iterable[float], *, at_once: int) -> float:
    """Return the seconds after which the last job ends, if each starts in order as soon as fewer
    than `at_once` are at work.
    """
    ends = [0.0] * at_once
    for time_s in times_s:
        heapq.heapreplace(ends, ends[0] + time_s)
    return max(ends)


def usual_epochs(records: Iterable[RunRecord]) -> dict[SimilarityKey, float]:
    """Return the median number of epochs of similar jobs that early stopping has ended."""
    found = _epochs(records).items()
    return {key: statistics.median(epochs) for key, epochs in found if len(key) == 3}


def _epochs(records: Iterable[RunRecord]) -> dict[tuple[str, ...], list[int]]:
    """The numbers of epochs after which early stopping has ended runs, by the first one, two and
    all three parts of their similarity keys.
    """
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for record in records:
        if record.result.stopped == "patience":
            key = similarity_key(record.job)
            for length in (1, 2, 3):
                found[key[:length]].append(record.result.epochs)
    return found


def similarity_key(job: Job) -> SimilarityKey:
    """Return the key that a job shares with similar ones."""
    return job.fingerprint, job.backbone, job.plugin
