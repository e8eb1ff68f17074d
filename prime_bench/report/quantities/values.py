"""Quantities: what a cell of a report table can be, typed, before any text is made of it."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from prime_bench.findings import Metric
from prime_bench.report.quantities.formulas import (
    Equivalence,
    SeedInterval,
    SeedNoise,
    Tally,
)

Better = Literal["higher", "lower", "nearest 1"]
"""Which direction is an improvement; a difference has one of the first two."""
BETTER: dict[Metric, Better] = {
    "auc": "higher",
    "logloss": "lower",
    "gauc": "higher",
    "ne": "lower",
    "pcoc": "nearest 1",
    "ece": "lower",
    "ece_all": "lower",
}
"""That of each metric."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number with its spread, how many values it is computed from, and the jobs behind it."""

    value: float | None = None
    """Before rounding; None where there is no number."""
    sd: float | None = None
    """Sample standard deviation, printed after the number."""
    noise: SeedNoise | None = None
    """How `value` varies over repetitions with other seeds; None where that is unknown."""
    n: int | None = None
    """Number of values behind it, where a table says so."""
    planned: int | None = None
    """What `n` is when no run is missing; `n` is printed where it is another."""
    interval: SeedInterval | None = None
    degenerate: bool = False
    """Whether a degenerate run is among the jobs."""
    jobs: tuple[str, ...] = ()
    """Ids of the jobs whose records it is computed from."""

    def bare(self) -> Self:
        """The same number without its interval."""
        return replace(self, interval=None)


@dataclass(frozen=True, kw_only=True)
class Level(Quantity):
    """A number that stands for itself: a score, a cost, a p-value."""


@dataclass(frozen=True, kw_only=True)
class Difference(Quantity):
    """A number with a sign: what one arm is ahead of another."""

    better: Better = "higher"
    tally: Tally | None = None
    """Pairs won, tied and lost, where they are printed after the number."""

    @property
    def improves(self) -> bool:
        """Whether the unrounded number is an improvement; zero is none."""
        if self.value is None:
            return False
        return self.value > 0 if self.better == "higher" else self.value < 0

    def bare(self) -> Self:
        """The same number without its interval and without the pairs won."""
        return replace(self, interval=None, tally=None)


@dataclass(frozen=True, kw_only=True)
class Count(Quantity):
    """How many; `value` is a whole number."""

    of: int | None = None
    """How many it could be at most; None where there is no such number."""
    ties: int = 0
    """Pairs that are neither won nor lost."""


@dataclass(frozen=True, kw_only=True)
class Extent(Quantity):
    """From one signed number to another; it has no `value`."""

    low: float
    high: float
    confidence: float | None = None
    """Probability with which an interval covers the true value; None for a mere range."""


@dataclass(frozen=True, kw_only=True)
class EquivalenceVerdict(Quantity):
    """Whether two arms differ by more than a margin; it has no `value`."""

    verdict: Equivalence
    margin: float | None = None
    """The margin, where it is printed after the verdict."""


MISSING = Level()
"""What has no value, and no job behind it."""


def count(part: int, of: int | None = None, *, ties: int = 0, jobs: tuple[str, ...] = ()) -> Count:
    """`part` of `of`; of nothing at all there is no count, so `value` is None where `of` is 0."""
    return Count(value=None if of == 0 else float(part), of=of, ties=ties, jobs=jobs)


def tallied(tally: Tally, *, jobs: tuple[str, ...] = ()) -> Count:
    """Pairs won of all pairs."""
    of = tally.wins + tally.ties + tally.losses
    return count(tally.wins, of, ties=tally.ties, jobs=jobs)
