"""Formulas against brute force over all signs, scipy, their definitions and hand-made cases."""

import itertools
import math
import statistics
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.report.quantities import formulas
from prime_bench.report.quantities.formulas import Interval, Moments

# A small set of values makes ties and zeros common.
DIFFERENCES = st.lists(st.sampled_from([-3.0, -1.5, -1.0, 0.0, 1.0, 1.5, 2.0]), max_size=8)
DISTINCT = st.lists(st.integers(1, 1000), min_size=1, max_size=9, unique=True)
SIGNED = st.lists(st.integers(-1000, 1000), min_size=1, max_size=9, unique_by=abs)


def test_moments_are_mean_and_sample_sd() -> None:
    values = [0.7402, 0.7455, 0.7399, 0.7410, 0.7388]

    found = formulas.moments(values)

    assert found.n == 5
    assert found.mean == pytest.approx(math.fsum(values) / 5, abs=1e-15)
    assert found.sd == pytest.approx(statistics.stdev(values), abs=1e-15)


def test_spread_of_one_run_is_unknown_not_zero() -> None:
    assert formulas.moments([0.75]) == Moments(n=1, mean=0.75, sd=None)


def test_mean_row_averages_sds_and_is_no_sd_over_cells() -> None:
    cells = [
        formulas.moments([0.1, 0.3]),
        formulas.moments([0.5, 0.5]),
        formulas.moments([0.9, 1.0]),
    ]

    found = formulas.mean_of(cells)

    assert found.mean == pytest.approx((0.2 + 0.5 + 0.95) / 3)
    assert found.sd == pytest.approx((math.sqrt(0.02) + 0 + math.sqrt(0.005)) / 3)


def test_mean_row_has_no_sd_where_a_cell_has_none() -> None:
    assert formulas.mean_of([formulas.moments([0.1, 0.3]), formulas.moments([0.5])]).sd is None


def test_positive_favours_the_arm_on_both_metrics() -> None:
    assert formulas.improvements("auc", baseline=[0.70], arm=[0.72]) == pytest.approx([0.02])
    assert formulas.improvements("logloss", baseline=[0.40], arm=[0.39]) == pytest.approx([0.01])


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        formulas.improvements("auc", baseline=[0.7], arm=[0.7, 0.7])


def test_tally_is_raw() -> None:
    # All of these print as 0.0000 at four decimals.
    found = formulas.tally([1e-9, -1e-9, 0.0, 2e-6])

    assert (found.wins, found.ties, found.losses) == (2, 1, 1)


@given(DIFFERENCES)
def test_sign_test_is_the_share_of_all_signs(differences: list[float]) -> None:
    nonzero = [value for value in differences if value != 0]
    observed = abs(sum(value > 0 for value in nonzero) - len(nonzero) / 2)
    worlds = list(itertools.product([0, 1], repeat=len(nonzero)))
    extreme = sum(abs(sum(world) - len(nonzero) / 2) >= observed for world in worlds)

    assert formulas.sign_test(differences) == pytest.approx(extreme / len(worlds), abs=1e-15)


@given(DIFFERENCES)
def test_wilcoxon_is_the_share_of_all_signs(differences: list[float]) -> None:
    nonzero = np.array([value for value in differences if value != 0])
    ranks = scipy.stats.rankdata(np.abs(nonzero)) if len(nonzero) else np.array([])
    middle = ranks.sum() / 2
    observed = abs(ranks[nonzero > 0].sum() - middle)
    worlds = list(itertools.product([0, 1], repeat=len(nonzero)))
    extreme = sum(abs(np.dot(world, ranks) - middle) >= observed - 1e-9 for world in worlds)

    assert formulas.wilcoxon(differences) == pytest.approx(extreme / len(worlds), abs=1e-15)


@given(DISTINCT, st.data())
def test_wilcoxon_without_ties_is_scipys_exact(magnitudes: list[int], data: st.DataObject) -> None:
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=9, max_size=9))
    differences = [sign * value for sign, value in zip(signs, magnitudes, strict=False)]
    expected = scipy.stats.wilcoxon(differences, method="exact").pvalue

    assert formulas.wilcoxon(differences) == pytest.approx(expected, abs=1e-14)


def test_many_pairs_stay_exact() -> None:
    differences = [*range(1, 40), -40]
    expected = scipy.stats.wilcoxon(differences, method="exact").pvalue

    assert formulas.wilcoxon(differences) == pytest.approx(expected, rel=1e-9)


def test_smallest_p_is_attained_and_counts_no_ties() -> None:
    assert formulas.smallest_p([1, 2, 3, 4, 5]) == 0.0625
    assert formulas.sign_test([1, 2, 3, 4, 5]) == formulas.wilcoxon([1, 2, 3, 4, 5]) == 0.0625
    assert formulas.smallest_p([1, 2, 0, 4, 5]) == 0.125 == formulas.wilcoxon([1, 2, 0, 4, 5])
    assert formulas.smallest_p([0, 0]) == formulas.sign_test([0, 0]) == formulas.wilcoxon([]) == 1


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_hodges_lehmann_is_the_median_of_walsh_averages(differences: list[float]) -> None:
    walsh = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(differences, 2)]

    assert formulas.hodges_lehmann(differences) == pytest.approx(
        statistics.median(walsh), abs=1e-15
    )


def test_clean_sweep_somewhere_among_26_cells() -> None:
    assert formulas.chance_of_a_clean_sweep([5] * 26) == pytest.approx(0.562, abs=5e-4)


def test_five_pairs_against_all_32_signs() -> None:
    differences = [0.0030, 0.0002, 0.0041, -0.0024, 0.0051]
    ranks = scipy.stats.rankdata(np.abs(differences))
    observed = abs(ranks[np.array(differences) > 0].sum() - 7.5)
    worlds = [np.dot(signs, ranks) for signs in itertools.product([0, 1], repeat=5)]

    assert len(worlds) == 32
    share = sum(abs(world - 7.5) >= observed for world in worlds) / 32
    assert formulas.wilcoxon(differences) == share


def test_with_ties_and_zeros_ours_is_all_signs_and_not_scipys_approximation() -> None:
    differences = [0.0, 1.0, 1.0, 1.0, -1.0, 2.0]
    nonzero = np.array(differences[1:])
    ranks = scipy.stats.rankdata(abs(nonzero))
    signs = np.array(list(itertools.product((-1, 1), repeat=len(ranks))))
    sums = abs(signs @ ranks)

    exact = np.mean(sums >= abs(np.sign(nonzero) @ ranks))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy before 1.13 warns that five are few
        approximate = scipy.stats.wilcoxon(nonzero, method="approx").pvalue
    assert formulas.wilcoxon(differences) == pytest.approx(exact, abs=1e-15)
    assert abs(approximate - exact) > 0.1


def test_probability_of_improvement_counts_ties_half() -> None:
    both = {"baseline": [0.70, 0.72], "arm": [0.72, 0.74]}

    assert formulas.probability_of_improvement("auc", **both) == (3 + 0.5) / 4
    assert formulas.probability_of_improvement("logloss", **both) == 0.5 / 4
    assert formulas.probability_of_improvement("auc", baseline=[], arm=[0.7]) is None


@given(st.lists(st.floats(0, 1), min_size=3, max_size=6, unique=True), st.data())
def test_correlation_is_pearsons(baseline: list[float], data: st.DataObject) -> None:
    n = len(baseline)
    arm = data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n, unique=True))
    found = formulas.correlation(baseline, arm)
    if found is not None and np.ptp(baseline) > 1e-3 and np.ptp(arm) > 1e-3:
        assert found == pytest.approx(np.corrcoef(baseline, arm)[0, 1], abs=1e-9)


def test_correlation_says_nothing_of_two_pairs_or_of_a_constant() -> None:
    assert formulas.correlation([1.0, 2.0], [1.0, 2.0]) is None
    assert formulas.correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


@pytest.mark.parametrize(
    ("interval", "test", "estimate"),
    [
        (formulas.hodges_lehmann_interval, formulas.wilcoxon, formulas.hodges_lehmann),
        (formulas.sign_interval, formulas.sign_test, np.median),
    ],
)
@given(values=SIGNED)
def test_an_interval_is_the_shifts_that_its_exact_test_keeps(
    interval: Callable[[list[int]], Interval],
    test: Callable[[list[float]], float],
    estimate: Callable[[list[int]], float],
    values: list[int],
) -> None:
    """The interval is the test turned round: a shift inside is not rejected, one outside is."""
    found = interval(values)
    alpha = 1 - found.confidence

    assert found.low <= estimate(values) <= found.high
    if len(values) < 6:
        return
    assert alpha <= 0.05
    for shift in (found.low - 1e-7, found.high + 1e-7):
        assert test([value - shift for value in values]) <= alpha + 1e-12
    for shift in (found.low + 1e-7, found.high - 1e-7):
        if found.low < shift < found.high:
            assert test([value - shift for value in values]) > alpha + 1e-12


def test_the_sign_interval_of_thirteen_is_from_the_third_to_the_eleventh() -> None:
    found = formulas.sign_interval(range(1, 14))

    assert (found.low, found.high) == (3, 11)
    assert found.confidence == pytest.approx(1 - 2 * scipy.stats.binom.cdf(2, 13, 0.5), abs=1e-15)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=20))
def test_skewness_is_scipys(values: list[float]) -> None:
    found = formulas.skewness(values)

    if np.ptp(values) < 1e-3:
        return
    assert found == pytest.approx(scipy.stats.skew(values), abs=1e-6)
    assert formulas.is_skewed(values) == (abs(found or 0) > 1)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [0.1] * 13, [0.1, 0.1, 0.1 + 1e-17]])
def test_few_values_and_equal_ones_have_no_shape(values: list[float]) -> None:
    assert formulas.skewness(values) is None
    assert not formulas.is_skewed(values)


def test_tiny_values_have_the_shape_of_large_ones() -> None:
    assert formulas.skewness([0, 0, 0, 1e-139]) == pytest.approx(formulas.skewness([0, 0, 0, 1]))


# One architecture of thirteen gains 4, the others little: as on Criteo. Nine of them gain.
SKEWED = [4.0, 0.3, 0.02, 0.01, 0.008, 0.007, 0.006, 0.005, 0.004, -0.001, -0.002, -0.003, -0.0035]


def test_where_differences_are_skewed_the_tests_must_agree() -> None:
    assert formulas.wilcoxon(SKEWED) < 0.05 < formulas.sign_test(SKEWED)
    assert formulas.guarded_p(SKEWED) == formulas.sign_test(SKEWED)

    interval = formulas.hodges_lehmann_interval(SKEWED)
    margin = interval.low / 2
    assert formulas.equivalence(interval, margin=margin) == "better"
    assert formulas.guarded_equivalence(SKEWED, margin=margin) == "unclear"


@given(st.lists(st.integers(-1000, 1000), min_size=6, max_size=13))
def test_where_differences_are_symmetric_wilcoxon_stands(values: list[int]) -> None:
    symmetric = [*values, *(2 - value for value in values)]

    assert not formulas.is_skewed(symmetric)
    assert formulas.guarded_p(symmetric) == formulas.wilcoxon(symmetric)


@pytest.mark.parametrize("sigma", [1.0, 1.5])
def test_skewed_differences_deceive_wilcoxon_and_not_the_report(sigma: float) -> None:
    """`scripts/skewed_differences.py` has more distributions and samples."""
    generator = np.random.default_rng(2)
    samples = np.exp(sigma * generator.standard_normal((1500, 13))) - 1

    assert np.mean([formulas.wilcoxon(row) <= 0.05 for row in samples]) > 0.065
    assert np.mean([formulas.guarded_p(row) <= 0.05 for row in samples]) < 0.06
    assert np.mean([formulas.sign_test(row) <= 0.05 for row in samples]) < 0.04
    assert np.mean([formulas.is_skewed(row) for row in samples]) > 0.65


def test_thirteen_architectures_have_the_level_of_all_signs() -> None:
    """2^13 sign flips: the tail that the interval leaves out, counted one by one."""
    values = np.array([53, 47, 4, 11, -6, 50, -30, 9, 18, 76, 34, 12, 16]) * 1e-4
    found = formulas.hodges_lehmann_interval(values)
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
    found = formulas.hodges_lehmann_interval([1.0, 2.0, 3.0, 4.0, 5.0])

    assert found == Interval(low=1.0, high=5.0, confidence=1 - 2 / 32)


def test_an_interval_covers_what_it_claims() -> None:
    generator = np.random.default_rng(0)
    samples = generator.normal(size=(600, 13))
    covered = np.mean(
        [i.low <= 0 <= i.high for i in (formulas.hodges_lehmann_interval(row) for row in samples)]
    )

    assert 0.93 <= covered <= 0.985


def test_leaving_one_out_is_a_range() -> None:
    assert formulas.leave_one_out([1.0]) is None
    assert formulas.leave_one_out([0.0, 0.0, 9.0]) == (0.0, 4.5)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_the_step_down_definition(p_values: list[float]) -> None:
    adjusted = formulas.holm(p_values)
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])

    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for rank, index in enumerate(order):
            if (len(p_values) - rank) * p_values[index] > level:
                break
            rejected.add(index)
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected


def test_holm_by_hand() -> None:
    assert formulas.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


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
    assert (
        formulas.equivalence(Interval(low=low, high=high, confidence=0.95), margin=0.001) == verdict
    )


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize(
    ("value", "verdict"), [(9.0, "better"), (-9.0, "worse"), (0.0, "equivalent")]
)
def test_a_verdict_needs_95_percent(n: int, value: float, verdict: str) -> None:
    found = formulas.equivalence(formulas.hodges_lehmann_interval([value] * n), margin=0.001)

    assert found == (verdict if n >= 6 else "too few")


def test_pooled_pairs_would_deceive() -> None:
    """Why no p is over pooled pairs: with clusters alone it is below 0.05 far too often."""
    generator = np.random.default_rng(1)
    pooled = clustered = 0
    for _ in range(400):
        shifts = generator.normal(size=13)
        pairs = shifts[:, None] + generator.normal(size=(13, 5))
        pooled += scipy.stats.wilcoxon(pairs.ravel()).pvalue < 0.05
        clustered += formulas.wilcoxon(np.median(pairs, axis=1)) < 0.05

    assert pooled / 400 > 0.12
    assert clustered / 400 < 0.08


@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_the_t_interval_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)

    found = formulas.t_interval(values)
    assert found

    low, high = scipy.stats.t.interval(
        0.95, n - 1, loc=values.mean(), scale=scipy.stats.sem(values)
    )
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.n, found.mean) == (n, pytest.approx(values.mean()))


def test_the_t_interval_covers_what_it_says_at_five_seeds() -> None:
    draws = np.random.default_rng(0).normal(size=(2000, 5))

    intervals = [formulas.t_interval(row) for row in draws]
    covered = [found is not None and found.low <= 0 <= found.high for found in intervals]

    assert 0.935 < np.mean(covered) < 0.965


def test_one_value_has_no_t_interval() -> None:
    assert formulas.t_interval([0.1]) is None
    assert formulas.t_interval([]) is None
