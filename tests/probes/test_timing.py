"""Timing of several arms: which step runs when, and which numbers come of it."""

import itertools
import time
from statistics import median

import numpy as np
import pytest

from prime_bench.findings import median_ratio
from prime_bench.probes.timing import WallClock, latencies_ms


class FakeClock:
    """A clock that steps move themselves: each takes as long as its arm says."""

    name = "wall clock"

    def __init__(self):
        self.now_ms = 0.0

    def time_ms(self, work):
        start = self.now_ms
        work()
        return self.now_ms - start


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def journal():
    """(arm, step) in the order in which they ran."""
    return []


@pytest.fixture
def make_arm(clock, journal):
    def make(name, cost_ms):
        def step(number):
            journal.append((name, number))
            clock.now_ms += cost_ms(number)

        return step

    return make


def test_the_clock_of_a_cpu_gives_milliseconds_between_start_and_end(monkeypatch):
    now_s = iter([10.0, 10.25])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now_s))
    assert WallClock().time_ms(lambda: None) == 250


def test_every_arm_does_all_steps_in_order_and_warms_up_before_any_is_timed(
    make_arm, clock, journal
):
    arms = [make_arm(name, lambda _: 1.0) for name in "abc"]

    latencies_ms(arms, steps=25, warm_up_steps=4, clock=clock)
    for name in "abc":
        assert [number for arm, number in journal if arm == name] == list(range(29))
    assert journal[:12] == [(name, number) for name in "abc" for number in range(4)]


def test_arms_take_turns_in_ten_rounds_and_each_begins_some(make_arm, clock, journal):
    arms = [make_arm(name, lambda _: 1.0) for name in "ab"]

    latencies_ms(arms, steps=20, warm_up_steps=1, clock=clock)
    turns = [name for name, number in journal[2:] if number % 2 == 1]
    assert turns == list("abba" * 5)

    journal.clear()
    latencies_ms(arms, steps=20, warm_up_steps=1, clock=clock, turn=1)
    assert [name for name, number in journal[2:] if number % 2 == 1] == list("baab" * 5)


def test_a_latency_is_the_median_of_the_rounds_means(make_arm, clock):
    random = np.random.default_rng(1)
    costs = random.exponential(size=(2, 57))
    arms = [make_arm(place, row.__getitem__) for place, row in enumerate(costs)]

    found = latencies_ms(arms, steps=50, warm_up_steps=7, clock=clock)
    wanted = [np.median(row[7:].reshape(10, 5).mean(axis=1)) for row in costs]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_steps_that_no_ten_rounds_divide_are_all_timed(make_arm, clock, journal):
    arms = [make_arm("a", float)]

    # 3 steps: a round each. 13: rounds of one step and of two.
    assert latencies_ms(arms, steps=3, warm_up_steps=1, clock=clock) == [2.0]
    journal.clear()
    found = latencies_ms(arms, steps=13, warm_up_steps=1, clock=clock)
    bounds = [1 + number * 13 // 10 for number in range(11)]
    means = [np.mean(range(a, b)) for a, b in itertools.pairwise(bounds)]
    assert found == [median(means)]
    assert len(journal) == 14


def test_what_slows_the_machine_for_a_while_leaves_the_ratio(make_arm, clock):
    """Costs that double after a moment: arms in turn share it, arms one after the other do not."""

    def slow(factor):
        return lambda _: factor * (2.0 if clock.now_ms > 40 else 1.0)

    arms = [make_arm("dense", slow(1.0)), make_arm("prime", slow(1.3))]
    dense, prime = latencies_ms(arms, steps=100, warm_up_steps=1, clock=clock)
    assert prime / dense == pytest.approx(1.3)


def test_a_ratio_is_paired_within_a_repetition():
    dense, prime = [1.0, 2.0, 4.0], [1.5, 2.2, 6.8]

    assert median_ratio(prime, dense) == pytest.approx(1.5)
    assert median(prime) / median(dense) == pytest.approx(1.1)
    with pytest.raises(ValueError, match="shorter"):
        median_ratio(prime, dense[:2])


def test_the_wall_clock_times_the_work():
    assert WallClock().time_ms(lambda: time.sleep(0.02)) >= 20
