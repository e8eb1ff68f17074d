"""Every arm on every backbone as typed numbers: cells, comparisons, summaries. None is rounded."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from prime_bench.report.quantities import stats
from prime_bench.report.quantities.design import ArmColumn, Design, PanelDesign, RowDesign
from prime_bench.report.quantities.stats import METRICS, Metric, Moments, Tally
from prime_bench.settings.probes import Split
from prime_bench.store.pairing import GroupedRuns, Pair, Unpaired, pair_up
from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class ArmScores:
    """One arm on one backbone, one metric: all seeds that have a score."""

    moments: Moments | None
    """None without any score."""
    missing_seeds: tuple[int, ...]
    degenerate: dict[int, str]
    """By seed: why the run is no sound measurement."""
    jobs: tuple[str, ...]
    """Ids of the runs."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An arm against the baseline on one backbone, one metric, over complete pairs.

    Differences are oriented: positive favours the arm.
    """

    seeds: tuple[int, ...]
    baseline_scores: tuple[float, ...]
    arm_scores: tuple[float, ...]
    differences: tuple[float, ...]
    degenerate_seeds: tuple[int, ...]
    """Seeds of pairs in which either run is degenerate."""
    jobs: tuple[str, ...]
    """Ids of both runs of every pair."""

    @property
    def mean(self) -> float | None:
        """Mean difference; None without a pair."""
        return float(np.mean(self.differences)) if self.differences else None

    @property
    def error(self) -> float | None:
        """Standard deviation of the mean difference over repetitions; None below two pairs."""
        return stats.moments(self.differences).error if self.differences else None

    @property
    def median(self) -> float | None:
        """Median of the differences, which is not the difference of medians."""
        return float(np.median(self.differences)) if self.differences else None

    @property
    def tally(self) -> Tally:
        """Wins, ties, losses."""
        return stats.tally(self.differences)


ScoresByCell = dict[tuple[str, str, Metric], ArmScores]
ComparisonsByCell = dict[tuple[str, str, Metric], Comparison]
"""By the row's label, the arm's name and the metric."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One arm and metric over the backbones of a panel."""

    mean: Moments | None
    """Mean of the cells' means, and of their SDs, over `Panel.mean_rows`; None without any."""
    delta: float | None
    """Mean of the same backbones' mean differences; None for the baseline."""
    differences: tuple[float, ...]
    """All backbone-seed pairs."""
    backbone_medians: tuple[float, ...]
    """The median difference of each backbone that has a pair."""
    backbones_compared: int
    """Backbones with a pair."""
    backbones_won: int
    """Backbones with a mean difference above 0."""

    @property
    def paired_median(self) -> float | None:
        """Median over all pairs; None without any."""
        return float(np.median(self.differences)) if self.differences else None

    @property
    def tally(self) -> Tally:
        """Wins, ties, losses over all pairs."""
        return stats.tally(self.differences)


@dataclass(frozen=True, kw_only=True)
class DroppedPair:
    """A pair that is not compared although at least one of its runs has a record."""

    panel: PanelDesign
    row: RowDesign
    arm: ArmColumn
    unpaired: Unpaired


@dataclass(frozen=True, kw_only=True)
class MixedPair:
    """A pair that is compared on request although it may not be."""

    row: RowDesign
    arm: ArmColumn
    seed: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class PairedRuns:
    """The baseline of one backbone and seed with all arms that pair with it, by the arms' names."""

    row: RowDesign
    seed: int
    runs: dict[str, RunRecord]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One version of one data set."""

    design: PanelDesign
    cells: ScoresByCell
    comparisons: ComparisonsByCell
    summaries: dict[tuple[str, Metric], Summary]
    mean_rows: tuple[str, ...]
    """Rows that the Mean row covers: those in which every arm of the panel has a pair."""
    pairs: tuple[PairedRuns, ...]
    dropped: tuple[DroppedPair, ...]
    mixed: tuple[MixedPair, ...]

    def jobs_of(self, arm: str, metric: Metric) -> list[str]:
        """Ids of all jobs in the arm's comparisons."""
        own = (item for key, item in self.comparisons.items() if key[1:] == (arm, metric))
        return [job for item in own for job in item.jobs]

    def flagged(self, arm: str, metric: Metric) -> bool:
        """Whether a degenerate run is in any of the arm's comparisons."""
        own = (item for key, item in self.comparisons.items() if key[1:] == (arm, metric))
        return any(item.degenerate_seeds for item in own)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All panels under one baseline, with the scores of one split."""

    design: Design
    split: Split
    baseline_name: str
    baseline: ArmColumn | None
    """None where no run of the baseline is to be shown; there are no comparisons then."""
    others: tuple[ArmColumn, ...]
    panels: tuple[Panel, ...]
    records: tuple[RunRecord, ...]
    """The records that it shows."""

    @property
    def arms(self) -> tuple[ArmColumn, ...]:
        """All columns, the baseline first."""
        return (*([self.baseline] if self.baseline else []), *self.others)


def build_grid(
    grouped: GroupedRuns,
    *,
    design: Design,
    baseline: str,
    split: Split = "test",
    mixed: bool = False,
) -> Grid:
    """Compute the numbers that `design` asks for from grouped records.

    `mixed` compares runs that may not be compared, too.
    """
    first = next((arm for arm in design.arms if arm.name == baseline), None)
    others = tuple(arm for arm in design.arms if arm is not first)
    panels = tuple(
        _panel(grouped, panel, baseline=first, others=others, split=split, mixed=mixed)
        for panel in design.panels
    )
    shown = {
        record.job_id: record
        for panel in design.panels
        for row in panel.rows
        for arm in design.arms
        for record in _runs(grouped, row, arm, seeds=panel.seeds).values()
    }
    return Grid(
        design=design,
        split=split,
        baseline_name=baseline,
        baseline=first,
        others=others,
        panels=panels,
        records=tuple(shown.values()),
    )


def without_degenerate(grouped: GroupedRuns) -> GroupedRuns:
    """The same groups without the runs that are no sound measurement."""
    return {
        place: {
            arm: {seed: record for seed, record in runs.items() if record.result.degenerate is None}
            for arm, runs in arms.items()
        }
        for place, arms in grouped.items()
    }


def _panel(
    grouped: GroupedRuns,
    design: PanelDesign,
    *,
    baseline: ArmColumn | None,
    others: Sequence[ArmColumn],
    split: Split,
    mixed: bool,
) -> Panel:
    cells: ScoresByCell = {}
    comparisons: ComparisonsByCell = {}
    paired: list[PairedRuns] = []
    dropped: list[DroppedPair] = []
    compared_all_the_same: list[MixedPair] = []
    columns = (*([baseline] if baseline else []), *others)
    for row in design.rows:
        by_arm = {arm.name: _runs(grouped, row, arm, seeds=design.seeds) for arm in columns}
        for (name, runs), metric in itertools.product(by_arm.items(), METRICS):
            cells[row.label, name, metric] = _cell(runs, metric, seeds=design.seeds, split=split)
        if baseline is None:
            continue
        partners: dict[int, dict[str, RunRecord]] = {}
        for arm in others:
            pairs, unpaired = pair_up(by_arm[baseline.name], by_arm[arm.name], mixed=mixed)
            compared_all_the_same += [
                MixedPair(row=row, arm=arm, seed=pair.seed, reason=pair.mismatch)
                for pair in pairs
                if pair.mismatch
            ]
            dropped += [
                DroppedPair(panel=design, row=row, arm=arm, unpaired=item) for item in unpaired
            ]
            for metric in METRICS:
                comparisons[row.label, arm.name, metric] = _comparison(pairs, metric, split)
            for pair in pairs:
                partners.setdefault(pair.seed, {baseline.name: pair.baseline})
                partners[pair.seed][arm.name] = pair.arm
        paired += [PairedRuns(row=row, seed=seed, runs=partners[seed]) for seed in sorted(partners)]
    mean_rows = _mean_rows(design, cells, comparisons, columns=columns)
    return Panel(
        design=design,
        cells=cells,
        comparisons=comparisons,
        summaries={
            (arm.name, metric): _summary(arm.name, metric, cells, comparisons, mean_rows=mean_rows)
            for arm in columns
            for metric in METRICS
        },
        mean_rows=mean_rows,
        pairs=tuple(paired),
        dropped=tuple(dropped),
        mixed=tuple(compared_all_the_same),
    )


def _runs(
    grouped: GroupedRuns, row: RowDesign, arm: ArmColumn, *, seeds: Iterable[int]
) -> dict[int, RunRecord]:
    if row.comparison is None:
        return {}
    runs = grouped.get(row.comparison, {}).get(arm.key, {})
    return {seed: runs[seed] for seed in seeds if seed in runs}


def score_of(record: RunRecord, metric: Metric, split: Split) -> float | None:
    """A run's metric; None where its predictions are not numbers."""
    score = record.result.test if split == "test" else record.result.valid
    return score.auc if metric == "auc" else score.logloss


def _scores(records: Iterable[RunRecord], metric: Metric, split: Split) -> list[float]:
    """The metric of each run that has one."""
    values = (score_of(record, metric, split) for record in records)
    return [value for value in values if value is not None]


def _cell(
    runs: dict[int, RunRecord], metric: Metric, *, seeds: Sequence[int], split: Split
) -> ArmScores:
    values = _scores(runs.values(), metric, split)
    return ArmScores(
        moments=stats.moments(values) if values else None,
        missing_seeds=tuple(seed for seed in seeds if seed not in runs),
        jobs=tuple(run.job_id for run in runs.values()),
        degenerate={
            seed: run.result.degenerate for seed, run in runs.items() if run.result.degenerate
        },
    )


def _comparison(pairs: Sequence[Pair], metric: Metric, split: Split) -> Comparison:
    pairs = [
        pair
        for pair in pairs
        if None not in (score_of(run, metric, split) for run in (pair.baseline, pair.arm))
    ]
    baseline = _scores([pair.baseline for pair in pairs], metric, split)
    arm = _scores([pair.arm for pair in pairs], metric, split)
    differences = stats.improvements(metric, baseline=baseline, arm=arm)
    return Comparison(
        seeds=tuple(pair.seed for pair in pairs),
        baseline_scores=tuple(baseline),
        arm_scores=tuple(arm),
        differences=tuple(float(difference) for difference in differences),
        jobs=tuple(run.job_id for pair in pairs for run in (pair.baseline, pair.arm)),
        degenerate_seeds=tuple(
            pair.seed
            for pair in pairs
            if pair.baseline.result.degenerate or pair.arm.result.degenerate
        ),
    )


def _mean_rows(
    design: PanelDesign,
    cells: ScoresByCell,
    comparisons: ComparisonsByCell,
    *,
    columns: Sequence[ArmColumn],
) -> tuple[str, ...]:
    """Rows in which every arm has a pair: all means of the Mean row cover the same backbones.

    An arm without any pair in the panel asks for nothing: its Mean is missing anyway.
    """

    def usable(label: str, arm: ArmColumn) -> bool:
        if (label, arm.name, "auc") in comparisons:
            return bool(comparisons[label, arm.name, "auc"].seeds)
        return cells[label, arm.name, "auc"].moments is not None

    labels = [row.label for row in design.rows]
    asked = [arm for arm in columns if any(usable(label, arm) for label in labels)]
    return tuple(label for label in labels if asked and all(usable(label, arm) for arm in asked))


def _summary(
    arm: str,
    metric: Metric,
    cells: ScoresByCell,
    comparisons: ComparisonsByCell,
    *,
    mean_rows: Sequence[str],
) -> Summary:
    moments = [item for row in mean_rows if (item := cells[row, arm, metric].moments)]
    own = {
        row: comparison
        for (row, name, of), comparison in comparisons.items()
        if name == arm and of == metric and comparison.seeds
    }
    whole = bool(mean_rows) and len(moments) == len(mean_rows)
    compared = bool(mean_rows) and all(row in own for row in mean_rows)
    return Summary(
        mean=stats.mean_of(moments) if whole else None,
        delta=float(np.mean([own[row].mean for row in mean_rows])) if compared else None,
        differences=tuple(value for item in own.values() for value in item.differences),
        backbone_medians=tuple(float(np.median(item.differences)) for item in own.values()),
        backbones_compared=len(own),
        backbones_won=sum(1 for item in own.values() if np.mean(item.differences) > 0),
    )
