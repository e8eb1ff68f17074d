"""The subgroup report: scores of each group against an oracle, and as a job."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from prime_bench.findings import GroupSize
from prime_bench.probes.subgroups import calibration_error, score_group
from prime_bench.store.runs import Runs


def _score(labels, probabilities, bins=5):
    size = GroupSize(name="g", rows=len(labels), positives=int(np.sum(labels)))
    return score_group(size, np.asarray(labels), np.asarray(probabilities, np.float32), bins=bins)


def test_scores_are_those_of_scikit_learn():
    random = np.random.default_rng(1)
    probabilities = random.random(500).astype(np.float32)
    labels = (random.random(500) < probabilities).astype(np.uint8)

    score = _score(labels, probabilities)

    assert score.click_rate == labels.mean()
    assert score.mean_prediction == pytest.approx(probabilities.mean(), rel=1e-6)
    assert score.auc == pytest.approx(roc_auc_score(labels, probabilities), abs=1e-12)
    assert score.logloss == pytest.approx(log_loss(labels, probabilities.astype(float)), rel=1e-9)


def test_one_class_has_a_calibration_but_no_auc():
    score = _score([0, 0, 0], [0.1, 0.2, 0.3])

    assert (score.auc, score.logloss, score.click_rate) == (None, None, 0)
    assert score.calibration_error == pytest.approx(0.2)


def test_nan_predictions_have_no_scores():
    score = _score([0, 1], [0.5, np.nan])

    assert score.click_rate == 0.5
    assert {score.auc, score.logloss, score.mean_prediction, score.calibration_error} == {None}


def test_the_calibration_error_is_taken_over_bins_of_equal_size():
    labels = np.array([1, 0, 0, 0, 1, 1])
    probabilities = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.9])

    # Bins {0.1, 0.2, 0.3} and {0.4, 0.5, 0.9}: |1 - 0.6| and |2 - 1.8|, over six rows.
    assert calibration_error(labels, probabilities, bins=2) == pytest.approx((0.4 + 0.2) / 6)
    one = calibration_error(labels, probabilities, bins=1)
    assert one == pytest.approx(abs(labels.mean() - probabilities.mean()))
    each = calibration_error(labels, probabilities, bins=50)
    assert each == pytest.approx(np.abs(labels - probabilities).mean())
    shuffled = np.random.default_rng(0).permutation(6)
    again = calibration_error(labels[shuffled], probabilities[shuffled], bins=2)
    assert again == pytest.approx((0.4 + 0.2) / 6)


def test_a_job_reports_all_rows_as_the_run_did_and_each_group(make_job, measure, request_for):
    job = make_job("DNN", "prime", training={"max_epochs": 1, "batch_size": 70})

    found = measure(job, "subgroups", fields=["hour", "device_type"], min_rows=100).findings

    trained = Runs(Path(request_for(job).runs)).find(job.id)
    assert found.overall.auc == trained.result.test.auc
    assert found.overall.logloss == trained.result.test.logloss
    assert found.overall.size.rows == 900
    hour, missing = found.fields
    assert sum(group.size.rows for group in hour.groups) == 900
    assert sum(group.size.positives for group in hour.groups) == found.overall.size.positives
    shares = [group.size.rows / 900 for group in hour.groups]
    mean = np.average([group.mean_prediction for group in hour.groups], weights=shares)
    assert mean == pytest.approx(found.overall.mean_prediction)
    assert missing.skipped == "no field of the table means device_type"
