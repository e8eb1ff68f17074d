"""The split of a log: by hash, by time, by stratified folds."""

import hashlib
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.errors import DataError, UsageError
from prime_bench.data.split import (
    RowHash,
    mix,
    split_by_hash,
    split_by_time,
    stratified_folds,
)

WORD = 2**64


def splitmix(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % WORD
    return word ^ (word >> 31)


def oracle(line, seed):
    """The hash in Python integers, from its definition."""
    start = int.from_bytes(hashlib.sha256(f"{seed}:split".encode()).digest()[:8], "big") >> 1
    total = 0
    for position, byte in enumerate(line + b"\n", start=1):
        total += byte * splitmix((start + position * 0x9E3779B97F4A7C15) % WORD)
    return splitmix(total % WORD)


def hashes_of(lines, seed):
    text = np.frombuffer(b"\n".join(lines) + b"\n", dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    return RowHash(seed)(text, starts, ends)


def test_mix_is_splitmix64():
    words = [0, 1, 2**63, WORD - 1, 0x9E3779B97F4A7C15]
    assert mix(np.array(words, dtype=np.uint64)).tolist() == [splitmix(word) for word in words]


@given(
    st.lists(st.binary(min_size=1, max_size=40).map(lambda b: b.replace(b"\n", b"x")), min_size=1),
    st.integers(0, 10),
)
def test_the_hash_is_its_definition(lines, seed):
    assert hashes_of(lines, seed).tolist() == [oracle(line, seed) for line in lines]


def test_a_known_hash():
    """Frozen: another value would move rows of every table that was made before."""
    assert hashes_of([b"a,0,1"], 2021).tolist() == [77210132644704371]


def test_pieces_do_not_matter(monkeypatch):
    lines = [b"%d,%d" % (i, i * i) * (i % 9) + b"x" for i in range(2_000)]
    whole = hashes_of(lines, 5)
    monkeypatch.setattr("prime_bench.data.split._PIECE_BYTES", 64)
    assert (hashes_of(lines, 5) == whole).all()


def test_a_line_longer_than_any_before():
    lines = [b"short", bytes(range(11, 256)) * 20, b"short"]
    assert hashes_of(lines, 1).tolist() == [oracle(line, 1) for line in lines]


def test_shares_are_the_fractions_and_seeds_differ():
    lines = [b"%d,0,14102100,1005" % i for i in range(40_000)]
    splits = [split_by_hash(hashes_of(lines, seed), (0.7, 0.1, 0.2)) for seed in (1, 2)]
    for split in splits:
        share = np.bincount(split, minlength=3) / len(lines)
        # Four standard errors of the largest share.
        np.testing.assert_allclose(share, [0.7, 0.1, 0.2], atol=4 * 0.0023)
    # Independent splits agree as often as chance says: 0.49 + 0.01 + 0.04.
    assert abs((splits[0] == splits[1]).mean() - 0.54) < 0.011


def test_split_by_hash_at_the_cuts():
    cuts = [0, 2**63 - 2048, 2**63, 2**63 + 2**62 - 2048, 2**63 + 2**62, WORD - 1]
    assert split_by_hash(np.array(cuts, dtype=np.uint64), (0.5, 0.25, 0.25)).tolist() == [
        *(0, 0),
        *(1, 1),
        *(2, 2),
    ]


@given(
    st.dictionaries(st.integers(0, 400), st.integers(1, 50), min_size=3, max_size=30),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
)
def test_time_goes_forward_and_no_split_is_empty(rows_at, parts):
    fractions = [part / sum(parts) for part in parts]
    split = split_by_time(rows_at, fractions)
    in_order = [split[time] for time in sorted(split)]
    assert set(in_order) == {0, 1, 2}
    assert all(a <= b for a, b in pairwise(in_order))
    # No other first cut comes nearer to its share (but those that would leave a split empty).
    times, total = sorted(rows_at), sum(rows_at.values())
    before = np.cumsum([0, *(rows_at[time] for time in times)])
    cut = in_order.index(1)
    distance = np.abs(before - fractions[0] * total)
    assert distance[cut] == min(distance[1 : len(times) - 1])


def test_whole_hours_nearest_to_the_fractions():
    rows_at = {14102100 + hour: 10 for hour in range(10)}
    split = split_by_time(rows_at, (0.7, 0.1, 0.2))
    assert [split[14102100 + hour] for hour in range(10)] == [0] * 7 + [1] + [2] * 2


@pytest.mark.parametrize("n_hours", [0, 1, 2])
def test_too_few_hours(n_hours):
    with pytest.raises(DataError, match=rf"3 distinct times, the file has {n_hours}") as error:
        split_by_time(dict.fromkeys(range(n_hours), 5), (0.8, 0.1, 0.1))
    assert "--split hash" in error.value.hint


def shuffled(n_items, seed):
    """What the legacy RandomState(seed) makes of 0..n-1: MT19937, seeded and drawn by its paper.

    Python's own generator is the same one behind another seeding, so its state is set by hand.
    """
    key = [seed]
    for i in range(1, 624):
        key.append((1812433253 * (key[-1] ^ (key[-1] >> 30)) + i) % 2**32)
    twister = random.Random()
    twister.setstate((3, (*key, 624), None))
    items = list(range(n_items))
    for last in range(n_items - 1, 0, -1):
        mask = 2 ** last.bit_length() - 1
        while (drawn := twister.getrandbits(32) & mask) > last:
            pass
        items[last], items[drawn] = items[drawn], items[last]
    return items


def slow_folds(labels, n_folds, seed):
    """scikit-learn 0.19.1's rule in words of lists: KFold on each class, then scattered back."""
    folds = [None] * len(labels)
    for label in sorted(set(labels)):
        rows = [row for row, own in enumerate(labels) if own == label]
        order, start = shuffled(len(rows), seed), 0
        for fold in range(n_folds):
            size = len(rows) // n_folds + (1 if fold < len(rows) % n_folds else 0)
            for position in order[start : start + size]:
                folds[rows[position]] = fold
            start += size
    return folds


@given(
    st.integers(2, 12),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 25), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_folds_are_their_slow_statement(n_folds, seed, extra, deal):
    labels = [[-3, 0, 7][i] for i, more in enumerate(extra) for _ in range(n_folds + more)]
    deal.shuffle(labels)
    found = stratified_folds(np.array(labels), n_folds=n_folds, seed=seed)
    assert (found.dtype, found.shape) == (np.int8, (len(labels),))
    assert found.tolist() == slow_folds(labels, n_folds, seed)


ORDER_5 = [0, 1, 3, 4, 2]
ORDER_10 = [0, 3, 7, 8, 9, 4, 5, 1, 2, 6]


def test_known_folds():
    """Frozen: RandomState(2018) shuffles 0..4 and 0..9 into these, and folds follow by hand."""
    labels = np.array([0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 1])
    assert (shuffled(5, 2018), shuffled(10, 2018)) == (ORDER_5, ORDER_10)
    found = stratified_folds(labels, n_folds=2, seed=2018)
    # The first fold has 3 of the 5 zeros and 5 of the 10 ones: the first of each order.
    zeros, ones = np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)
    assert sorted(np.flatnonzero(found == 0)) == sorted([*zeros[ORDER_5[:3]], *ones[ORDER_10[:5]]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, bool])
def test_folds_do_not_depend_on_the_type_of_labels(dtype):
    labels = np.arange(500) % 7 % 2
    wanted = stratified_folds(labels, n_folds=10, seed=2018)
    assert (stratified_folds(labels.astype(dtype), n_folds=10, seed=2018) == wanted).all()


def test_folds_as_the_installed_scikit_learn_draws_them_for_one_class():
    """Versions differ in how classes are combined; within one class all draw the same."""
    model_selection = pytest.importorskip("sklearn.model_selection")
    wanted = np.empty(103, dtype=int)
    splitter = model_selection.KFold(10, shuffle=True, random_state=2018)
    for fold, (_, rows) in enumerate(splitter.split(np.zeros(103))):
        wanted[rows] = fold
    found = stratified_folds(np.zeros(103, dtype=int), n_folds=10, seed=2018)
    assert (found == wanted).all()


@pytest.mark.parametrize(
    ("labels", "n_folds", "error", "expected"),
    [
        ([0, 1], 1, UsageError, "n_folds must be between 2 and 127, got 1"),
        ([0, 1], 0, UsageError, "got 0"),
        ([0, 1], 128, UsageError, "got 128"),
        ([0, 0, 0, 1, 1], 3, DataError, "label 1 has 2 rows, too few for 3 folds"),
    ],
)
def test_impossible_folds_are_errors(labels, n_folds, error, expected):
    with pytest.raises(error, match=expected):
        stratified_folds(np.array(labels), n_folds=n_folds, seed=0)


def test_no_rows_have_no_folds():
    assert stratified_folds(np.array([], dtype=int), n_folds=10, seed=1).tolist() == []
