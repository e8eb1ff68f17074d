"""The records that a report is made from: those of a recipe's jobs, or all there are."""

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prime_bench.base.identity import canonical_json
from prime_bench.catalog import DENSE
from prime_bench.findings import RoutingFindings
from prime_bench.recipe.recipe import ONLY_KEYS, JobSpec, values_asked
from prime_bench.report.quantities.grid import Grid, build_grid, without_degenerate
from prime_bench.report.quantities.layout import (
    ArmColumn,
    BackboneRow,
    GridLayout,
    dataset_labels,
    layout_from_records,
    layout_from_trials,
)
from prime_bench.settings.probes import PROBES, Kind, ProbedSplit
from prime_bench.store.pairing import GroupedRuns, group_runs
from prime_bench.store.record import ProbeRecord, RunRecord


@dataclass(frozen=True, kw_only=True)
class RecipeJobs:
    """The jobs of a recipe, and what its report says of them."""

    name: str = ""
    """The recipe as it was asked for, with the keys that `--set` changed."""
    job_specs: Sequence[JobSpec]
    variants: Mapping[str, str]
    """Data set -> digest of its data settings."""
    title: str
    notes: Sequence[str] = ()
    """The recipe's own notes."""
    family: Sequence[tuple[str, str]] = ()
    """Pairs of arms that the Holm correction counts."""


@dataclass(frozen=True, kw_only=True)
class ReportRecords:
    """Records, sorted by what they are compared in; tables and figures are made from them."""

    grouped: GroupedRuns
    outdated: Sequence[RunRecord]
    """Records that others with higher `numerics` replace."""
    layout: GridLayout
    """Data sets, backbones, arms and seeds of the report."""
    recipe: RecipeJobs | None
    """None where everything that has a record is shown."""
    probes: Sequence[ProbeRecord] = ()
    """Records of all probes."""
    unreadable: Sequence[str] = ()
    """A message for each record that cannot be read; its run counts as missing."""
    mixed: bool = False
    """Whether runs that may not be compared are, because it was asked for."""
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
                grouped, layout=self.layout, baseline=baseline, split=split, mixed=self.mixed
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

    def probes_of(self, kind: Kind) -> list[ProbeRecord]:
        """Records of probes of a kind: those of the recipe's jobs where it has such, else all."""
        every = [record for record in self.probes if record.job.kind == kind]
        if self.recipe is None or all(job_spec.kind != kind for job_spec in self.recipe.job_specs):
            return every
        asked = [
            (job_spec, self.recipe.variants[job_spec.dataset]) for job_spec in self.recipe.job_specs
        ]
        return [
            r for r in every if any(_answers(r, job_spec, variant) for job_spec, variant in asked)
        ]

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
        return self._routing.get((run.job_id, split))

    def all_records(self) -> list[RunRecord | ProbeRecord]:
        """Every record that any table of the report can be made from."""
        runs = [
            run
            for block in self.layout.blocks
            for row in block.rows
            for arm, by_seed in (
                self.grouped.get(row.comparison, {}) if row.comparison else {}
            ).items()
            for run in by_seed.values()
            if arm in {column.key for column in self.layout.arms}
        ]
        own = {
            (block.variant, row.backbone, row.comparison.backbone_settings)
            for block in self.layout.blocks
            for row in block.rows
            if row.comparison
        }
        asked = {job_spec.kind for job_spec in (self.recipe.job_specs if self.recipe else ())}
        probes = [
            record
            for kind in PROBES
            for record in self.probes_of(kind)
            if kind in asked or _backbone_key(record) in own
        ]
        return [*runs, *probes]

    def degenerate_jobs(self) -> frozenset[str]:
        """Ids of the degenerate runs, and of the probes of such a run."""
        runs = {
            run.job_id
            for arms in self.grouped.values()
            for by_seed in arms.values()
            for run in by_seed.values()
            if run.result.degenerate
        }
        probes = {probe.job_id for probe in self.probes if probe.job.training_run.id in runs}
        return frozenset(runs | probes)

    @property
    def recipe_name(self) -> str:
        """Name of the recipe; empty where everything is shown."""
        return self.recipe.name if self.recipe else ""


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
    labels = dataset_labels()
    if recipe is None:
        layout = layout_from_records(grouped, baseline=DENSE, dataset_labels=labels)
    else:
        layout = layout_from_trials(
            recipe.job_specs, grouped, variants=recipe.variants, dataset_labels=labels
        )
    return ReportRecords(
        grouped=grouped,
        outdated=outdated,
        layout=layout,
        recipe=recipe,
        probes=_newest(probes),
        unreadable=unreadable,
        mixed=mixed,
    )


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


def _answers(record: ProbeRecord, job_spec: JobSpec, variant: str) -> bool:
    """Whether a record is of the probe that a recipe asks for, on any device."""
    job, asked = record.job, job_spec.probe.plain() if job_spec.probe else {}
    arm = PROBES[job.kind].unit == "all arms" or (
        (job.plugin, job.plugin_settings) == (job_spec.arm.plugin, job_spec.arm.settings.plain())
    )
    return (
        arm
        and record.data_variant == variant
        and (job.backbone, job.backbone_settings)
        == (job_spec.backbone, job_spec.backbone_settings.plain())
        and (job.seed, job.training) == (job_spec.seed, job_spec.training)
        and all(job.probe.get(k) == v for k, v in asked.items())
    )


def _facts(record: RunRecord) -> dict[str, str]:
    values = (record.dataset, record.job.backbone, record.arm, str(record.job.seed))
    return dict(zip(ONLY_KEYS, values, strict=True))
