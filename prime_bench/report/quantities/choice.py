"""Which of several settings has the highest validation AUC: the points of grids, or named arms.

Test scores have no part in a choice, and settings that lack a seed are never chosen.
"""

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import TypeVar

from prime_bench.base.frozen import JsonTable
from prime_bench.base.identity import canonical_json
from prime_bench.recipe.sweep import GridPoint, value_name
from prime_bench.report.quantities.layout import (
    ArmColumn,
    BackboneRow,
    BlockLayout,
    GridLayout,
    runs_by_seed,
)
from prime_bench.store.pairing import GroupedRuns
from prime_bench.store.record import RunRecord

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Settings that were tried on one backbone or on several."""

    arm: ArmColumn
    row: BackboneRow
    """The backbone; of several, the first."""
    values: JsonTable
    """The value of each key of the grids of arm and backbone; empty where neither has one."""
    runs: Mapping[int, RunRecord]
    """The runs on that backbone by seed."""
    score: float | None
    """Validation AUC, the mean over backbones of their means over seeds; None where a seed lacks
    one."""
    missing: tuple[int, ...]
    """The seeds that lack one."""

    @property
    def label(self) -> str:
        """`rank = 4, net_dropout = 0.1`, or the arm's label where no grid has a key."""
        parts = [f"{key} = {value_name(value)}" for key, value in self.values.items()]
        return ", ".join(parts) or self.arm.label


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The settings that were tried for one arm on one backbone of one data set."""

    block: BlockLayout
    backbone: BackboneRow
    """The backbone without its points."""
    arm: ArmColumn
    """The arm without its points."""
    tried: tuple[Tried, ...]

    @property
    def chosen(self) -> Tried | None:
        """The best; None where none has a validation AUC of every seed. What has no alternative is
        shown as it is.
        """
        return self.tried[0] if len(self.tried) == 1 else best(self.tried)


def tried(
    grouped: GroupedRuns, *, arm: ArmColumn, rows: Sequence[BackboneRow], seeds: Sequence[int]
) -> Tried:
    """The runs of an arm on these backbones, and its validation AUC."""
    by_row = [runs_by_seed(grouped, row, arm, seeds=seeds) for row in rows]
    aucs = [{seed: run.result.valid.auc for seed, run in runs.items()} for runs in by_row]
    missing = tuple(seed for seed in seeds if any(found.get(seed) is None for found in aucs))
    scores = [[auc for auc in found.values() if auc is not None] for found in aucs]
    score = mean(map(mean, scores)) if scores and seeds and not missing else None
    return Tried(
        arm=arm,
        row=rows[0],
        values=_values(arm, rows[0]),
        runs=by_row[0],
        score=score,
        missing=missing,
    )


def best(candidates: Sequence[Tried]) -> Tried | None:
    """The one with the highest validation AUC, the first of equals; None where none has one."""
    scored = [item for item in candidates if item.score is not None]
    return max(scored, key=lambda item: item.score or 0.0, default=None)


def choices_of(
    grouped: GroupedRuns,
    layout: GridLayout,
    *,
    asked: Collection[tuple[str, str, str]] | None = None,
) -> list[Choice]:
    """For each data set, backbone and arm the points of their grids.

    `asked` has the data set, backbone and arm of each job by name, where not all are trained.
    """
    families = _grouped((arm.family, arm) for arm in layout.arms)
    return [
        Choice(
            block=block,
            backbone=_without_points(rows),
            arm=_arm_without_points(arms),
            tried=tuple(
                tried(grouped, arm=arm, rows=(row,), seeds=block.seeds)
                for row, arm in itertools.product(rows, arms)
                if asked is None or (block.dataset, row.key, arm.name) in asked
            ),
        )
        for block in layout.blocks
        for rows in _grouped((row.backbone, row) for row in block.rows)
        for arms in families
    ]


def chosen_runs(choices: Sequence[Choice], layout: GridLayout) -> tuple[GroupedRuns, GridLayout]:
    """The chosen runs as if each arm and each backbone had one setting, and their layout."""
    grouped: GroupedRuns = {}
    for choice in choices:
        key, chosen = choice.backbone.comparison, choice.chosen
        if key is not None and chosen is not None:
            grouped.setdefault(key, {})[choice.arm.key] = dict(chosen.runs)
    arms = {choice.arm.name: choice.arm for choice in choices}
    blocks = []
    for block in layout.blocks:
        rows = {c.backbone.key: c.backbone for c in choices if c.block is block}
        blocks.append(replace(block, rows=tuple(rows.values())))
    return grouped, GridLayout(arms=tuple(arms.values()), blocks=tuple(blocks))


def _grouped(items: Iterable[tuple[str, T]]) -> list[list[T]]:
    """The items of one key together, in the order of the first of each."""
    groups: dict[str, list[T]] = {}
    for key, item in items:
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def _values(arm: ArmColumn, row: BackboneRow) -> JsonTable:
    """The keys of the arm's grid, then those of the backbone's; a key of both says whose it is."""
    own = arm.point.values if arm.point else {}
    beside = row.point.values if row.point else {}
    return {
        **own,
        **{f"backbone.{key}" if key in own else key: value for key, value in beside.items()},
    }


def _arm_without_points(arms: Sequence[ArmColumn]) -> ArmColumn:
    first = arms[0]
    if first.point is None:
        return first
    settings = _shared([arm.key.settings for arm in arms], point=first.point)
    key = replace(first.key, settings=settings, chosen_for=first.point.of)
    return ArmColumn(name=first.point.of, label=first.point.label, key=key)


def _without_points(rows: Sequence[BackboneRow]) -> BackboneRow:
    first = rows[0]
    if first.point is None:
        return first
    comparison = None
    if first.comparison is not None:
        settings = [row.comparison.backbone_settings for row in rows if row.comparison]
        shared = _shared(settings, point=first.point)
        comparison = replace(first.comparison, backbone_settings=shared)
    return BackboneRow(
        label=first.point.label,
        key=first.point.of,
        backbone=first.backbone,
        comparison=comparison,
    )


def _shared(settings: Sequence[str], *, point: GridPoint) -> str:
    """The settings that all have in common, as JSON, without the keys of the grid."""
    tables = [json.loads(text) for text in settings]
    first = tables[0]
    same = {
        key: value
        for key, value in first.items()
        if key not in point.values and all(key in table and table[key] == value for table in tables)
    }
    return canonical_json(same)
