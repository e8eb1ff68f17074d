"""A recipe's grid: data sets x backbones x seeds x arms, each with resolved settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.catalog import find_backbone, find_plugin
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import ArmSettings, BackboneSettings, DenseSettings
from prime_bench.settings.probes import CostArm, Kind, ProbeSettings
from prime_bench.settings.training import TrainSpec

ONLY_KEYS = ("dataset", "backbone", "arm", "seed")
Origin = Literal["recipe", "--set"]
"""What has set a key that has not its default."""


Note = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]


TableName = Literal[
    "main",
    "apg",
    "cost",
    "controls",
    "criteo_numeric",
    "dense_weight",
    "gdcn_attachment",
    "gdcn_seeds",
    "gradients",
    "routing",
    "structural",
    "subgroups",
    "family",
    "cells",
    "pairs",
]
"""A definition below `reports/`."""


class ReportTable(Frozen):
    """`[report]`: which tables the recipe is made for, and what they have to say."""

    tables: list[TableName] = []
    """Empty: `main` of a recipe that trains, else the table of the recipe's kind."""
    family: list[tuple[str, str]] = []
    """Comparisons, each an arm and what it is compared with, that the Holm correction counts."""
    notes: list[Note] = []
    """What a reader must know that no record tells; printed among the table's notes, so each is
    one sentence without a full stop."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm of the comparison: its name in the recipe, its column in a report, its plug-in."""

    name: str
    label: str
    plugin: str
    settings: ArmSettings


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A job that knows its data set by name; `bind` makes the job, once the data are prepared."""

    dataset: str
    backbone: str
    backbone_settings: BackboneSettings
    arm: Arm
    training: TrainSpec
    seed: int
    kind: Kind = "train"
    probe: ProbeSettings | None = None
    """Settings of a probe; None for training."""
    others: tuple[Arm, ...] = ()
    """Arms that one job measures beside `arm`, of a kind whose unit is the group."""

    def bind(self, fingerprint: str) -> Job:
        """The job on the prepared data of that fingerprint."""
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
    def trained(self) -> "Trial | None":
        """The trial whose record and weights this one reads, which has to be done before; None
        for one that reads nothing.
        """
        if self.probe is None or not self.probe.reads_checkpoint:
            return None
        return replace(self, kind="train", probe=None)

    @property
    def code(self) -> dict[str, str]:
        """Digests of the source files of a backbone and a plug-in that are not ours."""
        found = {
            self.backbone: find_backbone(self.backbone).code,
            **{arm.plugin: find_plugin(arm.plugin).code for arm in (self.arm, *self.others)},
        }
        return {name: code for name, code in found.items() if code is not None}

    def __str__(self) -> str:
        measured = "" if self.kind == "train" else f" {self.kind}"
        return f"{self.dataset} {self.backbone} {self.arm.name} seed {self.seed}{measured}"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A checked recipe."""

    name: str
    title: str
    seeds: list[int]
    arms: list[Arm]
    datasets: dict[str, JsonTable]
    """Per data set the keys that the recipe sets; `data.variant` checks them against the card."""
    training: TrainSpec
    backbones: dict[str, dict[str, BackboneSettings]]
    """Backbone -> data set -> settings."""
    kind: Kind = "train"
    probe: ProbeSettings | None = None
    """Settings of a probe; None for training."""
    report: ReportTable = field(default_factory=ReportTable)
    places: dict[str, str] = field(default_factory=dict)
    """Per data set the file and line where its table starts, for what the card finds there."""
    given: dict[tuple[str, ...], Origin] = field(default_factory=dict)
    """Every key that the file or a `--set` has set, by its path: all others have defaults."""

    def trials(self, *, only: Sequence[str] = ()) -> list[Trial]:
        """The grid, seed by seed and the arms of a pair side by side, so that a cut leaves pairs.
        Of a kind whose unit is the group, one trial stands for Dense and all other arms that fit
        the backbone, which are its `others`.

        `only` holds `key=value`; values of one key are alternatives. Raises UsageError.
        """
        wanted = _wanted(self, only)
        arms = [arm for arm in self.arms if arm.name in wanted.get("arm", [arm.name])]
        return [
            Trial(
                dataset=dataset,
                backbone=backbone,
                backbone_settings=per_dataset[dataset],
                arm=arm,
                training=self.training,
                seed=seed,
                kind=self.kind,
                probe=self.probe,
                others=others,
            )
            for seed in self.seeds
            for dataset in self.datasets
            for backbone, per_dataset in self.backbones.items()
            if all(
                value in wanted.get(key, [value])
                for key, value in (
                    ("dataset", dataset),
                    ("backbone", backbone),
                    ("seed", str(seed)),
                )
            )
            for arm, others in self._measured_together(per_dataset[dataset], arms=arms)
        ]

    def _measured_together(
        self, backbone: BackboneSettings, *, arms: Sequence[Arm]
    ) -> list[tuple[Arm, tuple[Arm, ...]]]:
        """The arm of each job of a backbone, and the arms that the same job measures beside it."""
        if self.probe is None or self.probe.unit == "arm":
            return [(arm, ()) for arm in arms]
        fitting = [arm for arm in arms if arm.settings.misfit(backbone) is None]
        others = tuple(arm for arm in fitting if arm.plugin != "dense")
        return [(_together(fitting), others)] if fitting else []


def _together(arms: Sequence[Arm]) -> Arm:
    """What stands in a trial's place for an arm where one job measures all of them."""
    name, label = (
        "+".join(names) for names in zip(*((a.name, a.label) for a in arms), strict=True)
    )
    return Arm(name=name, label=label, plugin="dense", settings=DenseSettings())


def _wanted(recipe: Recipe, only: Sequence[str]) -> dict[str, list[str]]:
    known = {
        "dataset": list(recipe.datasets),
        "backbone": list(recipe.backbones),
        "arm": [arm.name for arm in recipe.arms],
        "seed": [str(seed) for seed in recipe.seeds],
    }
    return values_asked(only, known, whose="the recipe")


def values_asked(
    only: Sequence[str], known: Mapping[str, Sequence[str]], *, whose: str
) -> dict[str, list[str]]:
    """The values by key that `key=value` texts ask for; values of one key are alternatives.

    `known` has the values of each key in `whose`, such as "the recipe". Raises UsageError for
    others.
    """
    wanted: dict[str, list[str]] = {}
    for item in only:
        key, equals, value = item.partition("=")
        if not equals or key not in known:
            raise UsageError(
                f"--only {item}: expected KEY=VALUE with KEY one of {', '.join(known)}"
            )
        if value not in known[key]:
            raise UsageError(
                f"--only {item}: no such {key} in {whose}{did_you_mean(value, known[key])}",
                hint=f"there are: {', '.join(known[key])}",
            )
        wanted.setdefault(key, []).append(value)
    return wanted
