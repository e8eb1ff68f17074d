"""The line of each key of a TOML file."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prime_bench.base.toml import line_of

NESTED = """\
schema = 1
family = [
  ["a"],
  ["b", "c"]
]
after = 1
[ 'table' . "x" ]   # a comment
"key" = 1
sub.deep = 2
[[list]]
first = 1
[table.x.y]
key = 3
columns = [
  # a comment with ] and "
  { name = "a, [", role = "x" },

  { name = 'b',
    more = { "deep.er" = [1,
      2] } }, { name = "c" },
]
text = '''
key = 4
]'''
last = 2
[[list]]
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("schema",), 1),
        (("family", "1", "0"), 4),
        (("after",), 6),
        (("table", "x"), 7),
        (("table", "x", "key"), 8),
        (("table", "x", "nowhere"), 7),
        (("table", "x", "sub", "deep"), 9),
        (("list",), 10),
        (("list", "0", "first"), 11),
        (("list", "1"), 26),
        (("list", "1", "first"), 26),
        (("table", "x", "y", "key"), 13),
        (("table", "x", "y", "columns"), 14),
        (("table", "x", "y", "columns", "0"), 16),
        (("table", "x", "y", "columns", "0", "role"), 16),
        (("table", "x", "y", "columns", "1", "name"), 18),
        (("table", "x", "y", "columns", "1", "more", "deep.er", "1"), 20),
        (("table", "x", "y", "columns", "2", "name"), 20),
        (("table", "x", "y", "columns", "3", "name"), 14),
        (("table", "x", "y", "last"), 25),
        (("nowhere",), None),
        ((), None),
    ],
)
def test_the_line_of_a_key(path, line):
    assert line_of(NESTED, path) == line


@example("a =", ["a"])
@example("a = [", ["a", "0"])
@example("a = [1,", ["a", "1"])
@example("a = {b =", ["a", "b"])
@example("a = 1]}", ["a"])
@given(st.text(), st.lists(st.text(), max_size=3))
def test_looking_for_a_line_never_fails(text, path):
    line = line_of(text, path)

    assert line is None or 1 <= line <= len(text.splitlines())
