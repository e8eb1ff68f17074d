"""The records that a report is made from: those of a recipe's jobs, or all there are."""

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Self

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.base.identity import canonical_json
from prime_bench.catalog import DENSE
from prime_bench.findings import Metric, RoutingFindings
from prime_bench.recipe.job import Job
from prime_bench.recipe.recipe import ONLY_KEYS, Recipe, TableName, is_asked, values_asked
from prime_bench.report.quantities.choice import Choice, choices_of, chosen_runs
from prime_bench.report.quantities.formulas import METRICS
from prime_bench.report.quantities.grid import Grid, build_grid, without_degenerate
from prime_bench.report.quantities.layout import (
    ArmColumn,
    BackboneRow,
    GridLayout,
    ReportJob,
    dataset_labels,
    layout_from_jobs,
    layout_from_records,
)
from prime_bench.settings.probes import PROBES, Kind, ProbedSplit
from prime_bench.store.pairing import GroupedRuns, group_runs
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.source_versions import OtherVersion


class RecipeJobs(Frozen):
    """The jobs of a recipe, and what its report says of them, as plain values.

    A report is made from these and from the records alone. A bundle has them, so that no class, no
    card and no entry point is needed, or loaded, where it is read.
    """

    name: str = ""
    """The recipe as it was asked for, with the keys that `--set` changed."""
    title: str
    """Title of the report."""
    kind: Kind = "train"
    """`train`, or the kind of the probe."""
    tables: list[TableName] = []
    """Tables of the report; empty: `main`, or the table of the probe."""
    notes: list[str] = []
    """The recipe's own notes."""
    family: list[tuple[str, str]] = []
    """Pairs of arms that the Holm correction counts."""
    jobs: list[ReportJob]
    """The jobs in the recipe's order."""
    variants: dict[str, str]
    """Data set -> digest of its data settings."""
    labels: dict[str, str] = {}
    """Printed names of the data sets that have one."""
    choose: Literal["validation"] | None = None
    """How one point of each grid is chosen; None: all are shown."""
    sensitivity: list[str] = []
    """Keys of grids that figures of sensitivity show."""
    arms: list[str] = []
    """Names of the arms in the recipe's order, where that of the jobs is another."""

    @pydantic.model_serializer(mode="wrap")
    def _without_unchosen(self, plain: pydantic.SerializerFunctionWrapHandler) -> JsonTable:
        """Bundles of recipes without a grid are as they were before there were grids."""
        grids = ("choose", "sensitivity", "arms")
        return {key: value for key, value in plain(self).items() if key not in grids or value}

    @pydantic.model_validator(mode="after")
    def _knows_its_data(self) -> Self:
        if unknown := {asked.dataset for asked in self.jobs} - self.variants.keys():
            raise ValueError(f"`variants` has no {min(unknown)}")
        return self

    def narrowed(self, only: Sequence[str]) -> Self:
        """The jobs that match `key=value` texts; values of one key are alternatives.

        Raises UsageError for a key or value that no job has.
        """
        jobs = self.jobs
        known = {
            "dataset": [job.dataset for job in jobs],
            "backbone": [name for job in jobs for name in (job.job.backbone, job.backbone)],
            "arm": [name for job in jobs for arm in job.arms for name in (*job.family, arm)],
            "seed": [str(job.job.seed) for job in jobs],
        }
        wanted = values_asked(only, known, whose="the recipe")
        narrowed = []
        for job in jobs:
            arms = {
                name: label
                for name, label in job.arms.items()
                if is_asked(wanted, "arm", name, *job.family)
            }
            if (
                arms
                and is_asked(wanted, "dataset", job.dataset)
                and is_asked(wanted, "backbone", job.job.backbone, job.backbone)
                and is_asked(wanted, "seed", str(job.job.seed))
            ):
                narrowed.append(job.model_copy(update={"arms": arms}))
        return self.model_copy(update={"jobs": narrowed})


def as_asked(recipe: str, changes: Sequence[str]) -> str:
    """A recipe as provenance names it, with the keys that `--set` changes."""
    return " ".join([recipe, *(f"--set {change}" for change in changes)])


def jobs_of(
    recipe: Recipe,
    *,
    name: str,
    variants: Mapping[str, str],
    titles: Mapping[str, str] = MappingProxyType({}),
) -> RecipeJobs:
    """What a report must know of a recipe; its classes are not needed after this.

    `variants` has the digest of the settings of each data set, and `titles` the title of each of
    the user's own.
    """
    labels = {**dataset_labels(), **titles}
    return RecipeJobs(
        name=name,
        title=recipe.title,
        kind=recipe.kind,
        tables=recipe.report.tables,
        notes=recipe.report.notes,
        family=recipe.report.family,
        jobs=[ReportJob.of(job_spec) for job_spec in recipe.job_specs()],
        variants=dict(variants),
        labels={dataset: labels.get(dataset, dataset) for dataset in recipe.datasets},
        choose=recipe.report.choose,
        sensitivity=recipe.report.sensitivity,
        arms=[arm.name for arm in recipe.arms] if recipe.budget else [],
    )


@dataclass(frozen=True, kw_only=True)
class ReportRecords:
    """Records, sorted by what they are compared in; tables and figures are made from them."""

    grouped: GroupedRuns
    outdated: Sequence[RunRecord]
    """Records that others with higher `numerics` replace."""
    layout: GridLayout
    """Data sets, backbones, arms and seeds of the report."""
    dataset_labels: Mapping[str, str]
    """Printed names of data sets; one that is not listed keeps its own."""
    recipe: RecipeJobs | None
    """None where everything that has a record is shown."""
    probes: Sequence[ProbeRecord] = ()
    """Records of all probes."""
    unreadable: Sequence[str] = ()
    """A message for each record that cannot be read; its run counts as missing."""
    mixed: bool = False
    """Whether runs that may not be compared are, because it was asked for."""
    metrics: Sequence[Metric] = METRICS
    """What tables and figures show, the first where they show one alone."""
    choices: Sequence[Choice] = ()
    """What was chosen from the grids of the recipe; `grouped` and `layout` have the chosen alone.
    Empty where all points are shown."""
    unchosen: "ReportRecords | None" = None
    """All points of the grids; None where nothing was chosen."""
    earlier: Mapping[str, int] = field(default_factory=dict)
    """Records that are not shown because they are of another version of a class of the user's, by
    the name of the class: they would fill cells of this report."""
    accepted: Sequence[OtherVersion] = ()
    """Records of another version that count as those of the recipe's, because it was asked for."""
    _grids: dict[tuple[str, ProbedSplit, bool], Grid] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def grid(self, *, baseline: str, split: ProbedSplit = "test", sound: bool = False) -> Grid:
        """The numbers of every arm against a baseline; `sound` leaves degenerate runs out.

        A grid is computed once, whoever asks for it.
        """
        key = (baseline, split, sound)
        if key not in self._grids:
            grouped = without_degenerate(self.grouped) if sound else self.grouped
            self._grids[key] = build_grid(
                grouped,
                layout=self.layout,
                baseline=baseline,
                split=split,
                mixed=self.mixed,
                tuned=bool(self.choices),
                metrics=self.metrics,
            )
        return self._grids[key]

    def runs_of(
        self, row: BackboneRow, arm: ArmColumn, *, seeds: Container[int]
    ) -> dict[int, RunRecord]:
        """The runs of an arm on a backbone, by seed; a seed without a record is left out."""
        if row.comparison is None:
            return {}
        runs = self.grouped.get(row.comparison, {}).get(arm.key, {})
        return {seed: run for seed, run in runs.items() if seed in seeds}

    @functools.cached_property
    def every_choice(self) -> list[Choice]:
        """The points of the recipe's grids for each data set, backbone and arm, whether one of them
        is chosen for the other tables or all are shown.
        """
        every = self.unchosen or self
        asked = None
        if self.recipe is not None:
            jobs = self.recipe.jobs
            asked = {(job.dataset, job.backbone, arm) for job in jobs for arm in job.arms}
        return choices_of(every.grouped, every.layout, asked=asked)

    def probes_of(self, kind: Kind) -> list[ProbeRecord]:
        """Records of probes of a kind: those of the recipe's jobs where it has such, else all."""
        every = [record for record in self.probes if record.job.kind == kind]
        if self.recipe is None or all(asked.job.kind != kind for asked in self.recipe.jobs):
            return every
        asked = [(asked.job, self.recipe.variants[asked.dataset]) for asked in self.recipe.jobs]
        return [r for r in every if any(_answers(r, job, variant) for job, variant in asked)]

    @functools.cached_property
    def _routing(self) -> dict[tuple[str, ProbedSplit], RoutingFindings]:
        return {
            (record.job.training_run.id, record.findings.split): record.findings
            for record in self.probes
            if isinstance(record.findings, RoutingFindings)
        }

    def routing_of(self, run: RunRecord, split: ProbedSplit) -> RoutingFindings | None:
        """What a routing probe of a split found in the trained arm of a run; None without such a
        probe.
        """
        return self._routing.get((run.job.id, split))

    def all_records(self) -> list[RunRecord | ProbeRecord]:
        """Every record that any table of the report can be made from."""
        if self.unchosen is not None:
            return self.unchosen.all_records()
        runs = [
            run
            for block in self.layout.blocks
            for row in block.rows
            for arm, by_seed in (
                self.grouped.get(row.comparison, {}) if row.comparison else {}
            ).items()
            for seed, run in by_seed.items()
            if arm in {column.key for column in self.layout.arms} and seed in block.seeds
        ]
        own = {
            (block.variant, row.backbone, row.comparison.backbone_settings)
            for block in self.layout.blocks
            for row in block.rows
            if row.comparison
        }
        asked = {asked.job.kind for asked in (self.recipe.jobs if self.recipe else ())}
        probes = [
            record
            for kind in PROBES
            for record in self.probes_of(kind)
            if kind in asked or _backbone_key(record) in own
        ]
        return [*runs, *probes]

    def degenerate_jobs(self) -> frozenset[str]:
        """Ids of the degenerate runs, and of the probes of such a run."""
        if self.unchosen is not None:
            return self.unchosen.degenerate_jobs()
        # By the id of the job, which of an accepted record is not that of its file.
        runs = {
            run.job.id: run.job_id
            for arms in self.grouped.values()
            for by_seed in arms.values()
            for run in by_seed.values()
            if run.degenerate
        }
        probes = {probe.job_id for probe in self.probes if probe.job.training_run.id in runs}
        return frozenset({*runs.values(), *probes})

    @property
    def recipe_name(self) -> str:
        """Name of the recipe; empty where everything is shown."""
        return self.recipe.name if self.recipe else ""


def _titles(records: Iterable[RunRecord | ProbeRecord]) -> dict[str, str]:
    """The titles of the users' own cards that records carry, by the name of the card."""
    cards = [record.data_card for record in records if record.data_card is not None]
    return {str(card.get("name")): str(card.get("title")) for card in cards}


def gather(
    records: Sequence[RunRecord],
    *,
    recipe: RecipeJobs | None = None,
    probes: Sequence[ProbeRecord] = (),
    unreadable: Sequence[str] = (),
    mixed: bool = False,
) -> ReportRecords:
    """Collect the records of a recipe's jobs, or all records, for a report."""
    grouped, outdated = group_runs(records)
    labels = {**dataset_labels(), **_titles([*records, *probes])}
    labels |= recipe.labels if recipe else {}
    if recipe is None:
        layout = layout_from_records(grouped, baseline=DENSE, dataset_labels=labels)
    else:
        layout = layout_from_jobs(
            recipe.jobs,
            grouped,
            variants=recipe.variants,
            dataset_labels=labels,
            arms=recipe.arms,
        )
    found = ReportRecords(
        grouped=grouped,
        outdated=outdated,
        layout=layout,
        dataset_labels=labels,
        recipe=recipe,
        probes=_newest(probes),
        unreadable=unreadable,
        mixed=mixed,
    )
    if recipe is None or recipe.choose is None:
        return found
    choices = found.every_choice
    chosen, chosen_layout = chosen_runs(choices, layout)
    return replace(found, grouped=chosen, layout=chosen_layout, choices=choices, unchosen=found)


def narrowed(records: Sequence[RunRecord], only: Sequence[str]) -> list[RunRecord]:
    """The records that match `key=value` texts; values of one key are alternatives.

    Raises UsageError for a key or value that no record has.
    """
    known = {key: sorted({_facts(record)[key] for record in records}) for key in ONLY_KEYS}
    wanted = values_asked(only, known, whose="the records")
    return [
        record
        for record in records
        if all(_facts(record)[key] in values for key, values in wanted.items())
    ]


def _newest(probes: Iterable[ProbeRecord]) -> list[ProbeRecord]:
    """One record of each probe: that with the highest `numerics`."""
    found: dict[str, ProbeRecord] = {}
    for record in sorted(probes, key=lambda record: (record.job.numerics, record.job_id)):
        plain = {key: value for key, value in record.job.plain().items() if key != "numerics"}
        found[canonical_json(plain)] = record
    return sorted(found.values(), key=lambda record: record.job_id)


def _backbone_key(record: ProbeRecord) -> tuple[str, str, str]:
    settings = canonical_json(record.job.backbone_settings)
    return record.data_variant, record.job.backbone, settings


def _answers(record: ProbeRecord, asked: Job, variant: str) -> bool:
    """Whether a record is of the probe that a recipe asks for, on any device."""
    job = record.job
    one_arm = PROBES[job.kind].unit == "arm"
    same_arm = (job.plugin, job.plugin_settings) == (asked.plugin, asked.plugin_settings)
    return (
        (same_arm or not one_arm)
        and record.data_variant == variant
        and (job.backbone, job.backbone_settings) == (asked.backbone, asked.backbone_settings)
        and (job.seed, job.training) == (asked.seed, asked.training)
        # A job that measures all arms has them in its settings; another choice of arms answers too.
        and all(job.probe.get(k) == v for k, v in asked.probe.items() if one_arm or k != "arms")
    )


def _facts(record: RunRecord) -> dict[str, str]:
    values = (record.dataset, record.job.backbone, record.arm, str(record.job.seed))
    return dict(zip(ONLY_KEYS, values, strict=True))
