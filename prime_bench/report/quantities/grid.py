"""Scores of every arm on every backbone, paired differences to a baseline, and their summaries.

No number is rounded here.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from prime_bench.findings import Metric
from prime_bench.report.quantities import formulas
from prime_bench.report.quantities.formulas import METRICS, Moments, SeedNoise, Tally
from prime_bench.report.quantities.layout import (
    ArmColumn,
    BackboneRow,
    BlockLayout,
    GridLayout,
    runs_by_seed,
)
from prime_bench.settings.probes import ProbedSplit
from prime_bench.store.pairing import GroupedRuns, Pair, Unpaired, pair_up
from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class ArmScores:
    """Scores of one arm on one backbone by one metric, over all seeds that have one."""

    moments: Moments | None
    """None without any score."""
    missing_seeds: tuple[int, ...]
    unscored_seeds: tuple[int, ...]
    """Seeds of runs without this score, such as the AUC of rows that all have one label."""
    degenerate: dict[int, str]
    """Seed -> why the run is degenerate."""
    jobs: tuple[str, ...]
    """Ids of the runs."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Paired differences of an arm to the baseline on one backbone by one metric.

    A positive difference favours the arm, by whatever metric (`formulas.improvements`).
    """

    seeds: tuple[int, ...]
    """Seed of each pair, in rising order; scores and differences are in the same order."""
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
    def noise(self) -> SeedNoise | None:
        """How the mean difference varies over repetitions; None below two pairs."""
        return formulas.moments(self.differences).noise if self.differences else None

    @property
    def median(self) -> float | None:
        """Median of the differences, which is not the difference of medians."""
        return float(np.median(self.differences)) if self.differences else None

    @property
    def tally(self) -> Tally:
        """Pairs that the arm has won, tied and lost."""
        return formulas.tally(self.differences)

    @property
    def by_seed(self) -> dict[int, float]:
        """The difference of each pair."""
        return dict(zip(self.seeds, self.differences, strict=True))

    def jobs_of(self, seed: int) -> tuple[str, ...]:
        """Ids of both runs of the seed's pair."""
        index = self.seeds.index(seed)
        return self.jobs[2 * index : 2 * index + 2]


ScoresByKey = dict[tuple[str, str, Metric], ArmScores]
ComparisonsByKey = dict[tuple[str, str, Metric], Comparison]
"""By the row's label, the arm's name and the metric."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Scores and differences of one arm by one metric over the backbones of a block."""

    mean: Moments | None
    """Mean of the backbones' means, and of their SDs, over `GridBlock.mean_rows`; None without
    any."""
    delta: float | None
    """Mean of the mean differences of the same backbones; None for the baseline."""
    differences: tuple[float, ...]
    """Differences of all pairs of all backbones."""
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
        """Pairs that the arm has won, tied and lost, on all backbones."""
        return formulas.tally(self.differences)


@dataclass(frozen=True, kw_only=True)
class DroppedPair:
    """A pair that is not compared although at least one of its runs has a record."""

    block: BlockLayout
    row: BackboneRow
    arm: ArmColumn
    unpaired: Unpaired


@dataclass(frozen=True, kw_only=True)
class MixedPair:
    """A pair of runs that may not be compared and is, because it was asked for."""

    row: BackboneRow
    arm: ArmColumn
    seed: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class PairedRuns:
    """The runs of one backbone and seed that are paired: the baseline's and those of other arms."""

    row: BackboneRow
    seed: int
    runs: dict[str, RunRecord]
    """By the arm's name."""


@dataclass(frozen=True, kw_only=True)
class GridBlock:
    """The numbers of one version of one data set under one training protocol."""

    layout: BlockLayout
    scores: ScoresByKey
    comparisons: ComparisonsByKey
    summaries: dict[tuple[str, Metric], Summary]
    mean_rows: tuple[str, ...]
    """Labels of the backbones that the Mean row covers: those on which every arm has a pair."""
    pairs: tuple[PairedRuns, ...]
    dropped: tuple[DroppedPair, ...]
    mixed: tuple[MixedPair, ...]

    def jobs_of(self, arm: str, metric: Metric) -> list[str]:
        """Ids of the jobs of all pairs of the arm, the baseline's among them."""
        own = (item for key, item in self.comparisons.items() if key[1:] == (arm, metric))
        return [job for item in own for job in item.jobs]

    def run_ids(self, arm: str) -> set[str]:
        """Ids of all runs of the arm, whether they have a pair or not."""
        metric = METRICS[0]
        return {job for row in self.layout.rows for job in self.scores[row.label, arm, metric].jobs}

    def has_degenerate(self, arm: str, metric: Metric) -> bool:
        """Whether a degenerate run is in any of the arm's comparisons."""
        own = (item for key, item in self.comparisons.items() if key[1:] == (arm, metric))
        return any(item.degenerate_seeds for item in own)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The numbers of all data sets against one baseline, from the scores of one split."""

    layout: GridLayout
    split: ProbedSplit
    baseline_name: str
    baseline: ArmColumn | None
    """None where the layout has no such arm; then there are no comparisons."""
    others: tuple[ArmColumn, ...]
    blocks: tuple[GridBlock, ...]
    records: tuple[RunRecord, ...]
    """The records behind the numbers."""
    metrics: tuple[Metric, ...] = METRICS
    """What tables show, the first where they show one alone."""

    @property
    def arms(self) -> tuple[ArmColumn, ...]:
        """All arms, the baseline first."""
        return (*([self.baseline] if self.baseline else []), *self.others)


def build_grid(
    grouped: GroupedRuns,
    *,
    layout: GridLayout,
    baseline: str,
    split: ProbedSplit = "test",
    mixed: bool = False,
    tuned: bool = False,
    metrics: Sequence[Metric] = METRICS,
) -> Grid:
    """Compute the numbers that `layout` asks for from grouped records, by each of `metrics`.

    `mixed` compares runs that may not be compared, too, and `tuned` runs of backbones whose
    settings were chosen for each arm on its own.
    """
    first = next((arm for arm in layout.arms if arm.name == baseline), None)
    others = tuple(arm for arm in layout.arms if arm is not first)
    blocks = tuple(
        _block(
            grouped,
            block,
            baseline=first,
            others=others,
            split=split,
            mixed=mixed,
            tuned=tuned,
            metrics=metrics,
        )
        for block in layout.blocks
    )
    shown = {
        record.job_id: record
        for block in layout.blocks
        for row in block.rows
        for arm in layout.arms
        for record in runs_by_seed(grouped, row, arm, seeds=block.seeds).values()
    }
    return Grid(
        layout=layout,
        split=split,
        baseline_name=baseline,
        baseline=first,
        others=others,
        blocks=blocks,
        records=tuple(shown.values()),
        metrics=tuple(metrics),
    )


def without_degenerate(grouped: GroupedRuns) -> GroupedRuns:
    """The same groups without degenerate runs."""
    return {
        place: {
            arm: {seed: record for seed, record in runs.items() if record.degenerate is None}
            for arm, runs in arms.items()
        }
        for place, arms in grouped.items()
    }


def _block(
    grouped: GroupedRuns,
    layout: BlockLayout,
    *,
    baseline: ArmColumn | None,
    others: Sequence[ArmColumn],
    split: ProbedSplit,
    mixed: bool,
    tuned: bool,
    metrics: Sequence[Metric],
) -> GridBlock:
    # AUC and LogLoss are asked for by name, too: by what counts runs, and by tables of the paper.
    computed = tuple(dict.fromkeys((*METRICS, *metrics)))
    scores: ScoresByKey = {}
    comparisons: ComparisonsByKey = {}
    paired: list[PairedRuns] = []
    dropped: list[DroppedPair] = []
    compared_on_request: list[MixedPair] = []
    columns = (*([baseline] if baseline else []), *others)
    for row in layout.rows:
        by_arm = {arm.name: runs_by_seed(grouped, row, arm, seeds=layout.seeds) for arm in columns}
        for (name, runs), metric in itertools.product(by_arm.items(), computed):
            scores[row.label, name, metric] = _arm_scores(
                runs, metric, seeds=layout.seeds, split=split
            )
        if baseline is None:
            continue
        partners: dict[int, dict[str, RunRecord]] = {}
        for arm in others:
            pairs, unpaired = pair_up(
                by_arm[baseline.name], by_arm[arm.name], mixed=mixed, tuned=tuned
            )
            compared_on_request += [
                MixedPair(row=row, arm=arm, seed=pair.seed, reason=pair.mismatch)
                for pair in pairs
                if pair.mismatch
            ]
            dropped += [
                DroppedPair(block=layout, row=row, arm=arm, unpaired=item) for item in unpaired
            ]
            for metric in computed:
                comparisons[row.label, arm.name, metric] = _comparison(pairs, metric, split)
            for pair in pairs:
                partners.setdefault(pair.seed, {baseline.name: pair.baseline})
                partners[pair.seed][arm.name] = pair.arm
        paired += [PairedRuns(row=row, seed=seed, runs=partners[seed]) for seed in sorted(partners)]
    mean_rows = _mean_rows(layout, scores, comparisons, columns=columns, metric=metrics[0])
    return GridBlock(
        layout=layout,
        scores=scores,
        comparisons=comparisons,
        summaries={
            (arm.name, metric): _summary(arm.name, metric, scores, comparisons, mean_rows=mean_rows)
            for arm in columns
            for metric in computed
        },
        mean_rows=mean_rows,
        pairs=tuple(paired),
        dropped=tuple(dropped),
        mixed=tuple(compared_on_request),
    )


def score_of(record: RunRecord, metric: Metric, split: ProbedSplit) -> float | None:
    """A run's metric; None where its predictions are not numbers, and where its record has none."""
    score = record.result.test if split == "test" else record.result.valid
    value: float | None = getattr(score, metric)
    return value


def _scores(records: Iterable[RunRecord], metric: Metric, split: ProbedSplit) -> list[float]:
    """The metric of each run that has one."""
    values = (score_of(record, metric, split) for record in records)
    return [value for value in values if value is not None]


def _arm_scores(
    runs: dict[int, RunRecord], metric: Metric, *, seeds: Sequence[int], split: ProbedSplit
) -> ArmScores:
    values = _scores(runs.values(), metric, split)
    return ArmScores(
        moments=formulas.moments(values) if values else None,
        missing_seeds=tuple(seed for seed in seeds if seed not in runs),
        unscored_seeds=tuple(
            seed for seed, run in runs.items() if score_of(run, metric, split) is None
        ),
        jobs=tuple(run.job_id for run in runs.values()),
        degenerate={seed: run.degenerate for seed, run in runs.items() if run.degenerate},
    )


def _comparison(pairs: Sequence[Pair], metric: Metric, split: ProbedSplit) -> Comparison:
    pairs = [
        pair
        for pair in pairs
        if None not in (score_of(run, metric, split) for run in (pair.baseline, pair.arm))
    ]
    baseline = _scores([pair.baseline for pair in pairs], metric, split)
    arm = _scores([pair.arm for pair in pairs], metric, split)
    differences = formulas.improvements(metric, baseline=baseline, arm=arm)
    return Comparison(
        seeds=tuple(pair.seed for pair in pairs),
        baseline_scores=tuple(baseline),
        arm_scores=tuple(arm),
        differences=tuple(float(difference) for difference in differences),
        jobs=tuple(run.job_id for pair in pairs for run in (pair.baseline, pair.arm)),
        degenerate_seeds=tuple(
            pair.seed for pair in pairs if pair.baseline.degenerate or pair.arm.degenerate
        ),
    )


def _mean_rows(
    layout: BlockLayout,
    scores: ScoresByKey,
    comparisons: ComparisonsByKey,
    *,
    columns: Sequence[ArmColumn],
    metric: Metric,
) -> tuple[str, ...]:
    """Rows in which every arm has a pair: all means of the Mean row cover the same backbones.

    An arm without any pair in the block asks for nothing: its Mean is missing anyway.
    """

    def usable(label: str, arm: ArmColumn) -> bool:
        if (label, arm.name, metric) in comparisons:
            return bool(comparisons[label, arm.name, metric].seeds)
        return scores[label, arm.name, metric].moments is not None

    labels = [row.label for row in layout.rows]
    asked = [arm for arm in columns if any(usable(label, arm) for label in labels)]
    return tuple(label for label in labels if asked and all(usable(label, arm) for arm in asked))


def _summary(
    arm: str,
    metric: Metric,
    scores: ScoresByKey,
    comparisons: ComparisonsByKey,
    *,
    mean_rows: Sequence[str],
) -> Summary:
    moments = [item for row in mean_rows if (item := scores[row, arm, metric].moments)]
    own = {
        row: comparison
        for (row, name, of), comparison in comparisons.items()
        if name == arm and of == metric and comparison.seeds
    }
    whole = bool(mean_rows) and len(moments) == len(mean_rows)
    compared = bool(mean_rows) and all(row in own for row in mean_rows)
    return Summary(
        mean=formulas.mean_of(moments) if whole else None,
        delta=float(np.mean([own[row].mean for row in mean_rows])) if compared else None,
        differences=tuple(value for item in own.values() for value in item.differences),
        backbone_medians=tuple(float(np.median(item.differences)) for item in own.values()),
        backbones_compared=len(own),
        backbones_won=sum(1 for item in own.values() if np.mean(item.differences) > 0),
    )
