"""Data sets, backbones, arms and seeds of a report, from a recipe or from the records."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pydantic

from prime_bench.base.files import bundled_folder
from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.recipe.job import Job
from prime_bench.recipe.recipe import JobSpec
from prime_bench.recipe.sweep import GridPoint
from prime_bench.settings.training import TrainSpec
from prime_bench.store.pairing import (
    ArmKey,
    ComparisonKey,
    GroupedRuns,
    arm_key_of,
    comparison_key_of,
)
from prime_bench.store.record import RunRecord


class ReportJob(Frozen):
    """A job of a recipe as plain values, which are read without the classes that they configure."""

    dataset: str
    """Name of the data set in the recipe."""
    arms: dict[str, str]
    """Printed name of the arm by its name; of several where the job measures them together."""
    job: Job
    """The job on no table: its fingerprint is empty."""
    arm_point: GridPoint | None = None
    """The point of the arm's grid."""
    backbone_point: GridPoint | None = None
    """The point of the backbone's grid."""

    @pydantic.model_serializer(mode="wrap")
    def _without_absent_points(self, plain: pydantic.SerializerFunctionWrapHandler) -> JsonTable:
        """Bundles of recipes without a grid are as they were before there were grids."""
        points = ("arm_point", "backbone_point")
        return {key: value for key, value in plain(self).items() if key not in points or value}

    @classmethod
    def of(cls, job_spec: JobSpec) -> Self:
        """The job of a recipe, whose classes are loaded here for the last time."""
        arms = {arm.name: arm.label for arm in job_spec.measured or (job_spec.arm,)}
        return cls(
            dataset=job_spec.dataset,
            arms=arms,
            job=job_spec.bind(""),
            arm_point=job_spec.arm.point,
            backbone_point=job_spec.backbone_point,
        )

    @property
    def arm(self) -> str:
        """Name of the arm, or of all that the job measures."""
        return "+".join(self.arms)

    @property
    def label(self) -> str:
        """Printed name of the arm, or of all that the job measures."""
        return "+".join(self.arms.values())

    @property
    def family(self) -> tuple[str, ...]:
        """Name of the arm that has the grid; none without a grid."""
        return (self.arm_point.of,) if self.arm_point else ()

    @property
    def backbone(self) -> str:
        """Name of the backbone in the recipe."""
        return self.backbone_point.name if self.backbone_point else self.job.backbone


@dataclass(frozen=True, kw_only=True)
class ArmColumn:
    """An arm and what the table calls it."""

    name: str
    """Unique in the table; the key in JSON and CSV."""
    label: str
    key: ArmKey
    point: GridPoint | None = None
    """The point of a recipe's grid that it is."""

    @property
    def family(self) -> str:
        """Name of the arm that has the grid; without one, its own."""
        return self.point.of if self.point else self.name


@dataclass(frozen=True, kw_only=True)
class BackboneRow:
    """A backbone on the data of a block."""

    label: str
    key: str
    """The backbone's name, with the settings that differ where the block has it several times."""
    backbone: str
    comparison: ComparisonKey | None
    """What its runs have in common; None where no record tells the version of the data."""
    point: GridPoint | None = None
    """The point of a recipe's grid that it is."""


@dataclass(frozen=True, kw_only=True)
class BlockLayout:
    """One version of one data set under one training protocol."""

    label: str
    dataset: str
    variant: str
    fingerprint: str | None
    """None where no record tells the version of the data."""
    training: TrainSpec
    seeds: tuple[int, ...]
    rows: tuple[BackboneRow, ...]


@dataclass(frozen=True, kw_only=True)
class GridLayout:
    """What all tables of a report have in common."""

    arms: tuple[ArmColumn, ...]
    blocks: tuple[BlockLayout, ...]


def runs_by_seed(
    grouped: GroupedRuns, row: BackboneRow, arm: ArmColumn, *, seeds: Iterable[int]
) -> dict[int, RunRecord]:
    """The runs of an arm on a backbone, by seed in this order; a seed without one is left out."""
    if row.comparison is None:
        return {}
    runs = grouped.get(row.comparison, {}).get(arm.key, {})
    return {seed: runs[seed] for seed in seeds if seed in runs}


def layout_from_jobs(
    jobs: Sequence[ReportJob],
    grouped: GroupedRuns,
    *,
    variants: Mapping[str, str],
    dataset_labels: Mapping[str, str],
    arms: Sequence[str] = (),
) -> GridLayout:
    """Return the layout of a recipe's jobs in its order, whether they have records or not.

    `variants` gives the digest of each data set's settings, `arms` the order of the arms where it
    is not that of the jobs. A data set has a block for each version of its data that has records:
    versions are never mixed.
    """
    columns = {
        asked.arm: ArmColumn(
            name=asked.arm, label=asked.label, key=arm_key_of(asked.job), point=asked.arm_point
        )
        for asked in jobs
    }
    blocks = []
    for dataset in dict.fromkeys(asked.dataset for asked in jobs):
        own = [asked for asked in jobs if asked.dataset == dataset]
        for fingerprint in _fingerprints(own, grouped, variant=variants[dataset], arms=columns):
            rows = {
                asked.backbone: BackboneRow(
                    label=asked.backbone_point.full_label
                    if asked.backbone_point
                    else backbone_label(asked.job.backbone),
                    key=asked.backbone,
                    backbone=asked.job.backbone,
                    point=asked.backbone_point,
                    comparison=_comparison_key(
                        asked, variant=variants[dataset], fingerprint=fingerprint
                    ),
                )
                for asked in own
            }
            blocks.append(
                BlockLayout(
                    label=dataset,
                    dataset=dataset,
                    variant=variants[dataset],
                    fingerprint=fingerprint,
                    training=own[0].job.training,
                    seeds=tuple(dict.fromkeys(asked.job.seed for asked in own)),
                    rows=tuple(rows.values()),
                )
            )
    order = {name: number for number, name in enumerate(arms)}
    return GridLayout(
        arms=tuple(sorted(columns.values(), key=lambda arm: order.get(arm.name, 0))),
        blocks=_labelled(blocks, dataset_labels),
    )


def layout_from_records(
    grouped: GroupedRuns, *, baseline: str, dataset_labels: Mapping[str, str]
) -> GridLayout:
    """Return the layout of all records: the baseline first, then in the catalogue's order."""
    arms = _arms_of(grouped, baseline=baseline)
    blocks = []
    versions = {(key.dataset, key.variant, key.fingerprint, key.training) for key in grouped}
    for dataset, variant, fingerprint, training in sorted(versions):
        keys = [
            key
            for key in sorted(grouped, key=_catalogue_order)
            if (key.dataset, key.variant, key.fingerprint, key.training)
            == (dataset, variant, fingerprint, training)
        ]
        seeds = {seed for key in keys for runs in grouped[key].values() for seed in runs}
        blocks.append(
            BlockLayout(
                label=dataset,
                dataset=dataset,
                variant=variant,
                fingerprint=fingerprint,
                training=TrainSpec.parse(json.loads(training), where=""),
                seeds=tuple(sorted(seeds)),
                rows=_rows_of(keys),
            )
        )
    return GridLayout(arms=arms, blocks=_labelled(blocks, dataset_labels))


def dataset_labels() -> dict[str, str]:
    """Printed names of data sets; one that is not listed keeps its card's name."""
    path = bundled_folder("reports") / "labels" / "datasets.toml"
    return {name: str(label) for name, label in tomllib.loads(path.read_text("utf-8")).items()}


def backbone_label(backbone: str) -> str:
    """The backbone's name in a table; that of a class is its own."""
    entry = BACKBONES.get(backbone)
    return entry.label if entry else backbone.rpartition(":")[2]


def catalogue_rank(backbone: str) -> tuple[int, str]:
    """Sorts backbones: ours in the catalogue's order, then others by name."""
    order = list(BACKBONES)
    return order.index(backbone) if backbone in order else len(order), backbone


def arm_label(arm: str) -> str:
    """An arm's printed name: the catalogue's where the arm is called as its plug-in."""
    entry = PLUGINS.get(arm)
    return entry.label if entry else arm


def changed_keys(settings: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """`key = value` for all keys that differ from the reference, or an empty text."""
    return ", ".join(
        f"{key} = {json.dumps(value)}"
        for key, value in sorted(settings.items())
        if key not in reference or reference[key] != value
    )


def changes_of_arm(key: ArmKey) -> str:
    """Settings of an arm that differ from its plug-in's defaults, or an empty text."""
    entry = PLUGINS.get(key.plugin)
    return changed_keys(json.loads(key.settings), entry.settings().plain() if entry else {})


def _comparison_key(
    asked: ReportJob, *, variant: str, fingerprint: str | None
) -> ComparisonKey | None:
    if fingerprint is None:
        return None
    job = asked.job.model_copy(update={"fingerprint": fingerprint})
    return comparison_key_of(job, dataset=asked.dataset, variant=variant)


def _fingerprints(
    jobs: Sequence[ReportJob],
    grouped: GroupedRuns,
    *,
    variant: str,
    arms: Mapping[str, ArmColumn],
) -> Sequence[str | None]:
    """The versions of the data on which a job has a record; (None,) where there is none."""
    wanted = {
        (_comparison_key(asked, variant=variant, fingerprint=""), arms[asked.arm].key)
        for asked in jobs
    }
    found = {
        key.fingerprint
        for key, runs in grouped.items()
        for arm in runs
        if (replace(key, fingerprint=""), arm) in wanted
    }
    return sorted(found) or (None,)


def arm_columns(names: Mapping[ArmKey, str], *, baseline: str) -> tuple[ArmColumn, ...]:
    """Arms by their names, the baseline first, then in the catalogue's order.

    The labels of two arms of one name have the settings that differ.
    """
    columns = []
    for key, name in names.items():
        shared = [other for other in names if names[other] == name]
        label = PLUGINS[name].label if name in PLUGINS and name == key.plugin else name
        differing = changes_of_arm(key) if len(shared) > 1 else ""
        if len({other.plugin for other in shared}) > 1:
            differing = f"{key.plugin}: {differing}" if differing else key.plugin
        if len({other.code for other in shared}) > 1:
            differing = ", ".join(part for part in (differing, f"code {key.code[:8]}") if part)
        suffix = f" ({differing})" if differing else ""
        columns.append(ArmColumn(name=name + suffix, label=label + suffix, key=key))
    order = list(PLUGINS)

    def rank(column: ArmColumn) -> tuple[bool, int, str]:
        index = order.index(column.key.plugin) if column.key.plugin in order else len(order)
        return column.name != baseline, index, column.name

    return tuple(sorted(columns, key=rank))


def _arms_of(grouped: GroupedRuns, *, baseline: str) -> tuple[ArmColumn, ...]:
    """The arms of the records."""
    names: dict[ArmKey, str] = {}
    for runs in grouped.values():
        for key, by_seed in runs.items():
            for record in by_seed.values():
                names[key] = min(record.arm, names.get(key, record.arm))
    return arm_columns(names, baseline=baseline)


def _rows_of(keys: Sequence[ComparisonKey]) -> tuple[BackboneRow, ...]:
    """A row for each; rows of one backbone have the settings that differ in their labels."""
    rows = []
    for key in keys:
        twins = [other for other in keys if other.backbone == key.backbone]
        label, name = backbone_label(key.backbone), key.backbone
        if len(twins) > 1:
            settings = [json.loads(twin.backbone_settings) for twin in twins]
            shared = {
                setting: value
                for setting, value in settings[0].items()
                if all(setting in other and other[setting] == value for other in settings)
            }
            differing = changed_keys(json.loads(key.backbone_settings), shared)
            if len({twin.backbone_code for twin in twins}) > 1:
                differing = ", ".join(
                    part for part in (differing, f"code {key.backbone_code[:8]}") if part
                )
            label, name = f"{label} ({differing})", f"{name} ({differing})"
        rows.append(BackboneRow(label=label, key=name, backbone=key.backbone, comparison=key))
    return tuple(rows)


def _catalogue_order(key: ComparisonKey) -> tuple[int, str, str]:
    return *catalogue_rank(key.backbone), key.backbone_settings


def _labelled(
    blocks: Sequence[BlockLayout], dataset_labels: Mapping[str, str]
) -> tuple[BlockLayout, ...]:
    """Label each block by its data set and, where that has several, by what differs."""
    labelled = []
    for block in blocks:
        twins = [other for other in blocks if other.dataset == block.dataset]
        differing = []
        if len({twin.fingerprint for twin in twins}) > 1:
            differing.append(f"data {str(block.fingerprint)[:8]}")
        shared = {
            key: value
            for key, value in block.training.plain().items()
            if all(twin.training.plain().get(key) == value for twin in twins)
        }
        if changes := changed_keys(block.training.plain(), shared):
            differing.append(changes)
        label = dataset_labels.get(block.dataset, block.dataset)
        suffix = f" ({', '.join(differing)})" if differing else ""
        labelled.append(replace(block, label=label + suffix))
    return tuple(labelled)
