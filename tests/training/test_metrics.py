"""AUC and LogLoss: against scikit-learn, against the definition, and where they have no value."""

import math

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import sklearn.metrics
import torch

from prime_bench.training.metrics import (
    UndefinedMetric,
    auc,
    halves_in_order,
    halves_in_order_on_device,
    logloss,
)


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
    dtype, smallest = draw(st.sampled_from([(np.float32, 2.0**-149), (np.float64, 5e-324)]))
    # Few distinct values, so that ties are common; both zeros are one value.
    values = st.one_of(
        st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, math.inf, smallest]),
        st.floats(0, 1, width=dtype(0).itemsize * 8),
    )
    if draw(st.booleans()):  # without a negative number float32 takes a way of its own
        values = st.one_of(
            values,
            st.sampled_from([-math.inf, -smallest, -1.0]),
            st.floats(allow_nan=False, width=dtype(0).itemsize * 8),
        )
    return labels, draw(arrays.arrays(dtype, n, elements=values))


@hypothesis.given(scored_rows())
def test_auc_is_the_share_of_pairs_in_order(rows):
    labels, scores = rows
    expected = pair_by_pair(labels, scores)
    assert auc(labels, scores) == pytest.approx(expected, abs=1e-15)
    assert auc(labels, torch.from_numpy(scores)) == auc(labels, scores)
    positive = labels == 1
    assert halves_in_order_on_device(
        torch.from_numpy(positive), torch.from_numpy(scores)
    ) == halves_in_order(positive, scores)


@hypothesis.given(scored_rows())
def test_every_order_of_the_rows_has_the_same_auc(rows):
    labels, scores = rows
    order = np.random.default_rng(0).permutation(len(labels))
    assert auc(labels[order], scores[order]) == auc(labels, scores)
    assert auc(1 - labels, scores) == pytest.approx(1 - auc(labels, scores), abs=1e-15)


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


def test_what_was_scored_is_left_as_it_was():
    labels = np.array([0, 1, 0, 1], dtype=np.uint8)
    scores = np.array([0.5, 0.25, 0.125, 1.0], dtype=np.float32)
    kept = scores.copy()
    auc(labels, scores)
    logloss(labels, scores)
    assert np.array_equal(scores, kept)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_finds_the_same():
    random = np.random.default_rng(1)
    labels = (random.random(50_000) < 0.2).astype(np.uint8)
    scores = (random.integers(0, 5000, 50_000) / 5000).astype(np.float32)
    on_device = torch.from_numpy(scores).cuda()
    assert auc(labels, on_device) == auc(labels, scores)
    assert logloss(labels, on_device) == pytest.approx(logloss(labels, scores), rel=1e-12)
    with pytest.raises(UndefinedMetric, match="1 of 50000 scores are not a number"):
        auc(labels, torch.where(torch.arange(50_000).cuda() == 7, torch.nan, on_device))


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
