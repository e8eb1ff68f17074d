"""Which runs may be compared with each other, and why others may not.

Runs are grouped by what a comparison holds fixed (`ComparisonKey`) and by arm (`ArmKey`), then
paired seed by seed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prime_bench.base.identity import canonical_json
from prime_bench.recipe.job import Job
from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True, order=True)
class ComparisonKey:
    """What all runs of a comparison have in common, whatever their arm and seed.

    Settings are canonical JSON.
    """

    dataset: str
    variant: str
    """Digest of the data settings."""
    fingerprint: str
    """Digest of the table: runs on two versions of a table are not compared."""
    training: str
    backbone: str
    backbone_settings: str
    backbone_code: str = ""
    """Digest of the source files of a backbone from another package, else empty."""


@dataclass(frozen=True, kw_only=True, order=True)
class ArmKey:
    """What identifies an arm; the name that a recipe gives it does not count."""

    plugin: str
    settings: str
    code: str = ""
    """Digest of the source files of a plug-in from another package, else empty."""
    chosen_for: str = ""
    """Name of the arm whose chosen point this is; `settings` has what its points share. Else empty.
    """


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs of one seed that differ in the arm alone; of tuned arms, in what was chosen."""

    seed: int
    baseline: RunRecord
    arm: RunRecord
    mismatch: str = ""
    """Why the two runs should not be compared; empty unless mixed pairs were asked for."""


@dataclass(frozen=True, kw_only=True)
class Unpaired:
    """A seed for which two arms have no pair."""

    seed: int
    kind: Literal["missing", "mismatch"]
    """`missing`: one arm has no record. `mismatch`: both have, and may not be compared."""
    reason: str


GroupedRuns = dict[ComparisonKey, dict[ArmKey, dict[int, RunRecord]]]
"""Record of each run, by comparison, arm and seed."""


def comparison_key(record: RunRecord) -> ComparisonKey:
    """Return the key of the comparison that the record belongs to."""
    return comparison_key_of(record.job, dataset=record.dataset, variant=record.data_variant)


def comparison_key_of(job: Job, *, dataset: str, variant: str) -> ComparisonKey:
    """Return the key of the comparison that the job belongs to.

    `dataset` is the name of its data set, and `variant` the digest of the data settings.
    """
    return ComparisonKey(
        dataset=dataset,
        variant=variant,
        fingerprint=job.fingerprint,
        training=canonical_json(job.training.plain()),
        backbone=job.backbone,
        backbone_settings=canonical_json(job.backbone_settings),
        backbone_code=job.code.get(job.backbone, ""),
    )


def arm_key(record: RunRecord) -> ArmKey:
    """Return the key of the record's arm."""
    return arm_key_of(record.job)


def arm_key_of(job: Job) -> ArmKey:
    """Return the key of the job's arm."""
    return ArmKey(
        plugin=job.plugin,
        settings=canonical_json(job.plugin_settings),
        code=job.code.get(job.plugin, ""),
    )


def group_runs(records: Iterable[RunRecord]) -> tuple[GroupedRuns, list[RunRecord]]:
    """Group records by comparison, arm and seed.

    Returns:
        The groups, and the records left out of them because the same run has another record with
        higher `numerics`.
    """
    grouped: GroupedRuns = {}
    outdated: list[RunRecord] = []
    # Sorted, so that what a report says does not depend on the order of a folder's files.
    for record in sorted(records, key=lambda record: (record.job.numerics, record.job_id)):
        seeds = grouped.setdefault(comparison_key(record), {}).setdefault(arm_key(record), {})
        if record.job.seed in seeds:
            outdated.append(seeds[record.job.seed])
        seeds[record.job.seed] = record
    return grouped, outdated


def mismatches(a: RunRecord, b: RunRecord, *, tuned: bool = False) -> list[str]:
    """List the reasons why two runs may not be compared; empty if they may.

    `tuned` allows other initial weights where the settings of the backbones differ.
    """
    facts: dict[str, tuple[object, object]] = {
        "initial weights": (a.pairing.initial_weights, b.pairing.initial_weights),
        "row order": (a.pairing.row_order, b.pairing.row_order),
        "data fingerprint": (a.job.fingerprint, b.job.fingerprint),
        "numerics": (a.job.numerics, b.job.numerics),
        "device kind": (a.environment.device_kind, b.environment.device_kind),
    }
    if tuned and a.job.backbone_settings != b.job.backbone_settings:
        del facts["initial weights"]
    reasons = [
        f"different {name}: {_short(left)} against {_short(right)}"
        for name, (left, right) in facts.items()
        if left != right
    ]
    # No difference can be computed with it; the table marks the cell of such a run as degenerate.
    without = [run.arm for run in (a, b) if not _scored(run)]
    return [*reasons, *(f"the run of {arm} has no score" for arm in without)]


def pair_up(
    baseline: Mapping[int, RunRecord],
    arm: Mapping[int, RunRecord],
    *,
    mixed: bool = False,
    tuned: bool = False,
) -> tuple[list[Pair], list[Unpaired]]:
    """Pair the runs of two arms of one comparison, seed by seed.

    Args:
        baseline: Seed -> the baseline's run.
        arm: Seed -> the other arm's run.
        mixed: Whether to pair runs that may not be compared, too; `Pair.mismatch` then says why
            they may not. A run without a score is in no pair either way.
        tuned: Whether the backbone's settings were chosen for each arm on its own. Where they
            differ, so may the initial weights.

    Returns:
        The pairs, and the seeds that have none, each in order of the seeds.
    """
    pairs: list[Pair] = []
    unpaired: list[Unpaired] = []
    for seed in sorted({*baseline, *arm}):
        left, right = baseline.get(seed), arm.get(seed)
        if left is None or right is None:
            present, absent = ("arm", "baseline") if left is None else ("baseline", "arm")
            reason = f"the {present} has a record, the {absent} has none"
            unpaired.append(Unpaired(seed=seed, kind="missing", reason=reason))
        elif (faults := mismatches(left, right, tuned=tuned)) and not (
            mixed and _scored(left, right)
        ):
            unpaired.append(Unpaired(seed=seed, kind="mismatch", reason="; ".join(faults)))
        else:
            pairs.append(Pair(seed=seed, baseline=left, arm=right, mismatch="; ".join(faults)))
    return pairs, unpaired


def _scored(*runs: RunRecord) -> bool:
    """Whether each run has both test metrics."""
    return all(None not in (run.result.test.auc, run.result.test.logloss) for run in runs)


def _short(value: object) -> str:
    """Shorten a digest to 8 digits; leave other values as they are."""
    text = str(value)
    return text[:8] if len(text) == 64 else text
