"""Records to pairs: which runs may be compared, and what stands between those that may not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prime_bench.base.identity import canonical_json
from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """What the arms of a comparison share but for the seed. Settings are canonical JSON."""

    dataset: str
    variant: str
    """Digest of the data's settings."""
    fingerprint: str
    """Digest of the data: two versions of one variant are two places."""
    training: str
    backbone: str
    backbone_settings: str
    backbone_code: str = ""
    """Digest of its source files where it is not ours."""


@dataclass(frozen=True, kw_only=True, order=True)
class ArmKey:
    """What makes an arm, whatever a recipe calls it."""

    plugin: str
    settings: str
    code: str = ""
    """Digest of a plug-in's source files where it is not ours."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs that differ in the arm alone."""

    seed: int
    baseline: RunRecord
    arm: RunRecord
    unlike: str = ""
    """What would forbid the comparison, where it was asked for all the same."""


@dataclass(frozen=True, kw_only=True)
class Unpaired:
    """A seed that is in no comparison."""

    seed: int
    kind: Literal["missing", "unlike"]
    """One of the two has no record, or both have and may not be compared."""
    reason: str


Shelf = dict[Place, dict[ArmKey, dict[int, RunRecord]]]
"""One record for each place, arm and seed."""


def place_of(record: RunRecord) -> Place:
    """Where the record belongs."""
    job = record.job
    return Place(
        dataset=record.dataset,
        variant=record.data_variant,
        fingerprint=job.fingerprint,
        training=settings_text(job.training.plain()),
        backbone=job.backbone,
        backbone_settings=settings_text(job.backbone_settings),
        backbone_code=job.code.get(job.backbone, ""),
    )


def arm_of(record: RunRecord) -> ArmKey:
    """Which arm the record belongs to."""
    job = record.job
    return ArmKey(
        plugin=job.plugin,
        settings=settings_text(job.plugin_settings),
        code=job.code.get(job.plugin, ""),
    )


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as one comparable text."""
    return canonical_json(settings)


def shelve(records: Iterable[RunRecord]) -> tuple[Shelf, list[RunRecord]]:
    """Sort records into places; give back those that another with higher `numerics` replaces."""
    shelf: Shelf = {}
    outdated: list[RunRecord] = []
    # Sorted, so that what a report says does not depend on the order of a folder's files.
    for record in sorted(records, key=lambda record: (record.job.numerics, record.job_id)):
        seeds = shelf.setdefault(place_of(record), {}).setdefault(arm_of(record), {})
        if record.job.seed in seeds:
            outdated.append(seeds[record.job.seed])
        seeds[record.job.seed] = record
    return shelf, outdated


def differences(a: RunRecord, b: RunRecord) -> list[str]:
    """What forbids comparing two runs, in words; empty where nothing does."""
    facts: dict[str, tuple[object, object]] = {
        "initial weights": (a.pairing.initial_weights, b.pairing.initial_weights),
        "row order": (a.pairing.row_order, b.pairing.row_order),
        "data fingerprint": (a.job.fingerprint, b.job.fingerprint),
        "numerics": (a.job.numerics, b.job.numerics),
        "device kind": (a.environment.device_kind, b.environment.device_kind),
    }
    unlike = [
        f"different {name}: {_short(left)} against {_short(right)}"
        for name, (left, right) in facts.items()
        if left != right
    ]
    # Nothing can be computed with it; that the run is degenerate is said where its cell is flagged.
    without = [run.arm for run in (a, b) if not _scored(run)]
    return [*unlike, *(f"the run of {arm} has no score" for arm in without)]


def pair_up(
    baseline: Mapping[int, RunRecord], arm: Mapping[int, RunRecord], *, mixed: bool = False
) -> tuple[list[Pair], list[Unpaired]]:
    """Pair two arms of one place seed by seed; a seed that only one of them has is not compared.

    `mixed` also pairs runs that may not be compared, and the pair says why they may not. A run
    without a score is in no pair.
    """
    pairs: list[Pair] = []
    unpaired: list[Unpaired] = []
    for seed in sorted({*baseline, *arm}):
        left, right = baseline.get(seed), arm.get(seed)
        if left is None or right is None:
            present, absent = ("arm", "baseline") if left is None else ("baseline", "arm")
            reason = f"the {present} has a record, the {absent} has none"
            unpaired.append(Unpaired(seed=seed, kind="missing", reason=reason))
        elif (faults := differences(left, right)) and not (mixed and _scored(left, right)):
            unpaired.append(Unpaired(seed=seed, kind="unlike", reason="; ".join(faults)))
        else:
            pairs.append(Pair(seed=seed, baseline=left, arm=right, unlike="; ".join(faults)))
    return pairs, unpaired


def _scored(*runs: RunRecord) -> bool:
    """Whether every run has both test metrics."""
    return all(None not in (run.result.test.auc, run.result.test.logloss) for run in runs)


def _short(value: object) -> str:
    """A digest's first 8 digits; anything else as it is."""
    text = str(value)
    return text[:8] if len(text) == 64 else text
