"""How far apart two records of one job are."""

from collections.abc import Iterator

from prime_bench.findings import ALL_METRICS, METRIC_LABELS, Validation
from prime_bench.store.record import Record, RunRecord


def differing_results(shown: Record, other: Record) -> list[str]:
    """Say where the results of two records of one job differ; empty where they are the same.

    Times, machine, versions and labels are no results. Scores are compared bit by bit.
    """
    if isinstance(shown, RunRecord) and isinstance(other, RunRecord):
        return list(_of_runs(shown, other))
    # Costs are times, so two measurements of them always differ.
    return [] if shown.findings == other.findings else ["other findings"]  # type: ignore[union-attr]


def score_distances(shown: Record, other: Record) -> dict[str, float]:
    """How far the test AUC and LogLoss of two runs are apart, where both have them."""
    if not (isinstance(shown, RunRecord) and isinstance(other, RunRecord)):
        return {}
    pairs = {
        "AUC": (shown.result.test.auc, other.result.test.auc),
        "LogLoss": (shown.result.test.logloss, other.result.test.logloss),
    }
    return {name: abs(a - b) for name, (a, b) in pairs.items() if a is not None and b is not None}


def _of_runs(shown: RunRecord, other: RunRecord) -> Iterator[str]:
    for split in ("test", "valid"):
        a, b = shown.result.scores[split], other.result.scores[split]
        name = "test" if split == "test" else "validation"
        for metric in ALL_METRICS:
            x, y = getattr(a, metric), getattr(b, metric)
            if x is not None and y is not None and x != y:
                values = f"{_number(x)} and {_number(y)}, {abs(x - y):.1e} apart"
                yield f"{name} {METRIC_LABELS[metric]} {values}"
            elif x != y and metric in _ALWAYS:
                yield f"{name} {METRIC_LABELS[metric]} {_number(x)} and {_number(y)}"
    if shown.pairing != other.pairing:
        yield "other initial weights or row order"
    if shown.result.epochs != other.result.epochs:
        yield f"{shown.result.epochs} and {other.result.epochs} epochs"
    elif list(map(_scores, shown.history)) != list(map(_scores, other.history)):
        yield "another history"


_ALWAYS = ("auc", "logloss")
"""Metrics that records of all versions have."""


def _scores(point: Validation) -> tuple[object, ...]:
    """A validation without its time."""
    return point.epoch, point.train_loss, point.valid_auc, point.valid_logloss, point.improved


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6f}"
