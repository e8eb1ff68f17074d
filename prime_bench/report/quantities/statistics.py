"""Statistics by the names that a table's definition uses: from the runs of an arm to a quantity."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median, stdev
from typing import Literal

from prime_bench.findings import Metric
from prime_bench.report.quantities import formulas
from prime_bench.report.quantities.formulas import METRICS, SeedNoise, noise_of_mean, noise_of_one
from prime_bench.report.quantities.grid import Comparison, GridBlock, score_of
from prime_bench.report.quantities.layout import ArmColumn, BackboneRow
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.values import (
    MISSING,
    Count,
    Difference,
    Extent,
    Level,
    Quantity,
    count,
    tallied,
)
from prime_bench.settings.probes import ProbedSplit
from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The runs that a quantity is about: of one arm, on backbones of one data set."""

    records: ReportRecords
    block: GridBlock
    backbones: Sequence[BackboneRow]
    """A statistic of one backbone takes the first."""
    arm: ArmColumn
    metric: Metric
    split: ProbedSplit
    seed: int | None = None
    """One seed alone; None: all."""

    @property
    def comparison(self) -> Comparison:
        """The arm against the baseline on the first backbone."""
        return self.block.comparisons[self.backbones[0].label, self.arm.name, self.metric]

    @property
    def comparisons(self) -> list[Comparison]:
        """The arm against the baseline on every backbone."""
        found = self.block.comparisons
        return [found[row.label, self.arm.name, self.metric] for row in self.backbones]

    @property
    def planned(self) -> int:
        """Seeds of the data set."""
        return len(self.block.layout.seeds)


def level(selected: Selection) -> Level:
    """The mean over seeds and its sample SD on one backbone, or one seed's score."""
    row, arm = selected.backbones[0], selected.arm
    if selected.seed is not None:
        runs = selected.records.runs_of(row, arm, seeds=(selected.seed,)).values()
        return Level(
            value=next((score_of(run, selected.metric, selected.split) for run in runs), None),
            noise=_noise(replace(selected, backbones=(row,)), _score(selected)),
            degenerate=any(run.degenerate for run in runs),
            jobs=tuple(run.job_id for run in runs),
        )
    scores = selected.block.scores[row.label, arm.name, selected.metric]
    moments = scores.moments
    return Level(
        value=moments.mean if moments else None,
        sd=moments.sd if moments else None,
        noise=moments.noise if moments else None,
        n=moments.n if moments else 0,
        planned=selected.planned,
        degenerate=bool(scores.degenerate),
        jobs=scores.jobs,
    )


def average_level(selected: Selection) -> Level:
    """The mean over backbones of their means over seeds, with the mean of their sample SDs."""
    return _average(selected, _score(selected))


def entropy(selected: Selection) -> Level:
    """The mean over backbones of their means over seeds of the routers' entropy, in nats."""
    return _average(selected, lambda run: _routing(selected, run, "entropy"))


def largest_load(selected: Selection) -> Level:
    """The mean over backbones of their means over seeds of the largest mean weight of an expert."""
    return _average(selected, lambda run: _routing(selected, run, "largest_load"))


def mean_level(selected: Selection) -> Level:
    """What the Mean row shows: mean of the backbones' means ± mean of their SDs.

    It covers the backbones on which every arm has a pair.
    """
    block, arm, metric = selected.block, selected.arm.name, selected.metric
    found = block.summaries[arm, metric].mean
    own = [block.scores[row, arm, metric] for row in block.mean_rows]
    return Level(
        value=found.mean if found else None,
        sd=found.sd if found else None,
        noise=noise_of_mean([cell.moments.noise for cell in own if cell.moments]),
        degenerate=any(cell.degenerate for cell in own),
        jobs=tuple(job for cell in own for job in cell.jobs),
    )


def difference(selected: Selection) -> Difference:
    """The mean paired difference on one backbone with the pairs won, or one seed's difference."""
    found = selected.comparison
    if selected.seed is not None:
        return _seed_difference(found, selected.seed)
    return Difference(
        value=found.mean,
        noise=found.noise,
        n=len(found.seeds),
        planned=selected.planned,
        tally=found.tally,
        degenerate=bool(found.degenerate_seeds),
        jobs=found.jobs,
    )


def pooled_difference(selected: Selection) -> Difference:
    """The mean difference over all pairs of all backbones."""
    found = selected.comparisons
    values = [value for item in found for value in item.differences]
    return Difference(
        value=mean(values) if values else None,
        noise=noise_of_mean([item.noise for item in found if item.seeds]),
        n=len(values),
        planned=selected.planned * len(found),
        degenerate=any(item.degenerate_seeds for item in found),
        jobs=_jobs(found),
    )


def mean_difference(selected: Selection) -> Difference:
    """The mean of the backbones' mean differences, over the backbones of the Mean row."""
    block, arm, metric = selected.block, selected.arm.name, selected.metric
    own = [block.comparisons[row, arm, metric] for row in block.mean_rows]
    return Difference(
        value=block.summaries[arm, metric].delta,
        noise=noise_of_mean([item.noise for item in own]),
        degenerate=block.has_degenerate(arm, metric),
        jobs=tuple(block.jobs_of(arm, metric)),
    )


def paired_median(selected: Selection) -> Difference:
    """The median difference over all pairs of the data set."""
    block, arm, metric = selected.block, selected.arm.name, selected.metric
    own = [item for key, item in block.comparisons.items() if key[1:] == (arm, metric)]
    by_seed: dict[int, list[float]] = {}
    for item in own:
        for seed, value in item.by_seed.items():
            by_seed.setdefault(seed, []).append(value)
    # Over seeds, since pairs of one backbone are no repetitions of the whole.
    medians = [median(values) for values in by_seed.values()]
    return Difference(
        value=block.summaries[arm, metric].paired_median,
        noise=formulas.moments(medians).noise if medians else None,
        n=len(block.summaries[arm, metric].differences),
        planned=selected.planned * len(block.layout.rows),
        degenerate=block.has_degenerate(arm, metric),
        jobs=tuple(block.jobs_of(arm, metric)),
    )


def pairs_won(selected: Selection) -> Count:
    """Pairs of the data set in which the arm is better."""
    arm, metric = selected.arm.name, selected.metric
    jobs = tuple(selected.block.jobs_of(arm, metric))
    return tallied(selected.block.summaries[arm, metric].tally, jobs=jobs)


def backbones_won(selected: Selection) -> Count:
    """Backbones on which the mean difference is above zero."""
    arm, metric = selected.arm.name, selected.metric
    found = selected.block.summaries[arm, metric]
    jobs = tuple(selected.block.jobs_of(arm, metric))
    return count(found.backbones_won, found.backbones_compared, jobs=jobs)


def won(selected: Selection) -> Count:
    """Pairs of the backbones in which the arm is better."""
    found = selected.comparisons
    tally = formulas.tally([value for item in found for value in item.differences])
    return tallied(tally, jobs=_jobs(found))


def both_won(selected: Selection) -> Count:
    """Pairs of the backbones in which the arm is better by AUC and by LogLoss.

    A pair without either score, such as the AUC of rows that all have one label, does not count.
    """
    auc, logloss = (replace(selected, metric=metric).comparisons for metric in METRICS)
    part, of, jobs = 0, 0, list[str]()
    for item, other in zip(auc, logloss, strict=True):
        for seed in (seed for seed in item.seeds if seed in other.seeds):
            part += item.by_seed[seed] > 0 and other.by_seed[seed] > 0
            of += 1
            jobs += item.jobs_of(seed)
    return count(part, of, jobs=tuple(jobs))


def n_pairs(selected: Selection) -> Count:
    """Pairs on one backbone."""
    return count(len(selected.comparison.seeds), jobs=selected.comparison.jobs)


def smallest_p(selected: Selection) -> Level:
    """The smallest p that the pairs on one backbone could give."""
    found = selected.comparison
    value = formulas.smallest_p(found.differences) if found.seeds else None
    return Level(value=value, jobs=found.jobs)


def median_difference(selected: Selection) -> Difference:
    """The median paired difference on one backbone."""
    found = selected.comparison
    return Difference(value=found.median, degenerate=bool(found.degenerate_seeds), jobs=found.jobs)


def range_of_differences(selected: Selection) -> Quantity:
    """From the smallest to the largest paired difference on one backbone."""
    found = selected.comparison
    if not found.differences:
        return MISSING
    return Extent(low=min(found.differences), high=max(found.differences), jobs=found.jobs)


def wilcoxon_p(selected: Selection) -> Level:
    """Exact two-sided p of Wilcoxon's signed-rank test on one backbone."""
    return _of_pairs(selected, lambda found: formulas.wilcoxon(found.differences))


def sign_p(selected: Selection) -> Level:
    """Exact two-sided p of the sign test on one backbone."""
    return _of_pairs(selected, lambda found: formulas.sign_test(found.differences))


def improvement(selected: Selection) -> Level:
    """Chance that a run of the arm beats a run of the baseline on one backbone."""
    return _of_pairs(
        selected,
        lambda found: formulas.probability_of_improvement(
            selected.metric, baseline=found.baseline_scores, arm=found.arm_scores
        ),
    )


def correlation(selected: Selection) -> Level:
    """Correlation of the two arms' scores over seeds on one backbone."""
    return _of_pairs(
        selected, lambda found: formulas.correlation(found.baseline_scores, found.arm_scores)
    )


LEVELS = (level, average_level, mean_level, entropy, largest_load)
"""Statistics of an arm alone."""
PAIRED = (
    *(difference, pooled_difference, mean_difference, paired_median, median_difference),
    *(range_of_differences, n_pairs, won, both_won, pairs_won, backbones_won),
    *(smallest_p, wilcoxon_p, sign_p, improvement, correlation),
)
"""Statistics that compare an arm with the baseline."""
STATISTICS: dict[str, Callable[[Selection], Quantity]] = {
    statistic.__name__: statistic for statistic in (*LEVELS, *PAIRED)
}


def _average(selected: Selection, measure: Callable[[RunRecord], float | None]) -> Level:
    """Mean over backbones of their means, and of their standard deviations, over seeds.

    Runs without the measure are left out; without two of every backbone there is no spread.
    """
    seeds = selected.block.layout.seeds if selected.seed is None else (selected.seed,)
    by_backbone: list[dict[str, float]] = []
    degenerate = False
    for row in selected.backbones:
        runs = selected.records.runs_of(row, selected.arm, seeds=seeds).values()
        values = {run.job_id: measure(run) for run in runs}
        degenerate |= any(run.degenerate for run in runs)
        by_backbone.append({job: value for job, value in values.items() if value is not None})
    found = [list(values.values()) for values in by_backbone if values]
    spread = len(seeds) > 1 and found and all(len(values) > 1 for values in found)
    return Level(
        value=mean(mean(values) for values in found) if found else None,
        sd=mean(stdev(values) for values in found) if spread else None,
        noise=_noise(selected, measure),
        n=sum(len(values) for values in found),
        planned=len(seeds) * len(selected.backbones),
        degenerate=degenerate,
        jobs=tuple(job for values in by_backbone for job in values),
    )


def _noise(selected: Selection, measure: Callable[[RunRecord], float | None]) -> SeedNoise | None:
    """The noise of a mean over backbones: of all seeds, or of one seed, by what the others vary."""
    parts = []
    for row in selected.backbones:
        runs = selected.records.runs_of(row, selected.arm, seeds=selected.block.layout.seeds)
        found = {seed: value for seed, run in runs.items() if (value := measure(run)) is not None}
        if selected.seed is None:
            parts += [formulas.moments(list(found.values())).noise] if found else []
        else:
            others = [value for seed, value in found.items() if seed != selected.seed]
            parts.append(noise_of_one(others))
    return noise_of_mean(parts)


def _score(selected: Selection) -> Callable[[RunRecord], float | None]:
    return lambda run: score_of(run, selected.metric, selected.split)


def _routing(
    selected: Selection, run: RunRecord, key: Literal["entropy", "largest_load"]
) -> float | None:
    """From the routing probe of the split where there was one, else from the best epoch's training
    batches.
    """
    if (found := selected.records.routing_of(run, selected.split)) is not None:
        return found.entropy if key == "entropy" else found.largest_load
    best = [item.routing for item in run.history if item.epoch == run.result.best_epoch]
    if not best or best[0] is None:
        return None
    return mean(best[0].entropy) if key == "entropy" else max(best[0].largest_load)


def _seed_difference(found: Comparison, seed: int) -> Difference:
    if seed not in found.seeds:
        return Difference()
    others = [value for other, value in found.by_seed.items() if other != seed]
    return Difference(
        value=found.by_seed[seed],
        noise=noise_of_one(others),
        degenerate=seed in found.degenerate_seeds,
        jobs=found.jobs_of(seed),
    )


def _of_pairs(selected: Selection, measure: Callable[[Comparison], float | None]) -> Level:
    found = selected.comparison
    return Level(value=measure(found) if found.differences else None, jobs=found.jobs)


def _jobs(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    return tuple(job for item in comparisons for job in item.jobs)
