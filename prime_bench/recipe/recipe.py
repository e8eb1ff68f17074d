"""A checked recipe and its grid of jobs: data sets x backbones x seeds x arms, with typed
settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.base.words import job_name
from prime_bench.catalog import DENSE, find_backbone, find_plugin
from prime_bench.recipe.job import Job
from prime_bench.recipe.sweep import CandidateBudget, GridPoint
from prime_bench.settings.interface import ArmSettings, BackboneSettings, DenseSettings
from prime_bench.settings.probes import CostArm, Kind, ProbeSettings
from prime_bench.settings.training import TrainSpec

ONLY_KEYS = ("dataset", "backbone", "arm", "seed")
"""Keys by which `--only` selects jobs."""
Origin = Literal["recipe", "--set"]
"""What has set a key that is not left at its default."""


NoteText = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]


TableName = Literal[
    "main",
    "apg",
    "apg_selected",
    "cost",
    "controls",
    "criteo_numeric",
    "dense_weight",
    "gdcn_attachment",
    "gdcn_seeds",
    "gradients",
    "routing",
    "sensitivity",
    "structural",
    "subgroups",
    "family",
    "cells",
    "pairs",
]
"""A definition in `reports/`."""


class ReportKeys(Frozen):
    """`[report]`: the tables of the recipe's report, and notes below them."""

    tables: list[TableName] = []
    """Tables of the report; empty: `main` for a recipe that trains, else the table of its probe."""
    family: list[tuple[str, str]] = []
    """Comparisons that the Holm correction counts, each as an arm and its baseline."""
    choose: Literal["validation"] | None = None
    """`validation`: for each data set, backbone and arm the report shows the point of the grids
    with the highest mean validation AUC in place of all. Test scores have no part in it."""
    sensitivity: list[str] = pydantic.Field([], max_length=2)
    """Keys of grids that figures of sensitivity show: along the axis, and as lines; empty: the
    first two."""
    notes: list[NoteText] = []
    """Notes that no record can give, each one sentence without a full stop. They are printed with
    the other notes of a table."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm of a recipe."""

    name: str
    """Name in the recipe."""
    label: str
    """Name in reports."""
    plugin: str
    """Name of the plug-in."""
    settings: ArmSettings
    point: GridPoint | None = None
    """The point of its grid; None for an arm without one."""

    @property
    def family(self) -> str:
        """Name of the arm's table: that of all points of one grid."""
        return self.point.of if self.point else self.name


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job of a recipe whose data set is known by name only. `bind` makes the job, once the data
    are prepared.
    """

    dataset: str
    backbone: str
    backbone_settings: BackboneSettings
    arm: Arm
    training: TrainSpec
    seed: int
    kind: Kind = "train"
    probe: ProbeSettings | None = None
    """Settings of a probe; None for training."""
    measured: tuple[Arm, ...] = ()
    """All arms that one job measures, in the recipe's order; empty for a kind whose unit is one
    arm."""
    backbone_point: GridPoint | None = None
    """The point of the backbone's grid; None for a backbone without one."""

    @property
    def backbone_name(self) -> str:
        """Name of the backbone in the recipe: with its point, where it has a grid."""
        return self.backbone_point.name if self.backbone_point else self.backbone

    @property
    def others(self) -> tuple[Arm, ...]:
        """Arms that the job measures beside `arm`, which is Dense; none where it measures one."""
        return tuple(arm for arm in self.measured if arm.plugin != DENSE)

    def bind(self, fingerprint: str) -> Job:
        """The job on the table with that fingerprint."""
        return Job(
            fingerprint=fingerprint,
            backbone=self.backbone,
            backbone_settings=self.backbone_settings.plain(),
            plugin=self.arm.plugin,
            plugin_settings=self.arm.settings.plain(),
            training=self.training,
            seed=self.seed,
            kind=self.kind,
            code=self.code,
            probe=self._probe_table(),
        )

    def _probe_table(self) -> JsonTable:
        if self.probe is None:
            return {}
        if self.probe.unit == "arm":
            return self.probe.plain()
        others = [CostArm(plugin=arm.plugin, settings=arm.settings.plain()) for arm in self.others]
        return {**self.probe.plain(), "arms": [arm.plain() for arm in others]}

    @property
    def needed_job(self) -> "JobSpec | None":
        """The training run whose record and weights this job reads, which must be done before it;
        None if it reads none.
        """
        if self.probe is None or not self.probe.reads_checkpoint:
            return None
        return replace(self, kind="train", probe=None)

    @property
    def code(self) -> dict[str, str]:
        """Digest of the source files of each backbone and plug-in that is not in the catalogue."""
        found = {
            self.backbone: find_backbone(self.backbone).code,
            **{arm.plugin: find_plugin(arm.plugin).code for arm in (self.arm, *self.others)},
        }
        return {name: code for name, code in found.items() if code is not None}

    def __str__(self) -> str:
        names = self.dataset, self.backbone_name, self.arm.name
        return job_name(*names, self.seed, kind=self.kind)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe whose names and settings have been checked, with all defaults filled in."""

    name: str
    title: str
    seeds: list[int]
    arms: list[Arm]
    datasets: dict[str, JsonTable]
    """Data set -> the keys that the recipe sets. They are checked with the card (`data.card`)."""
    training: TrainSpec
    backbones: dict[str, dict[str, BackboneSettings]]
    """Backbone -> data set -> settings. Each point of a grid is a backbone of its own here."""
    kind: Kind = "train"
    probe: ProbeSettings | None = None
    """Settings of a probe; None for training."""
    report: ReportKeys = field(default_factory=ReportKeys)
    folder: Path = Path()
    """Folder of the recipe's file, from which the paths of cards in it are read."""
    backbone_points: dict[str, GridPoint] = field(default_factory=dict)
    """The point of each backbone that is one of a grid."""
    budget: CandidateBudget | None = None
    """How many points each arm has on each backbone; None: all."""
    places: dict[str, str] = field(default_factory=dict)
    """Data set -> file and line of its table, for errors that are found with the card."""
    given: dict[tuple[str, ...], Origin] = field(default_factory=dict)
    """Path of every key that the file or a `--set` sets; all other keys have their defaults."""

    def job_specs(self, *, only: Sequence[str] = ()) -> list[JobSpec]:
        """The jobs of the grid, seed by seed and with the arms of a pair next to each other, so
        that a run which is stopped leaves whole pairs. A probe whose unit is all arms has one job
        for Dense and all other arms that fit the backbone, which are its `others`.

        `only` selects jobs by `key=value` texts; values of one key are alternatives. The name of an
        arm or backbone with a grid stands for all of its points. Raises UsageError for a key or
        value that the recipe does not have.
        """
        wanted, trained = _wanted(self, only), self._trained()
        arms = [arm for arm in self.arms if is_asked(wanted, "arm", arm.name, arm.family)]
        backbones = [
            (name, point.of if point else name, point, per_dataset)
            for name, per_dataset in self.backbones.items()
            for point in [self.backbone_points.get(name)]
        ]
        return [
            JobSpec(
                dataset=dataset,
                backbone=backbone,
                backbone_point=point,
                backbone_settings=per_dataset[dataset],
                arm=arm,
                training=self.training,
                seed=seed,
                kind=self.kind,
                probe=self.probe,
                measured=measured,
            )
            for seed in self.seeds
            for dataset in self.datasets
            for name, backbone, point, per_dataset in backbones
            if is_asked(wanted, "dataset", dataset)
            and is_asked(wanted, "backbone", name, backbone)
            and is_asked(wanted, "seed", str(seed))
            for arm, measured in self._measured_together(per_dataset[dataset], arms=arms)
            if trained is None or (name, arm.name) in trained
        ]

    def _trained(self) -> set[tuple[str, str]] | None:
        """Pairs of a backbone and an arm, by name, that the budget has drawn; None without one."""
        if self.budget is None:
            return None
        arms: dict[str, list[str]] = {}
        backbones: dict[str, list[str]] = {}
        for arm in self.arms:
            arms.setdefault(arm.family, []).append(arm.name)
        for name in self.backbones:
            point = self.backbone_points.get(name)
            backbones.setdefault(point.of if point else name, []).append(name)
        return {
            (rows[row], columns[column])
            for rows in backbones.values()
            for columns in arms.values()
            for row, column in self.budget.drawn(len(rows), len(columns))
        }

    def _measured_together(
        self, backbone: BackboneSettings, *, arms: Sequence[Arm]
    ) -> list[tuple[Arm, tuple[Arm, ...]]]:
        """The arm of each job of a backbone, and the arms that one job measures together."""
        if self.probe is None or self.probe.unit == "arm":
            return [(arm, ()) for arm in arms]
        fitting = tuple(arm for arm in arms if arm.settings.misfit(backbone) is None)
        return [(_together(fitting), fitting)] if fitting else []


def _together(arms: Sequence[Arm]) -> Arm:
    """The arm of a job that measures several arms: Dense, named after all of them."""
    name, label = (
        "+".join(names) for names in zip(*((a.name, a.label) for a in arms), strict=True)
    )
    return Arm(name=name, label=label, plugin=DENSE, settings=DenseSettings())


def _wanted(recipe: Recipe, only: Sequence[str]) -> dict[str, list[str]]:
    known = {
        "dataset": list(recipe.datasets),
        "backbone": [*(point.of for point in recipe.backbone_points.values()), *recipe.backbones],
        "arm": [name for arm in recipe.arms for name in (arm.family, arm.name)],
        "seed": [str(seed) for seed in recipe.seeds],
    }
    return values_asked(only, known, whose="the recipe")


def values_asked(
    only: Sequence[str], known: Mapping[str, Sequence[str]], *, whose: str
) -> dict[str, list[str]]:
    """The values that `key=value` texts ask for, by key; values of one key are alternatives.

    `known` has the values of each key, and `whose`, such as "the recipe", says in messages to what
    they belong. Raises UsageError for another key or value.
    """
    known = {key: list(dict.fromkeys(values)) for key, values in known.items()}
    wanted: dict[str, list[str]] = {}
    for item in only:
        key, equals, value = item.partition("=")
        if not equals or key not in known:
            raise UsageError(
                f"--only {item}: expected KEY=VALUE with KEY one of {', '.join(known)}"
            )
        if value not in known[key]:
            several = value.split(",")
            if set(several) <= set(known[key]):
                again = " ".join(f"--only {key}={one}" for one in several)
                raise UsageError(
                    f"--only {item}: one {key} at a time", hint=f"say {again} for all of them"
                )
            raise UsageError(
                f"--only {item}: no such {key} in {whose}{did_you_mean(value, known[key])}",
                hint=f"there are: {', '.join(known[key])}",
            )
        wanted.setdefault(key, []).append(value)
    return wanted


def is_asked(wanted: Mapping[str, Sequence[str]], key: str, *names: str) -> bool:
    """Whether one of the names is among the values asked for, or the key is not narrowed."""
    return key not in wanted or any(name in wanted[key] for name in names)
