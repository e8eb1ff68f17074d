"""Student's interval against scipy, its coverage, and its words."""

import numpy as np
import pytest
from scipy import stats

from prime_bench.report.formats.cells import interval_text
from prime_bench.report.quantities.formulas import t_interval


@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_it_is_scipys(n):
    values = np.random.default_rng(n).normal(size=n)

    found = t_interval(values)

    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.n, found.mean) == (n, pytest.approx(values.mean()))


def test_it_covers_what_it_says_at_five_seeds():
    draws = np.random.default_rng(0).normal(size=(2000, 5))

    covered = [t_interval(row).low <= 0 <= t_interval(row).high for row in draws]

    assert 0.935 < np.mean(covered) < 0.965


def test_one_value_has_no_interval():
    assert t_interval([0.1]) is None
    assert t_interval([]) is None


def test_its_words():
    found = t_interval([0.001, 0.002, 0.003])

    assert interval_text(found, 4) == "n=3, 95 % interval -0.0005 to +0.0045"
