"""What a table is made from: the records of a recipe's cells, or of everything that has some."""

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prime_bench.base.identity import canonical_json
from prime_bench.findings import RoutingFindings
from prime_bench.recipe.expand import ONLY_KEYS, Trial, values_asked
from prime_bench.report.quantities.grid import Grid, build_grid, without_degenerate
from prime_bench.report.quantities.layout import (
    ArmColumn,
    BackboneRow,
    GridLayout,
    dataset_labels,
    layout_from_records,
    layout_from_trials,
)
from prime_bench.settings.probes import PROBES, Kind, Split
from prime_bench.store.pairing import GroupedRuns, group_runs, settings_text
from prime_bench.store.record import ProbeRecord, RunRecord

_BASELINE = "dense"
"""What stands first where no recipe says how arms are ordered."""


@dataclass(frozen=True, kw_only=True)
class RecipeCells:
    """The cells of a recipe, and where its data's records are found."""

    name: str = ""
    """As the command line was given it, with its `--set`."""
    trials: Sequence[Trial]
    variants: Mapping[str, str]
    """Data set -> digest of its settings."""
    title: str
    notes: Sequence[str] = ()
    """The recipe's own notes."""
    family: Sequence[tuple[str, str]] = ()
    """Comparisons that the correction for many of them counts."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Records, sorted; what a builder of a table is handed."""

    grouped: GroupedRuns
    outdated: Sequence[RunRecord]
    """Records that others with higher `numerics` replace."""
    layout: GridLayout
    cells: RecipeCells | None
    probes: Sequence[ProbeRecord] = ()
    """Records of all jobs that measure."""
    unreadable: Sequence[str] = ()
    """What is wrong with records that cannot be read; their runs count as missing."""
    mixed: bool = False
    """Whether runs that may not be compared are, because it was asked for."""
    _grids: dict[tuple[str, Split, bool], Grid] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def grid(self, *, baseline: str, split: Split = "test", sound: bool = False) -> Grid:
        """Every arm against one of them; `sound` leaves degenerate runs out. Computed once."""
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
        """Measurements of a kind: those that the recipe asks for, where it is of that kind."""
        every = [record for record in self.probes if record.job.kind == kind]
        if self.cells is None or all(trial.kind != kind for trial in self.cells.trials):
            return every
        asked = [(trial, self.cells.variants[trial.dataset]) for trial in self.cells.trials]
        return [r for r in every if any(_answers(r, trial, variant) for trial, variant in asked)]

    @functools.cached_property
    def _routing(self) -> dict[str, RoutingFindings]:
        return {
            record.job.trained.id: record.findings
            for record in self.probes
            if isinstance(record.findings, RoutingFindings)
        }

    def routing_of(self, run: RunRecord) -> RoutingFindings | None:
        """What the routing diagnosis found on a trained run; None where there was none."""
        return self._routing.get(run.job_id)

    def records(self) -> list[RunRecord | ProbeRecord]:
        """Every record that any table of this evidence can be made from."""
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
        asked = {trial.kind for trial in (self.cells.trials if self.cells else ())}
        probes = [
            record
            for kind in PROBES
            for record in self.probes_of(kind)
            if kind in asked or _backbone_key(record) in own
        ]
        return [*runs, *probes]

    @property
    def recipe(self) -> str:
        """Name of the recipe; empty where everything is shown."""
        return self.cells.name if self.cells else ""


def gather(
    records: Sequence[RunRecord],
    *,
    cells: RecipeCells | None = None,
    probes: Sequence[ProbeRecord] = (),
    unreadable: Sequence[str] = (),
    mixed: bool = False,
) -> Evidence:
    """Sort records into what a recipe asks for, or into everything that has records."""
    grouped, outdated = group_runs(records)
    labels = dataset_labels()
    if cells is None:
        layout = layout_from_records(grouped, baseline=_BASELINE, dataset_labels=labels)
    else:
        layout = layout_from_trials(
            cells.trials, grouped, variants=cells.variants, dataset_labels=labels
        )
    return Evidence(
        grouped=grouped,
        outdated=outdated,
        layout=layout,
        cells=cells,
        probes=_newest(probes),
        unreadable=unreadable,
        mixed=mixed,
    )


def narrowed(records: Sequence[RunRecord], only: Sequence[str]) -> list[RunRecord]:
    """The records that `key=value` texts let through; values of one key are alternatives.

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
    """One record a measurement: that of the highest `numerics`."""
    found: dict[str, ProbeRecord] = {}
    for record in sorted(probes, key=lambda record: (record.job.numerics, record.job_id)):
        plain = {key: value for key, value in record.job.plain().items() if key != "numerics"}
        found[canonical_json(plain)] = record
    return sorted(found.values(), key=lambda record: record.job_id)


def _backbone_key(record: ProbeRecord) -> tuple[str, str, str]:
    settings = settings_text(record.job.backbone_settings)
    return record.data_variant, record.job.backbone, settings


def _answers(record: ProbeRecord, trial: Trial, variant: str) -> bool:
    """Whether a measurement is what a trial asks for, on whatever device."""
    job, asked = record.job, trial.probe.plain() if trial.probe else {}
    arm = PROBES[job.kind].unit == "group" or (
        (job.plugin, job.plugin_settings) == (trial.arm.plugin, trial.arm.settings.plain())
    )
    return (
        arm
        and record.data_variant == variant
        and (job.backbone, job.backbone_settings)
        == (trial.backbone, trial.backbone_settings.plain())
        and (job.seed, job.training) == (trial.seed, trial.training)
        and all(job.probe.get(k) == v for k, v in asked.items())
    )


def _facts(record: RunRecord) -> dict[str, str]:
    values = (record.dataset, record.job.backbone, record.arm, str(record.job.seed))
    return dict(zip(ONLY_KEYS, values, strict=True))
