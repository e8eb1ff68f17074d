"""The best possible metrics: against all pairs, and against labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.data.manifest import SPLIT_NAMES
from prime_bench.data.synthetic.rows import (
    BLOCK_ROWS,
    HISTOGRAM_BINS,
    BestCounter,
    SyntheticBlock,
    SyntheticLog,
    chunks,
)
from prime_bench.settings.data import SyntheticSettings

SETTINGS = SyntheticSettings(shape="avazu", rows=8 * BLOCK_ROWS, seed=7)


@pytest.fixture(scope="module")
def blocks() -> list[SyntheticBlock]:
    return list(SyntheticLog(SETTINGS).blocks())


def expected_auc(p: np.ndarray) -> float:
    """E[ordered pairs] / E[pairs] by summing over all pairs of different rows."""
    weight = np.outer(p, 1 - p)
    np.fill_diagonal(weight, 0)
    order = (p[:, None] > p[None, :]) + 0.5 * (p[:, None] == p[None, :])
    return float((weight * order).sum() / weight.sum())


def counted(p: np.ndarray, *, parts: int = 1) -> dict:
    counter = BestCounter()
    for part in np.array_split(p, parts):
        counter.add(part, np.zeros(len(part), np.uint8))
    return counter.result()


PROBABILITIES = st.lists(
    st.floats(0.001, 0.999) | st.sampled_from([0.25, 0.5]), min_size=2, max_size=60
).map(np.array)


@given(PROBABILITIES, st.integers(1, 5))
def test_best_auc_is_the_expectation_over_labels(p, parts):
    clicked, other = p.sum(), (1 - p).sum()
    bound = len(p) ** 2 / (4 * HISTOGRAM_BINS * (clicked * other - (p * (1 - p)).sum()))
    best = counted(p, parts=parts)["train"]
    assert abs(best.auc - expected_auc(p)) <= bound + 1e-12
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
    assert abs(best.logloss - entropy) < 1e-12


def test_best_auc_where_all_rows_share_a_bin():
    p = (0.17 * HISTOGRAM_BINS // 1 + np.linspace(0.01, 0.99, 500)) / HISTOGRAM_BINS
    assert abs(counted(p)["train"].auc - expected_auc(p)) < 3e-5


def test_best_auc_of_a_log_is_exact_to_eight_digits(blocks):
    p = blocks[0].probabilities[:3000]
    assert abs(counted(p)["train"].auc - expected_auc(p)) < 1e-8


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    ordered = labels[np.argsort(scores, kind="stable")].astype(np.float64)
    below = np.cumsum(1 - ordered)
    return float((ordered * below).sum() / (ordered.sum() * (1 - ordered).sum()))


def test_best_is_what_the_truth_reaches_on_the_labels(blocks):
    counter = BestCounter()
    for chunk in chunks(SETTINGS, best=counter):
        assert len(chunk.labels) == BLOCK_ROWS
    best = counter.result()
    assert list(best) == list(SPLIT_NAMES)
    split = np.concatenate([block.split for block in blocks])
    for index, name in enumerate(SPLIT_NAMES):
        p = np.concatenate([block.probabilities for block in blocks])[split == index]
        y = np.concatenate([block.labels for block in blocks])[split == index]
        # A standard error of the AUC is below sqrt(1 / clicks) / 2.
        assert abs(auc(y, p) - best[name].auc) < 4 * 0.5 / np.sqrt(y.sum())
        losses = -np.where(y, np.log(p), np.log1p(-p))
        assert abs(losses.mean() - best[name].logloss) < 4 * losses.std() / np.sqrt(len(y))


@given(st.floats(-1, 1), st.floats(0.3, 3), st.integers(0, 2**32))
def test_no_other_prediction_has_a_lower_expected_logloss(shift, scale, seed):
    p = 1 / (1 + np.exp(-np.linspace(-4, 2, 200)))
    noise = np.random.default_rng(seed).normal(0, 0.1, len(p))
    q = 1 / (1 + np.exp(-(scale * np.log(p / (1 - p)) + shift + noise)))
    expected = -(p * np.log(q) + (1 - p) * np.log(1 - q)).mean()
    assert counted(p)["train"].logloss < expected


def test_best_leaves_out_splits_without_pairs():
    assert counted(np.array([0.5])) == {}
    assert list(counted(np.array([0.5, 0.25]))) == ["train"]
