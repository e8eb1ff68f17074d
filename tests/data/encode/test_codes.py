"""Numeric rules against values worked out from their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.data.encode.codes import Ranges, as_float32, log_buckets, signed_log

NAN = float("nan")
# x, its bucket: floor(ln(x)^2) above 2, else int(x). 3 and 4 share bucket 1, as FuxiCTR's do.
BUCKETS = [
    (-1e12, -1e12),
    (-403.0, -403),
    (-3.0, -3),
    (-1.5, -1),
    (-0.5, 0),
    (0.0, 0),
    (0.99, 0),
    (1.0, 1),
    (1.5, 1),
    (2.0, 2),
    (2.5, 0),
    (3.0, 1),
    (4.0, 1),
    (5.0, 2),
    (7.0, 3),
    (8.0, 4),
    (20.0, 8),
    (402.0, 35),
    (403.0, 35),
    (404.0, 36),
    (1e12, 763),
]


@pytest.mark.parametrize(("value", "bucket"), BUCKETS)
def test_log_bucket(value, bucket):
    assert log_buckets(np.array([value])).tolist() == [bucket]


def test_a_missing_value_has_no_bucket():
    assert np.isnan(log_buckets(np.array([NAN, 1.0]))).tolist() == [True, False]


@pytest.mark.parametrize("k", range(1, 13))
def test_buckets_change_at_powers_of_e(k):
    """e^k lies between two doubles: the one below is in bucket k^2 - 1, the one above in k^2."""
    below, above = math.exp(k) * (1 - 1e-9), math.exp(k) * (1 + 1e-9)
    assert log_buckets(np.array([below, above])).tolist() == [k * k - 1, k * k]


@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=20))
def test_log_bucket_equals_its_definition(values):
    expected = [math.floor(math.log(x) ** 2) if x > 2 else int(x) for x in values]
    found = log_buckets(np.array(values))
    # One unit in the last place of a logarithm may move a value that lies on the edge.
    near = [x > 2 and abs(math.log(x) ** 2 - round(math.log(x) ** 2)) < 1e-9 for x in values]
    assert all(a == b or edge for a, b, edge in zip(found, expected, near, strict=True))


@pytest.mark.parametrize("value", [-1e12, -3.0, -0.0, 0.0, 1.0, 2.0, 403.0, 1e12])
def test_raw_and_log1p(value):
    assert as_float32(np.array([value]))[0] == np.float32(value)
    expected = math.copysign(math.log(1 + abs(value)), value)
    np.testing.assert_allclose(signed_log(np.array([value]))[0], np.float32(expected), rtol=2e-7)


def test_a_missing_value_is_0_under_raw_and_log1p():
    for rule in (as_float32, signed_log):
        found = rule(np.array([[NAN], [5.0]]))
        assert found.dtype == np.float32
        assert found[0] == 0
        assert found[1] != 0


def test_minmax_knows_training_rows_only_and_clips_the_rest():
    ranges = Ranges.empty(3)
    ranges.update(np.array([[0.0, 7.0, NAN], [10.0, 7.0, NAN]]))
    ranges.update(np.array([[NAN, 7.0, NAN], [-10.0, 7.0, NAN]]))
    found = ranges.scale(np.array([[0.0, 7.0, 5.0], [100.0, 8.0, NAN], [-11.0, 6.0, 0.0]]))
    # Columns: a range of [-10, 10]; constant; never seen.
    assert found.tolist() == [[0.5, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert ranges.scale(np.array([[NAN, NAN, NAN]])).tolist() == [[0.0, 0.0, 0.0]]


def test_minmax_over_all_of_float64():
    ranges = Ranges.empty(1)
    ranges.update(np.array([[-1.7e308], [1.7e308]]))
    np.testing.assert_allclose(
        ranges.scale(np.array([[-1.7e308], [0.0], [1.7e308]])).T, [[0, 0.5, 1]]
    )


@pytest.mark.parametrize("high", [5e-324, 2.2e-311])
def test_minmax_over_next_to_nothing(high):
    ranges = Ranges.empty(1)
    ranges.update(np.array([[0.0], [high]]))
    found = ranges.scale(np.array([[-1.0], [0.0], [1.0]])).T
    assert found[0, :2].tolist() == [0.0, 0.0]
    assert found[0, 2] == (1.0 if high > 5e-324 else 0.0)  # half of the smallest number is 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.floats(-2e6, 2e6))
def test_minmax_equals_its_definition(train, other):
    ranges = Ranges.empty(1)
    for value in train:
        ranges.update(np.array([[value]]))
    low, high = min(train), max(train)
    inside = min(max(other, low), high)
    expected = 0.0 if low == high else (inside - low) / (high - low)
    # Where the range is tiny beside the values, the quotient itself is known to few digits.
    assert ranges.scale(np.array([[other]]))[0, 0] == pytest.approx(expected, abs=1e-6) or (
        high - low < 1e-9
    )
