"""AUC and LogLoss: against scikit-learn, against the definition, and where they have no value."""

import math

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import sklearn.metrics

from prime_bench.training.metrics import UndefinedMetric, auc, logloss


def pair_by_pair(labels, scores):
    """The definition: over all (positive, negative) pairs, 1 for right, a half for a tie."""
    positives = [float(s) for y, s in zip(labels, scores, strict=True) if y == 1]
    negatives = [float(s) for y, s in zip(labels, scores, strict=True) if y == 0]
    won = sum((p > n) + 0.5 * (p == n) for p in positives for n in negatives)
    return won / (len(positives) * len(negatives))


@st.composite
def scored_rows(draw):
    n = draw(st.integers(2, 40))
    labels = draw(arrays.arrays(np.uint8, n, elements=st.integers(0, 1)))
    hypothesis.assume(0 < labels.sum() < n)
    # Few distinct values, so that ties are common; both zeros are one value.
    values = st.one_of(
        st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, math.inf, -math.inf, 5e-324]),
        st.floats(allow_nan=False),
    )
    return labels, draw(arrays.arrays(np.float64, n, elements=values))


@hypothesis.given(scored_rows())
def test_auc_is_the_share_of_pairs_in_order(rows):
    labels, scores = rows
    assert auc(labels, scores) == pytest.approx(pair_by_pair(labels, scores), abs=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("distinct", [2, 50, 100_000])
def test_both_agree_with_scikit_learn(dtype, distinct):
    random = np.random.default_rng(distinct)
    labels = (random.random(20_000) < 0.17).astype(np.uint8)
    scores = (random.integers(0, distinct + 1, 20_000) / distinct).astype(dtype)
    scores[:4] = [0.0, 1.0, 1.0, 0.0]  # certain, and right or wrong
    labels[:4] = [0, 0, 1, 1]

    assert auc(labels, scores) == pytest.approx(
        sklearn.metrics.roc_auc_score(labels, scores.astype(np.float64)), abs=1e-12
    )
    assert logloss(labels, scores) == pytest.approx(
        sklearn.metrics.log_loss(labels, scores.astype(np.float64)), rel=1e-12
    )


def test_auc_keeps_neighbours_apart_that_a_smaller_type_would_tie():
    one = np.float64(1.0)
    below = np.nextafter(one, 0.0)
    assert auc([0, 1], [below, one]) == 1.0
    assert auc([1, 0], np.array([2**53, 2**53 + 1])) == 0.0  # one float64 for both


def test_a_certain_and_wrong_prediction_costs_36_nats():
    cost = -math.log(np.finfo(np.float64).eps)
    assert logloss([0, 1], [1.0, 1.0]) == pytest.approx(cost / 2, rel=1e-12)
    assert logloss([0, 1], [0.0, 0.0]) == pytest.approx(cost / 2, rel=1e-12)
    assert logloss([0, 1], [0.0, 1.0]) == pytest.approx(0.0, abs=1e-15)


def test_a_constant_score_has_auc_a_half():
    assert auc([0, 1, 0, 1], np.full(4, 0.17, dtype=np.float32)) == 0.5


@pytest.mark.parametrize("metric", [auc, logloss])
@pytest.mark.parametrize(
    ("labels", "scores", "reason"),
    [
        ([], [], "no rows"),
        ([0, 0, 0], [0.1, 0.2, 0.3], "all 3 labels are 0"),
        ([1, 1], [0.1, 0.2], "all 2 labels are 1"),
        ([0, 1, 1], [0.1, math.nan, math.nan], "2 of 3 scores are not a number"),
        ([0, 1], [0.1, 0.2, 0.3], r"shape \(2,\), scores \(3,\)"),
        ([[0, 1]], [[0.1, 0.2]], r"shape \(1, 2\)"),
        ([0, 2], [0.1, 0.2], "not all 0 or 1"),
        ([0, math.nan], [0.1, 0.2], "not all 0 or 1"),
        ([0, 1], ["0.1", "0.2"], "not real numbers"),
    ],
)
def test_rows_without_a_metric_are_refused(metric, labels, scores, reason):
    with pytest.raises(UndefinedMetric, match=reason):
        metric(labels, scores)


@pytest.mark.parametrize("wrong", [-1e-9, 1.0000001, math.inf])
def test_logloss_wants_probabilities(wrong):
    with pytest.raises(ValueError, match="not within"):
        logloss([0, 1], [0.5, wrong])
