"""Short texts as numbers: one for one, in order, and read as whole numbers or not at all."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prime_bench.data.raw.packed import KeyCodes, in_text_order, integers, pack, pack_text, unpack

text = st.text(st.characters(blacklist_characters="\n\0", codec="utf-8"), max_size=10)
short_text = text.filter(lambda value: len(value.encode()) <= 8)


def packed(values, *, pad=""):
    """Packed texts and their lengths, out of one buffer with `pad` around each."""
    content, starts, lengths = pad.encode(), [], []
    for value in values:
        starts.append(len(content))
        lengths.append(len(value.encode()))
        content += (value + pad).encode()
    starts, lengths = np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)
    return pack(content, starts, lengths), lengths


@given(st.lists(short_text, min_size=1), st.sampled_from(["", ",", "é\n"]))
def test_packed_texts_come_back(values, pad):
    keys, _ = packed(values, pad=pad)
    assert keys.tolist() == [pack_text(value) for value in values]
    assert unpack(keys[keys != 0]) == "".join(f"{v}\n" for v in values if v).encode()


@given(text)
def test_of_a_longer_text_the_first_bytes_are_left(value):
    keys, _ = packed([value], pad="x")
    assert unpack(keys[keys != 0]) == value.encode()[:8] + b"\n" * bool(value)


@given(st.lists(short_text, unique=True))
def test_order_is_that_of_the_bytes(values):
    keys, _ = packed(values)
    order = np.argsort(in_text_order(keys)).tolist()
    assert [values[i] for i in order] == sorted(values, key=str.encode)


number = st.one_of(st.integers(-9_999_999, 99_999_999).map(str), st.from_regex(r"\A-?[0-9]{1,7}\Z"))
# Around the digits in ASCII, other scripts' digits, and what parsers of numbers let pass.
NO_NUMBERS = ["-", "--1", "1-", "+1", " 1", "1 ", "1.0", "1e5", "/", ":", "1:", "0x1", "1_0", "٣"]


@given(st.lists(st.one_of(st.just(""), number), min_size=1))
@example(["", "-0", "0", "00000000", "99999999", "-9999999", "-0000001"])
def test_whole_numbers_are_read(values):
    found = integers(*packed(values, pad=","))
    expected = np.array([float(value) if value else np.nan for value in values])
    np.testing.assert_array_equal(found, expected)
    assert np.signbit(found[expected == 0]).tolist() == [
        v.startswith("-") for v in values if v and int(v) == 0
    ]


@pytest.mark.parametrize("fault", [*NO_NUMBERS, "123456789", "-12345678"])
def test_a_column_with_anything_else_is_not(fault):
    for values in ([fault], ["1", fault, ""], [fault, "-2"]):
        assert integers(*packed(values)) is None


@given(st.lists(short_text, min_size=1))
def test_what_is_read_is_a_number(values):
    found = integers(*packed(values))
    assert (found is not None) == all(re.fullmatch("(-?[0-9]+)?", v, re.ASCII) for v in values)


def crowded(n):
    """Keys whose search begins at the last slot of any table, and 0."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    homes = [2**64 - 1 - i for i in range(n)]
    return [home * inverse % 2**64 for home in homes] + [0]


some_keys = st.one_of(st.integers(0, 5), st.sampled_from(crowded(50)), st.integers(0, 2**64 - 1))


@given(st.lists(st.lists(some_keys, max_size=60), min_size=1, max_size=8))
def test_codes_are_a_bijection(blocks):
    table, code_of = KeyCodes(), {0: 0}
    for keys in blocks:
        found = table.codes(np.array(keys, dtype=np.uint64)).tolist()
        for key, code in zip(keys, found, strict=True):
            assert code_of.setdefault(key, code) == code
    assert sorted(code_of.values()) == list(range(table.n_codes))
    assert table.keys.tolist() == sorted(code_of, key=code_of.get)


@pytest.mark.parametrize("keys", [crowded(3_000), range(300_000)], ids=["crowded", "many"])
def test_codes_stay_while_the_table_grows(keys):
    keys = np.random.default_rng(0).permutation(np.array(list(keys), dtype=np.uint64))
    table = KeyCodes()
    first = [table.codes(part) for part in np.array_split(keys, 30)]
    table.codes(np.arange(10**9, 10**9 + 5_000, dtype=np.uint64))
    codes = table.codes(keys)
    assert (codes == np.concatenate(first)).all()
    assert len(np.unique(codes)) == len(keys)
    table.finish()
    assert (table.keys[codes] == keys).all()
