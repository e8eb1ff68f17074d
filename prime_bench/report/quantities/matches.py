"""Two sets of runs side by side: which are compared, their differences, and other settings.

A positive difference favours the right-hand runs, in AUC and in LogLoss.
"""

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from prime_bench.catalog import DENSE
from prime_bench.recipe.differences import differing_keys, dotted
from prime_bench.report.quantities.formulas import Moments, Tally, improvements, moments, tally
from prime_bench.report.quantities.layout import (
    ArmColumn,
    dataset_labels,
    layout_from_records,
)
from prime_bench.store.pairing import (
    ComparisonKey,
    arm_key,
    comparison_key,
    group_runs,
    mismatches,
)
from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class Match:
    """Two runs of one seed that are compared."""

    name: str
    """Data set and backbone as a report calls them and, where both sides have the same, arm."""
    left: RunRecord
    right: RunRecord


@dataclass(frozen=True, kw_only=True)
class MatchRow:
    """The matches of one name, over all seeds."""

    name: str
    left: Moments | None
    """Test AUC; None, as `right`, `auc` and `logloss`, where no match has scores."""
    right: Moments | None
    auc: Moments | None
    """Paired differences of AUC."""
    auc_tally: Tally
    logloss: Moments | None
    seeds: list[int]
    """Seeds of the matches with scores."""
    unpaired: dict[int, str]
    """Seed -> why its two runs are not a pair. They are compared, since what differs may be what
    the comparison is about."""
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Settings that differ in any of the matches, by dotted key: the values of the first."""

    @property
    def changed(self) -> bool:
        """Whether a setting or a score differs."""
        same = self.auc_tally.wins == self.auc_tally.losses == 0
        other_loss = self.logloss is not None and self.logloss.mean != 0
        return bool(self.settings) or not same or other_loss


def match_arms(records: Iterable[RunRecord], left: str, right: str) -> list[Match]:
    """Match the runs of two arms wherever all else is the same.

    `left` and `right` are names of arms; a name that no arm has stands for every arm of that
    plug-in. Two arms of one name, or of one plug-in, are rows of their own.
    """
    labels = _Labels(records)
    sides = [labels.arms_called(name) for name in (left, right)]
    found = []
    for comparison, place in labels.places.items():
        arms = labels.grouped[comparison]
        for one, other in itertools.product(*sides):
            runs = [arms.get(arm.key, {}) for arm in (one, other)]
            telling = [
                arm.name for arm, side in zip((one, other), sides, strict=True) if len(side) > 1
            ]
            found += [
                Match(name=", ".join([place, *telling]), left=runs[0][seed], right=runs[1][seed])
                for seed in sorted({*runs[0]} & {*runs[1]})
            ]
    return found


def match_sets(
    left: Iterable[RunRecord], right: Iterable[RunRecord]
) -> tuple[list[Match], list[str]]:
    """Match runs of the same job; others by data set, backbone, arm and seed.

    The second way needs names that one run of each side has. Returns the matches, and a line for
    each run without one.
    """
    sides = [{record.job_id: record for record in records} for records in (left, right)]
    matched = [(sides[0][job_id], sides[1][job_id]) for job_id in sides[0] if job_id in sides[1]]
    rest = [
        [record for job_id, record in side.items() if job_id not in other]
        for side, other in (sides, sides[::-1])
    ]
    single = [_single(records) for records in rest]
    matched += [(single[0][key], single[1][key]) for key in single[0] if key in single[1]]
    partners = {id(record) for pair in matched for record in pair}
    alone = [
        f"{where} alone: {' '.join(map(str, _key(record)))}"
        for where, records in zip(("left", "right"), rest, strict=True)
        for record in records
        if id(record) not in partners
    ]
    labels = _Labels([a for a, _ in matched])
    found = [Match(name=labels.of(a), left=a, right=b) for a, b in matched]
    return sorted(found, key=lambda match: (match.name, match.left.job.seed)), alone


def rows_of(matches: Iterable[Match]) -> list[MatchRow]:
    """Group matches by name, in order of the first of each."""
    groups: dict[str, list[Match]] = {}
    for match in matches:
        groups.setdefault(match.name, []).append(match)
    return [_row(name, group) for name, group in groups.items()]


def settings_of(record: RunRecord) -> dict[str, Any]:
    """Return the settings and the environment of a run by dotted key, without the seed."""
    job, environment = record.job, record.environment
    table = {
        "data": {"fingerprint": job.fingerprint[:12]},
        "backbone": {"name": job.backbone, **job.backbone_settings},
        "arm": {"plugin": job.plugin, **job.plugin_settings},
        "training": job.training.plain(),
        "numerics": job.numerics,
        "code": job.code,
        "environment": {
            key: getattr(environment, key)
            for key in ("device", "device_kind", "threads", "python", "commit", "versions")
        },
    }
    return dotted(table)


class _Labels:
    """What a report calls the places and arms of records."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self.grouped, _ = group_runs(records)
        layout = layout_from_records(self.grouped, baseline=DENSE, dataset_labels=dataset_labels())
        self.columns = layout.arms
        self.places: dict[ComparisonKey, str] = {
            row.comparison: f"{block.label} {row.label}"
            for block in layout.blocks
            for row in block.rows
            if row.comparison is not None
        }
        """Data set and backbone, with what tells them from others, in the order of a report."""

    def arms_called(self, name: str) -> list[ArmColumn]:
        """The arms of that name; where there is none, those of that plug-in."""
        named = {
            key
            for arms in self.grouped.values()
            for key, runs in arms.items()
            if any(run.arm == name for run in runs.values())
        }
        exact = [column for column in self.columns if column.key in named]
        return exact or [column for column in self.columns if column.key.plugin == name]

    def of(self, record: RunRecord) -> str:
        """Data set, backbone and arm of a run."""
        arm = next(column.name for column in self.columns if column.key == arm_key(record))
        return f"{self.places[comparison_key(record)]} {arm}"


def _row(name: str, group: list[Match]) -> MatchRow:
    scored = [
        (match.left.job.seed, left, right)
        for match in group
        if (left := _test(match.left)) and (right := _test(match.right))
    ]
    lefts, rights = [left for _, left, _ in scored], [right for *_, right in scored]
    auc = improvements("auc", baseline=[x for x, _ in lefts], arm=[x for x, _ in rights])
    logloss = improvements("logloss", baseline=[y for _, y in lefts], arm=[y for _, y in rights])
    return MatchRow(
        name=name,
        left=moments([x for x, _ in lefts]) if scored else None,
        right=moments([x for x, _ in rights]) if scored else None,
        auc=moments(auc) if scored else None,
        auc_tally=tally(auc),
        logloss=moments(logloss) if scored else None,
        seeds=[seed for seed, *_ in scored],
        unpaired={
            match.left.job.seed: "; ".join(unlike)
            for match in group
            if (unlike := mismatches(match.left, match.right))
        },
        settings=_differing(group),
    )


def _differing(group: list[Match]) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for match in group:
        for item in differing_keys(settings_of(match.left), settings_of(match.right)):
            found.setdefault(item.key, (item.left, item.right))
    return found


def _test(record: RunRecord) -> tuple[float, float] | None:
    """AUC and LogLoss of the test rows; None where one of them is none."""
    auc, logloss = record.result.test.auc, record.result.test.logloss
    return None if auc is None or logloss is None else (auc, logloss)


def _single(records: Iterable[RunRecord]) -> dict[Hashable, RunRecord]:
    """The runs whose names no other run of their side has."""
    records = list(records)
    times = Counter(map(_key, records))
    return {_key(record): record for record in records if times[_key(record)] == 1}


def _key(record: RunRecord) -> tuple[str, str, str, int]:
    return record.dataset, record.job.backbone, record.arm, record.job.seed
