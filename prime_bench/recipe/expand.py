"""A recipe's grid: data sets x backbones x seeds x arms, each with resolved settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.catalog import find_backbone, find_plugin
from prime_bench.recipe.job import Job
from prime_bench.recipe.schema import ReportTable
from prime_bench.settings.interface import ArmSettings
from prime_bench.settings.probes import PROBES, Kind
from prime_bench.settings.training import TrainSpec

ONLY_KEYS = ("dataset", "backbone", "arm", "seed")
Origin = Literal["recipe", "--set"]
"""What has set a key that has not its default."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm of the comparison: its name in the recipe, its column in a report, its plug-in."""

    name: str
    label: str
    plugin: str
    settings: dict[str, Any]

    def parsed(self) -> ArmSettings:
        """The settings as the plug-in's class has them."""
        return find_plugin(self.plugin).settings.parse(self.settings, where=self.name)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A job that knows its data set by name; `bind` makes the job, once the data are prepared."""

    dataset: str
    backbone: str
    backbone_settings: dict[str, Any]
    arm: Arm
    training: TrainSpec
    seed: int
    kind: Kind = "train"
    probe: dict[str, Any] = field(default_factory=dict)
    """Resolved settings of a kind that measures."""

    def bind(self, fingerprint: str) -> Job:
        """The job on the prepared data of that fingerprint."""
        return Job(
            fingerprint=fingerprint,
            backbone=self.backbone,
            backbone_settings=self.backbone_settings,
            plugin=self.arm.plugin,
            plugin_settings=self.arm.settings,
            training=self.training,
            seed=self.seed,
            kind=self.kind,
            code=self.code,
            probe=self.probe,
        )

    @property
    def trained(self) -> "Trial | None":
        """The trial whose record and weights this one reads, which has to be done before; None
        for one that reads nothing.
        """
        if self.kind == "train" or not PROBES[self.kind].reads_checkpoint:
            return None
        return replace(self, kind="train", probe={})

    @property
    def code(self) -> dict[str, str]:
        """Digests of the source files of a backbone and a plug-in that are not ours."""
        plugins = [self.arm.plugin, *(arm["plugin"] for arm in self.probe.get("arms", ()))]
        found = {
            self.backbone: find_backbone(self.backbone).code,
            **{plugin: find_plugin(plugin).code for plugin in plugins},
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
    datasets: dict[str, dict[str, Any]]
    """Per data set the keys that the recipe sets; `data.variant` checks them against the card."""
    training: TrainSpec
    backbones: dict[str, dict[str, dict[str, Any]]]
    """Backbone -> data set -> resolved settings."""
    kind: Kind = "train"
    probe: dict[str, Any] = field(default_factory=dict)
    """Resolved settings of a kind that measures."""
    report: ReportTable = field(default_factory=ReportTable)
    places: dict[str, str] = field(default_factory=dict)
    """Per data set the file and line where its table starts, for what the card finds there."""
    given: dict[tuple[str, ...], Origin] = field(default_factory=dict)
    """Every key that the file or a `--set` has set, by its path: all others have defaults."""

    def trials(self, *, only: Sequence[str] = ()) -> list[Trial]:
        """The grid, seed by seed and the arms of a pair side by side, so that a cut leaves pairs.
        Of a kind whose unit is the group, one trial stands for Dense and all other arms that fit
        the backbone, which are `arms` in its `probe`.

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
                probe=probe,
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
            for arm, probe in self._on(backbone, per_dataset[dataset], arms=arms)
        ]

    def _on(
        self, backbone: str, settings: Mapping[str, Any], *, arms: Sequence[Arm]
    ) -> list[tuple[Arm, dict[str, Any]]]:
        """What the jobs of a backbone are of, with the settings of their kind: an arm each, or
        Dense with all others that fit.
        """
        if self.kind == "train" or PROBES[self.kind].unit == "arm":
            return [(arm, self.probe) for arm in arms]
        own = find_backbone(backbone).settings.parse(settings, where=backbone)
        fitting = [arm for arm in arms if arm.parsed().misfit(own) is None]
        measured = [
            {"plugin": arm.plugin, "settings": arm.settings}
            for arm in fitting
            if arm.plugin != "dense"
        ]
        return [(_together(fitting), {**self.probe, "arms": measured})] if fitting else []


def _together(arms: Sequence[Arm]) -> Arm:
    """What stands in a trial's place for an arm where one job measures all of them."""
    name, label = (
        "+".join(names) for names in zip(*((a.name, a.label) for a in arms), strict=True)
    )
    return Arm(name=name, label=label, plugin="dense", settings={})


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
