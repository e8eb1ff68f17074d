"""What figures are drawn from: pairs of runs, curves and gradient findings, without any record."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from prime_bench.report.quantities.stats import Metric


@dataclass(frozen=True, kw_only=True)
class PairedScores:
    """One metric of one backbone in two arms, seed by seed; the three tuples have one length."""

    backbone: str
    """Printed name."""
    metric: Metric
    seeds: tuple[int, ...]
    baseline: tuple[float, ...]
    arm: tuple[float, ...]

    @property
    def differences(self) -> dict[int, float]:
        """By seed: positive favours the arm. A pair with a score that is no number is left out."""
        sign = 1.0 if self.metric == "auc" else -1.0
        every = {
            seed: sign * (arm - baseline)
            for seed, baseline, arm in zip(self.seeds, self.baseline, self.arm, strict=True)
        }
        return {seed: value for seed, value in every.items() if math.isfinite(value)}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One run's validation metric after each epoch."""

    arm: str
    """Printed name."""
    seed: int
    epochs: tuple[int, ...]
    values: tuple[float, ...]
    """NaN where a validation had none."""
    best_epoch: int | None


@dataclass(frozen=True, kw_only=True)
class LoadCurve:
    """What one run's routers did, epoch by epoch: E epochs, G bags."""

    backbone: str
    seed: int
    epochs: tuple[int, ...]
    largest_load: tuple[tuple[float, ...], ...]
    """(E, G): the largest mean weight of one expert."""
    n_experts: int
    """Experts of a bag: 1 / n_experts is an even load."""


@dataclass(frozen=True, kw_only=True)
class GapFinding:
    """Gradient alignment of one checkpoint under one semantic field (paper, Eq. 28)."""

    backbone: str
    arm: str
    """Printed names."""
    seed: int
    field: str
    semantic: float
    """Mean pairwise cosine of the gradients of semantic groups."""
    matched: float
    """The same of matched random groups."""

    @property
    def gap(self) -> float:
        """The competition gap: what alignment the semantic grouping loses."""
        return self.matched - self.semantic


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """What an arm gains on one backbone, and what it costs there."""

    backbone: str
    arm: str
    """Printed names."""
    difference: float
    """Median paired difference of test AUC."""
    added_parameters: float
    """Plug-in parameters as a share of the backbone's."""
    step_time_ratio: float | None
    """Median paired ratio of seconds a training step; None where the runs' devices differ."""
    n_pairs: int


def in_order(names: Iterable[str]) -> list[str]:
    """Each name once, in order of first mention."""
    return list(dict.fromkeys(names))
