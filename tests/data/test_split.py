"""The split of a log: by hash and by time."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.errors import DataError
from prime_bench.data.split import RowHash, mix, split_by_hash, split_by_time

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
    with pytest.raises(DataError, match=rf"3 distinct hours, the file has {n_hours}") as error:
        split_by_time(dict.fromkeys(range(n_hours), 5), (0.8, 0.1, 0.1))
    assert "--split hash" in error.value.hint
