"""AUC and LogLoss: against scikit-learn, against the definition, and where they have no value."""

import math
from fractions import Fraction

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import sklearn.metrics
import torch

from prime_bench.findings import (
    CalibrationBin,
    calibration_error,
    normalised_entropy,
    predicted_over_clicks,
    whole,
)
from prime_bench.training.metrics import (
    Ranking,
    UndefinedMetric,
    _packed_on_device,
    _sorted_keys,
    _sorted_on_device,
    auc,
    group_auc,
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


def group_by_group(labels, scores, groups):
    """The definition of GAUC (Zhu et al. 2018), pair by pair and in fractions."""
    total, rows, left_out = Fraction(0), 0, 0
    for group in sorted({g for g in groups if g}):
        own = [(y, s) for y, s, g in zip(labels, scores, groups, strict=True) if g == group]
        positives = [float(s) for y, s in own if y == 1]
        negatives = [float(s) for y, s in own if y == 0]
        if not positives or not negatives:
            left_out += 1
            continue
        won = sum(2 * (p > n) + (p == n) for p in positives for n in negatives)
        total += len(own) * Fraction(won, 2 * len(positives) * len(negatives))
        rows += len(own)
    return (float(total / rows) if rows else None), left_out


def row_by_row(labels, scores, n):
    """The rows, clicks and predictions of `n` bins of equally many rows, ties in the first's."""
    order = sorted(range(len(labels)), key=lambda i: float(scores[i]))
    bins, first = {}, 0
    for place, i in enumerate(order):
        if place and float(scores[i]) != float(scores[order[place - 1]]):
            first = place
        bins.setdefault(n * first // len(order), []).append(i)
    return [
        (len(own), sum(int(labels[i]) for i in own), math.fsum(float(scores[i]) for i in own))
        for _, own in sorted(bins.items())
    ]


@st.composite
def predicted_rows(draw):
    n = draw(st.integers(2, 40))
    labels = draw(arrays.arrays(np.uint8, n, elements=st.integers(0, 1)))
    hypothesis.assume(0 < labels.sum() < n)
    values = st.one_of(
        st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, 2.0**-149]), st.floats(0, 1, width=32)
    )
    scores = draw(arrays.arrays(np.float32, n, elements=values))
    largest = draw(st.sampled_from([1, 3, 2**31 - 1]))
    # Few groups of several rows, or many of a row; the largest is that of 31 bits.
    groups = draw(arrays.arrays(np.int32, n, elements=st.integers(0, min(largest, 40))))
    groups[groups == 40] = largest
    return labels, scores, groups


@hypothesis.given(predicted_rows())
def test_group_auc_is_the_mean_over_groups_weighted_by_rows(rows):
    labels, scores, groups = rows
    found = group_auc(labels, scores, groups)
    expected, left_out = group_by_group(labels, scores, groups)
    assert found.mean == (None if expected is None else pytest.approx(expected, abs=1e-15))
    assert (found.one_class_groups, found.rows_without_group) == (
        left_out,
        int((groups == 0).sum()),
    )
    assert found.rows + found.one_class_rows + found.rows_without_group == len(labels)
    assert found.groups + left_out == len({g for g in groups.tolist() if g})


@hypothesis.given(predicted_rows(), st.integers(1, 12))
def test_bins_have_equally_many_rows_and_keep_ties_together(rows, n):
    labels, scores, _ = rows
    found = [(item.rows, item.clicks, item.predicted) for item in Ranking(labels, scores).bins(n)]
    expected = row_by_row(labels, scores, n)
    assert [item[:2] for item in found] == [item[:2] for item in expected]
    assert [item[2] for item in found] == pytest.approx([item[2] for item in expected], abs=1e-12)


@hypothesis.given(predicted_rows())
def test_the_order_of_the_file_changes_no_bit(rows):
    labels, scores, groups = rows
    order = np.random.default_rng(0).permutation(len(labels))
    assert group_auc(labels[order], scores[order], groups[order]) == group_auc(
        labels, scores, groups
    )
    assert Ranking(labels[order], scores[order]).bins() == Ranking(labels, scores).bins()
    assert Ranking(labels, scores).auc == auc(labels, scores)


@hypothesis.given(predicted_rows())
def test_keys_on_a_device_have_the_order_of_those_on_the_host(rows):
    labels, scores, groups = rows
    positive = torch.from_numpy(labels == 1)
    keys = _sorted_on_device(_packed_on_device(positive, torch.from_numpy(scores)))
    assert keys.astype(np.uint32).tolist() == _sorted_keys(labels == 1, scores).tolist()
    assert int(groups.max()) << 32 | int(keys.max()) < 2**63


def test_one_group_of_all_rows_has_the_auc_of_all_rows():
    random = np.random.default_rng(1)
    scores = random.random(5000).astype(np.float32)
    labels = (random.random(5000) < scores).astype(np.uint8)
    found = group_auc(labels, scores, np.full(5000, 7, dtype=np.int32))
    assert found.mean == auc(labels, scores)
    assert (found.groups, found.rows, found.one_class_groups) == (1, 5000, 0)


def test_without_a_group_of_two_classes_there_is_no_group_auc():
    labels = np.array([1, 1, 0, 0], dtype=np.uint8)
    found = group_auc(labels, np.float32([0.1, 0.2, 0.3, 0.4]), np.array([1, 1, 2, 0]))
    assert (found.mean, found.groups, found.rows) == (None, 0, 0)
    assert (found.one_class_groups, found.one_class_rows, found.rows_without_group) == (2, 3, 1)


def test_constant_predictions_are_one_bin_and_all_ties():
    labels, scores = np.array([1, 0, 0, 0, 1], dtype=np.uint8), np.full(5, 0.25, dtype=np.float32)
    assert [item.plain() for item in Ranking(labels, scores).bins()] == [
        {"rows": 5, "clicks": 2, "predicted": 1.25}
    ]
    assert group_auc(labels, scores, np.array([1, 1, 2, 2, 2])).mean == 0.5


@pytest.mark.parametrize(
    ("labels", "scores", "fault"),
    [
        ([], [], "there are no rows"),
        ([1], [0.5], "one class only"),
        ([0, 0], [0.5, 0.5], "one class only"),
        ([0, 1], [0.5, math.nan], "not a number"),
        ([0, 1], [0.5, 1.5], "not within"),
    ],
)
def test_the_rankings_refuse_what_has_no_metric(labels, scores, fault):
    rows = np.array(labels, dtype=np.uint8), np.array(scores, dtype=np.float32)
    with pytest.raises(UndefinedMetric, match=fault):
        Ranking(*rows)
    with pytest.raises(UndefinedMetric, match=fault):
        group_auc(*rows, np.ones(len(labels), dtype=np.int32))


def test_groups_need_one_number_a_row():
    with pytest.raises(UndefinedMetric, match=r"groups have shape \(1,\), labels \(2,\)"):
        group_auc([0, 1], np.float32([0.1, 0.2]), [1])


def test_the_formulas_of_bins():
    bins = [
        CalibrationBin(rows=4, clicks=1, predicted=2.0),
        CalibrationBin(rows=6, clicks=3, predicted=2.5),
    ]
    assert predicted_over_clicks(bins) == 4.5 / 4
    # 0.4 |0.5 - 0.25| + 0.6 |2.5 / 6 - 0.5|
    assert calibration_error(bins) == pytest.approx(0.15, abs=1e-15)
    assert calibration_error([whole(bins)]) == pytest.approx(0.05, abs=1e-15)
    # A model that gives each row the click rate has normalised entropy 1.
    labels = np.array([1, 0, 0, 0], dtype=np.uint8)
    loss = logloss(labels, np.full(4, 0.25))
    assert normalised_entropy(loss, clicks=1, rows=4) == pytest.approx(1, abs=1e-15)
