"""Statistics over architectures against brute force over all signs, scipy and hand-made cases."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.report.quantities.formulas import (
    Interval,
    equivalence,
    hodges_lehmann,
    hodges_lehmann_interval,
    holm,
    leave_one_out,
    wilcoxon,
)

DISTINCT = st.lists(st.integers(-1000, 1000), min_size=1, max_size=9, unique_by=abs)


@given(DISTINCT)
def test_the_interval_is_the_shifts_that_the_exact_test_keeps(values: list[int]) -> None:
    """The interval is the test turned round: a shift inside is not rejected, one outside is."""
    found = hodges_lehmann_interval(values)
    alpha = 1 - found.confidence

    assert found.low <= hodges_lehmann(values) <= found.high
    if len(values) < 6:
        return
    assert alpha <= 0.05
    for shift in (found.low - 1e-7, found.high + 1e-7):
        assert wilcoxon([value - shift for value in values]) <= alpha + 1e-12
    for shift in (found.low + 1e-7, found.high - 1e-7):
        if found.low < shift < found.high:
            assert wilcoxon([value - shift for value in values]) > alpha + 1e-12


def test_thirteen_architectures_have_the_level_of_all_signs() -> None:
    """2^13 sign flips: the tail that the interval leaves out, counted one by one."""
    values = np.array([53, 47, 4, 11, -6, 50, -30, 9, 18, 76, 34, 12, 16]) * 1e-4
    found = hodges_lehmann_interval(values)
    i, j = np.triu_indices(13)
    walsh = np.sort((values[i] + values[j]) / 2)
    k = int(np.searchsorted(walsh, found.low)) + 1
    ranks = np.arange(1, 14)
    sums = [int(np.dot(signs, ranks)) for signs in itertools.product([0, 1], repeat=13)]

    assert len(sums) == 2**13
    assert found.confidence == pytest.approx(
        1 - 2 * sum(s <= k - 1 for s in sums) / 2**13, abs=1e-15
    )
    assert sum(s <= k for s in sums) * 2 / 2**13 > 0.05
    assert found.confidence >= 0.95


def test_five_values_cannot_have_95_percent() -> None:
    found = hodges_lehmann_interval([1.0, 2.0, 3.0, 4.0, 5.0])

    assert found == Interval(low=1.0, high=5.0, confidence=1 - 2 / 32)


def test_an_interval_covers_what_it_claims() -> None:
    generator = np.random.default_rng(0)
    samples = generator.normal(size=(600, 13))
    covered = np.mean(
        [i.low <= 0 <= i.high for i in (hodges_lehmann_interval(row) for row in samples)]
    )

    assert 0.93 <= covered <= 0.985


def test_leaving_one_out_is_a_range() -> None:
    assert leave_one_out([1.0]) is None
    assert leave_one_out([0.0, 0.0, 9.0]) == (0.0, 4.5)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_the_step_down_definition(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])

    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for rank, index in enumerate(order):
            if (len(p_values) - rank) * p_values[index] > level:
                break
            rejected.add(index)
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.0011, 0.002, "better"),
        (-0.002, -0.0011, "worse"),
        (-0.0009, 0.0009, "equivalent"),
        (0.0001, 0.0009, "equivalent"),
        (0.0005, 0.0015, "unclear"),
        (-0.0015, 0.0015, "unclear"),
        (-0.001, 0.0005, "unclear"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, verdict: str) -> None:
    assert equivalence(Interval(low=low, high=high, confidence=0.95), margin=0.001) == verdict


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize(
    ("value", "verdict"), [(9.0, "better"), (-9.0, "worse"), (0.0, "equivalent")]
)
def test_a_verdict_needs_95_percent(n: int, value: float, verdict: str) -> None:
    found = equivalence(hodges_lehmann_interval([value] * n), margin=0.001)

    assert found == (verdict if n >= 6 else "too few")


def test_pooled_pairs_would_deceive() -> None:
    """Why no p is over pooled pairs: with clusters alone it is below 0.05 far too often."""
    generator = np.random.default_rng(1)
    pooled = clustered = 0
    for _ in range(400):
        shifts = generator.normal(size=13)
        pairs = shifts[:, None] + generator.normal(size=(13, 5))
        pooled += scipy.stats.wilcoxon(pairs.ravel()).pvalue < 0.05
        clustered += wilcoxon(np.median(pairs, axis=1)) < 0.05

    assert pooled / 400 > 0.12
    assert clustered / 400 < 0.08
