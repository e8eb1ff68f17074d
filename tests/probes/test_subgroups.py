"""The subgroup report: scores of each group against an oracle, and as a job."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from prime_bench.findings import GroupSize
from prime_bench.probes import subgroups
from prime_bench.probes.arms import batch_of, load_trained
from prime_bench.probes.subgroups import calibration_error, score_group
from prime_bench.settings.probes import SubgroupsSettings
from prime_bench.store.runs import Runs

CPU = torch.device("cpu")


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
    clicks = _score([1, 1], [0.9, 0.7])
    assert (clicks.auc, clicks.logloss, clicks.click_rate) == (None, None, 1)


def test_nan_predictions_have_no_scores():
    score = _score([0, 1], [0.5, np.nan])

    assert score.click_rate == 0.5
    assert {score.auc, score.logloss, score.mean_prediction, score.calibration_error} == {None}


def test_rows_of_one_prediction_stay_in_the_order_of_the_file():
    labels = np.array([1, 1, 0, 0])

    # Bins of the first two and the last two rows, whose predictions are all alike.
    assert calibration_error(labels, np.full(4, 0.5), bins=2) == 0.5
    # Otherwise equal predictions in another order would give bins with a click each: no error.
    assert calibration_error(labels[[0, 2, 1, 3]], np.full(4, 0.5), bins=2) == 0


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


def test_a_job_reports_all_rows_as_the_run_did_and_each_large_group(
    make_job, measure, request_for, prepared
):
    """On the split, with the minimum and the bins that it asks for: none is the default."""
    job = make_job("DNN", "prime", training={"max_epochs": 1, "batch_size": 70})
    split = prepared.split("valid")
    rows = np.bincount(split.ids[:, 0], minlength=5)
    smallest, second = np.sort(rows[1:5])[:2]
    assert smallest < second
    keys = {"split": "valid", "fields": ["hour", "device_type"], "calibration_bins": 3}

    found = measure(job, "subgroups", **keys, min_rows=int(second)).findings

    trained = Runs(Path(request_for(job).runs)).find(job.id)
    assert found.split == "valid"
    assert found.overall.auc == trained.result.valid.auc
    assert found.overall.logloss == trained.result.valid.logloss
    assert found.overall.size.rows == 1200
    hour, missing = found.fields
    assert [size.rows for size in hour.too_small] == [smallest]
    assert (hour.skipped, missing.skipped) == (None, "no field of the table means device_type")
    arm = load_trained(request_for(job), job.resolve(), prepared.schema, device=CPU)
    batch = batch_of(split, np.arange(1200), device=CPU)
    with torch.no_grad():
        probabilities = arm(batch.ids, batch.numerics).numpy().astype(float)
    groups = {f"c0={code}": split.ids[:, 0] == code for code in range(1, 5)}
    for score in (found.overall, *hour.groups):
        mine = groups.pop(score.size.name, np.full(1200, True))
        labels, own = split.labels[mine], probabilities[mine]
        assert (score.size.rows, score.size.positives) == (mine.sum(), labels.sum())
        assert score.click_rate == labels.mean()
        assert score.mean_prediction == pytest.approx(own.mean(), rel=1e-6)
        assert score.auc == pytest.approx(roc_auc_score(labels, own), abs=1e-4)
        assert score.logloss == pytest.approx(log_loss(labels, own), rel=1e-6)
        error = calibration_error(labels, own, bins=3)
        assert score.calibration_error == pytest.approx(error, abs=1e-4)
    assert [mine.sum() for mine in groups.values()] == [smallest]

    probe = SubgroupsSettings(**keys, min_rows=1201).plain()
    none = job.model_copy(update={"kind": "subgroups", "probe": probe})
    again = subgroups.run(
        request_for(none), none.resolve(), prepared, device=CPU, on_progress=lambda _: None
    )
    assert again.overall == found.overall
    assert again.fields[0].skipped == "no group has enough rows"
