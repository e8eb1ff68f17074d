import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.identity import canonical_json, digest

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def _turned(value):
    """The same value with the keys of every table in the opposite order."""
    if isinstance(value, dict):
        return {key: _turned(inner) for key, inner in reversed(value.items())}
    return [_turned(inner) for inner in value] if isinstance(value, list) else value


@given(VALUES)
def test_the_order_of_keys_does_not_count_and_nothing_is_lost(value):
    assert canonical_json(value) == canonical_json(_turned(value))
    assert json.loads(canonical_json(value)) == value


# Two values that are drawn are hardly ever alike enough to be taken for each other.
@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((1, "1"), (1, True), (0, False), (0, None), (None, "null"), ("", None), (1.5, "1.5")),
        *(([], {}), ([], None), ({"a": None}, {}), ({"a": 1}, [["a", 1]]), ({"a": 1}, {"A": 1})),
        *((["a", "b"], ["b", "a"]), (["a,b"], ["a", "b"]), ([[1], 2], [1, [2]]), ([1], 1)),
        *(("a ", "a"), ("a", "\u00e4"), ("\u00e4", "a\u0308"), ('"', '\\"'), (0.3, 0.1 + 0.2)),
    ],
)
def test_other_values_have_other_texts(one, other):
    assert canonical_json(one) != canonical_json(other)
    assert digest({"in": one}) != digest({"in": other})


def test_the_text_is_pinned():
    value = {"b": [1, 2.5, 1e-5, True, None], "a": "ä "}

    assert canonical_json(value) == '{"a":"\\u00e4 ","b":[1,2.5,1e-05,true,null]}'
    # `printf '%s' TEXT | sha256sum`, so that no change of the library goes unseen.
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"deep": [number]})
