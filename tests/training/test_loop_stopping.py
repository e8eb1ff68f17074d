"""The stop rule over scripted validation AUCs."""

import math

import pytest

from prime_bench.settings.training import TrainSpec
from prime_bench.training.loop import StopRule

BETTER, MISS = True, False


def follow(spec, aucs):
    """(improved, learning rate of the next epoch, stop) after each AUC, up to and with the stop."""
    rule, seen = StopRule(spec), []
    for auc in aucs:
        seen.append((rule.improves(auc), pytest.approx(rule.learning_rate, rel=1e-12), rule.stop))
        if rule.stop:
            break
    return rule, seen


@pytest.mark.parametrize(
    ("aucs", "expected"),
    [
        # FuxiCTR: the first miss lowers the rate, the second lowers it again and stops.
        (
            [0.70, 0.71, 0.705, 0.709, 0.9],
            [(BETTER, 1e-3, False), (BETTER, 1e-3, False), (MISS, 1e-4, False), (MISS, 1e-5, True)],
        ),
        # An improvement ends the row of misses; the rate stays where it fell.
        (
            [0.70, 0.69, 0.72, 0.71, 0.73, 0.6, 0.6],
            [
                (BETTER, 1e-3, False),
                (MISS, 1e-4, False),
                (BETTER, 1e-4, False),
                (MISS, 1e-5, False),
                (BETTER, 1e-5, False),
                (MISS, 1e-6, False),
                (MISS, 1e-6, True),
            ],
        ),
        # A tie is a miss.
        ([0.70, 0.70, 0.70], [(BETTER, 1e-3, False), (MISS, 1e-4, False), (MISS, 1e-5, True)]),
        # NaN is a miss from the first epoch on.
        ([None, None], [(MISS, 1e-4, False), (MISS, 1e-5, True)]),
        (
            [None, 0.5, None, None],
            [(MISS, 1e-4, False), (BETTER, 1e-4, False), (MISS, 1e-5, False), (MISS, 1e-6, True)],
        ),
        # An AUC of 0 is a value like any other.
        ([0.0, 0.5], [(BETTER, 1e-3, False), (BETTER, 1e-3, False)]),
    ],
)
def test_scripted_runs(aucs, expected):
    _, seen = follow(TrainSpec(), aucs)
    assert seen == expected


def test_exactly_min_delta_is_an_improvement_and_less_is_not():
    spec = TrainSpec(min_delta=0.125)
    rule, seen = follow(spec, [0.5, 0.625, 0.749, 0.75])
    assert [step[0] for step in seen] == [BETTER, BETTER, MISS, BETTER]
    assert rule.best_auc == 0.75


def test_a_gain_below_min_delta_does_not_move_the_mark():
    rule, seen = follow(TrainSpec(patience=5), [0.7, 0.7 + 6e-7, 0.7 + 9e-7, 0.7 + 1.1e-6])
    assert [step[0] for step in seen] == [BETTER, MISS, MISS, BETTER]
    assert rule.best_auc == 0.7 + 1.1e-6


def test_the_rate_has_a_floor_and_no_floor_lifts_it():
    _, seen = follow(TrainSpec(patience=9, learning_rate_floor=3e-5), [0.5] + [0.4] * 4)
    assert [step[1] for step in seen] == [1e-3, 1e-4, 3e-5, 3e-5, 3e-5]
    _, seen = follow(TrainSpec(patience=9, learning_rate_floor=0.5), [0.5, 0.4])
    assert [step[1] for step in seen] == [1e-3, 1e-3]


def test_patience_counts_misses_in_a_row():
    _, seen = follow(TrainSpec(patience=3), [0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.5])
    assert [step[2] for step in seen] == [False] * 6 + [True]
    _, seen = follow(TrainSpec(patience=1), [0.5, 0.4])
    assert seen[-1][2] is True


@pytest.mark.parametrize("before", [[], [0.5]])
def test_nan_is_refused_and_never_the_best(before):
    rule, _ = follow(TrainSpec(), before)
    with pytest.raises(ValueError, match="is NaN"):
        rule.improves(math.nan)
    assert rule.best_auc == (before[-1] if before else None)


@pytest.mark.parametrize("n", range(1, 8))
def test_a_restored_stopping_rule_continues_as_the_first(n):
    aucs = [0.70, 0.69, 0.72, None, 0.73, 0.6, 0.6]
    first, seen = follow(TrainSpec(), aucs[:n])
    second = StopRule(TrainSpec())
    second.load_state_dict(first.state_dict())
    assert second.stop == first.stop
    _, whole = follow(TrainSpec(), aucs)
    rest = [(second.improves(a), second.learning_rate, second.stop) for a in aucs[n:]]
    assert [*seen, *rest] == whole
