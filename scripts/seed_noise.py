"""How often two sets of runs of one distribution are called different by a comparison.

    python scripts/seed_noise.py [--repeats 20000]

Both sides are drawn from one distribution, theirs is rounded as it would be printed, and our number
is judged as `report --against paper` judges it: means by `noise_bound`, standard deviations by
`same_spread`, of `report/quantities/formulas.py`. The last column is the rule of before, two
standard errors of our side alone. Prints Markdown; docs/statistics.md has it.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tabulate import tabulate

from prime_bench.report.quantities.formulas import (
    ERROR_RATE,
    SeedNoise,
    combined_noise,
    moments,
    noise_bound,
    noise_of,
    noise_of_mean,
    noise_of_one,
    same_spread,
)
from prime_bench.report.tables.expected import load_paper

Draw = Callable[[np.random.Generator], "Trial"]
SEEDS = 5
UNIT = 1e-4
"""Of the last digit that is printed."""


@dataclass(frozen=True)
class Trial:
    """Two numbers of one distribution, and what is known of each."""

    ours: float
    theirs: float
    our_noise: SeedNoise | None
    their_noise: SeedNoise | None
    n_ours: int = SEEDS
    n_theirs: int = SEEDS
    unit: float = UNIT


def rounded(value: float, unit: float = UNIT) -> float:
    """As it is printed."""
    return round(value / unit) * unit


def means(
    n: int, m: int, *, draw: Callable[[np.random.Generator, int], np.ndarray], printed_sd: bool
) -> Draw:
    """The means of n and of m runs; without a printed SD theirs are taken to vary as ours."""

    def trial(rng: np.random.Generator) -> Trial:
        ours, theirs = moments(draw(rng, n)), moments(draw(rng, m))
        sd = rounded(theirs.sd) if theirs.sd is not None else None
        return Trial(
            ours.mean,
            rounded(theirs.mean),
            ours.noise,
            noise_of(sd, n=m) if printed_sd and sd is not None else None,
            n_ours=n,
            n_theirs=m,
        )

    return trial


def normal(sd: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Runs that vary normally."""
    return lambda rng, n: rng.normal(0.76, sd, n)


def collapsing(share: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """LogLosses of which a share is that of a run that broke down."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        broken = rng.random(n) < share
        return np.where(broken, np.exp(rng.normal(1, 0.7, n)), rng.normal(0.46, 0.005, n))

    return draw


def arms(rng: np.random.Generator, sds: tuple[float, float], correlation: float) -> np.ndarray:
    """Scores of Dense and PRIME over seeds, shape (seeds, 2)."""
    common, own = rng.normal(size=(SEEDS, 1)), rng.normal(size=(SEEDS, 2))
    shared = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    return 0.76 + np.array(sds) * shared


def delta(correlation: float) -> Draw:
    """Mean paired differences; theirs has the SDs of both arms alone."""

    def trial(rng: np.random.Generator) -> Trial:
        ours, theirs = (arms(rng, (0.0015, 0.001), correlation) for _ in range(2))
        own = moments(ours[:, 1] - ours[:, 0])
        sides = [noise_of(rounded(float(np.std(side, ddof=1))), n=SEEDS) for side in theirs.T]
        printed = rounded(float(np.mean(theirs[:, 1] - theirs[:, 0])))
        return Trial(own.mean, printed, own.noise, combined_noise(sides))

    return trial


def mean_row(dataset: str, metric: str) -> Draw:
    """The mean over 13 backbones whose SDs are those that the paper prints for Dense."""
    sds = [
        number.sd
        for address, number in load_paper().printed().items()
        if address.startswith(f"main.{dataset}.") and address.endswith(f".{metric}.dense")
        if ".mean." not in address and number.sd is not None
    ]

    def trial(rng: np.random.Generator) -> Trial:
        ours, theirs = (
            [moments(rng.normal(0.76, sd, SEEDS)) for sd in sds if sd is not None] for _ in range(2)
        )
        printed = [noise_of(rounded(item.sd or 0.0), n=SEEDS) for item in theirs]
        return Trial(
            float(np.mean([item.mean for item in ours])),
            rounded(float(np.mean([item.mean for item in theirs]))),
            noise_of_mean([item.noise for item in ours]),
            noise_of_mean(printed),
        )

    return trial


def pooled(rng: np.random.Generator) -> Trial:
    """A control: the mean difference over four backbones and five seeds; theirs has no SD."""
    sds = (0.0005, 0.001, 0.001, 0.003)
    ours, theirs = ([moments(rng.normal(0.001, sd, SEEDS)) for sd in sds] for _ in range(2))
    printed = rounded(float(np.mean([item.mean for item in theirs])))
    own = noise_of_mean([item.noise for item in ours])
    return Trial(float(np.mean([item.mean for item in ours])), printed, own, None)


def one_seed(rng: np.random.Generator) -> Trial:
    """The score of one seed, whose noise is the SD of our four others."""
    ours, theirs = rng.normal(0.76, 0.0015, SEEDS), rng.normal(0.76, 0.0015)
    noise = noise_of_one([float(value) for value in ours[1:]])
    return Trial(float(ours[0]), rounded(float(theirs)), noise, None, n_ours=1, n_theirs=1)


def paired_median(rng: np.random.Generator) -> Trial:
    """The median of 65 differences, whose noise is that of the seeds' medians."""
    gains = np.array([53, 47, 4, 11, -6, 50, -30, 9, 18, 76, 34, 11, 16]) * 1e-4
    ours, theirs = (rng.normal(gains[:, None], 0.0018, (13, SEEDS)) for _ in range(2))
    noise = moments(np.median(ours, axis=0)).noise
    return Trial(float(np.median(ours)), rounded(float(np.median(theirs))), noise, None)


def reduction(rng: np.random.Generator) -> Trial:
    """By how much per cent PRIME's gap is smaller, three seeds; the noise is that of theirs."""
    sides = [rng.normal((0.30, 0.20), 0.02, (3, 2)) for _ in range(2)]
    ours, theirs = (100 * (1 - gaps[:, 1].mean() / gaps[:, 0].mean()) for gaps in sides)
    noise = moments(100 * (1 - sides[0][:, 1] / sides[0][:, 0])).noise
    return Trial(ours, rounded(theirs, 0.1), noise, None, n_ours=3, n_theirs=3, unit=0.1)


def share_outside(draw: Draw, rng: np.random.Generator, repeats: int) -> tuple[float, float]:
    """The share of trials that are called different, by the rule and by that of before."""
    now = before = 0
    for _ in range(repeats):
        trial = draw(rng)
        difference = abs(trial.ours - trial.theirs)
        bound = noise_bound(
            trial.our_noise, trial.their_noise, n_ours=trial.n_ours, n_theirs=trial.n_theirs
        )
        now += bound is None or difference > bound + trial.unit / 2
        before += trial.our_noise is None or difference > 2 * trial.our_noise.error
    return now / repeats, before / repeats


def share_of_spreads(
    draw: Callable[[np.random.Generator, int], np.ndarray], rng: np.random.Generator, repeats: int
) -> float:
    """The share of pairs of five runs each whose standard deviations are called different."""
    pairs = ([float(np.std(draw(rng, SEEDS), ddof=1)) for _ in range(2)] for _ in range(repeats))
    return sum(not same_spread(a, b, n=SEEDS, n_other=SEEDS) for a, b in pairs) / repeats


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20_000)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(2021)
    cases: list[tuple[str, Draw]] = [
        ("mean of 5 and of 5, SD 0.0015", means(5, 5, draw=normal(0.0015), printed_sd=True)),
        ("the same, SD 0.0001", means(5, 5, draw=normal(0.0001), printed_sd=True)),
        ("mean of 3 and of 5", means(3, 5, draw=normal(0.0015), printed_sd=True)),
        ("mean of 1 and of 5", means(1, 5, draw=normal(0.0015), printed_sd=True)),
        ("mean of 5 and of 5, SD not printed", means(5, 5, draw=normal(0.0015), printed_sd=False)),
        ("mean of 5 and of 1 (BARS)", means(5, 1, draw=normal(0.0015), printed_sd=False)),
        (
            "LogLoss, a fifth of runs broken down",
            means(5, 5, draw=collapsing(0.2), printed_sd=True),
        ),
        ("LogLoss, half of runs broken down", means(5, 5, draw=collapsing(0.5), printed_sd=True)),
        ("Δ, arms uncorrelated", delta(0.0)),
        ("Δ, correlation 0.5", delta(0.5)),
        ("Δ, correlation 0.9", delta(0.9)),
        ("Mean row, AUC on Avazu", mean_row("avazu", "auc")),
        ("Mean row, LogLoss on Criteo", mean_row("criteo", "logloss")),
        ("difference over 4 backbones", pooled),
        ("one seed", one_seed),
        ("paired median of 65", paired_median),
        ("reduction of the gap, 3 seeds", reduction),
    ]
    rows = []
    for name, draw in cases:
        now, before = share_outside(draw, rng, repeats)
        rows.append([name, f"{100 * now:.1f}", f"{100 * before:.1f}"])
    print(f"Called outside, % of {repeats:,} ({100 * ERROR_RATE:g} asked)\n")
    print(tabulate(rows, headers=["", "now", "before"], tablefmt="github", disable_numparse=True))
    spreads = [
        ("normal runs", normal(0.0015)),
        ("a fifth of runs broken down", collapsing(0.2)),
        ("half of runs broken down", collapsing(0.5)),
    ]
    rows = [[name, f"{100 * share_of_spreads(draw, rng, repeats):.1f}"] for name, draw in spreads]
    print(f"\nOther SD, 5 and 5 runs, % of {repeats:,}\n")
    print(tabulate(rows, headers=["", "now"], tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
