import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.streams import derive


@pytest.mark.parametrize(
    ("seed", "name", "expected"),
    [  # the first 16 hex digits of `printf '%s' SEED:NAME | sha256sum`, halved
        (2021, "backbone-init", 3974011746938057750),
        (2021, "row-order/1", 4809535452431453885),
        (992817, "dropout", 12583439033837669),
    ],
)
def test_streams_are_pinned(seed, name, expected):
    assert derive(seed, name) == expected


@given(st.integers(), st.text())
def test_a_stream_is_a_seed_that_every_generator_takes(seed, name):
    value = derive(seed, name)

    assert 0 <= value < 2**63
    assert value == int(hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()[:16], 16) // 2


def test_each_use_of_a_seed_has_its_own_stream():
    names = ["backbone-init", "plugin-init", "dropout", "permute", "row-order/1", "row-order/11"]
    values = {derive(seed, name) for seed in (1, 11, 2021) for name in names}

    assert len(values) == 3 * len(names)
