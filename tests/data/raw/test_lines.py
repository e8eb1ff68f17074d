"""Blocks of lines: their borders must not matter, neither to rows nor to faults."""

import io
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prime_bench.base.errors import DataError
from prime_bench.data.raw.text import read_lines

HEADER = ["a", "b", "c"]
cell = st.text(st.characters(blacklist_characters=',"\n\r\0', codec="utf-8"), max_size=6)
rows_of_cells = st.lists(st.lists(cell, min_size=3, max_size=3), min_size=1, max_size=30)


def lines_of(content, block_bytes=1 << 24):
    return list(
        read_lines(
            io.BytesIO(content).read, where="log.csv", header=HEADER, block_bytes=block_bytes
        )
    )


def message_of(content, block_bytes=1 << 24):
    with pytest.raises(DataError) as error:
        lines_of(content, block_bytes)
    return error.value.message


@given(rows_of_cells, st.integers(1, 200), st.booleans())
@example([["", "", ""]], 1, False)
def test_every_field_is_found_whatever_the_blocks(rows, block_bytes, line_feed_at_the_end):
    content = "\n".join(["a,b,c", *(",".join(row) for row in rows)]).encode()
    found, next_line = [], 2
    for lines in lines_of(content + b"\n" * line_feed_at_the_end, block_bytes):
        assert lines.first_line == next_line
        assert lines.content.endswith(b"\n")
        n_rows = len(lines.ends)
        found += [[lines.field(row, column) for column in range(3)] for row in range(n_rows)]
        next_line += n_rows
    assert found == rows


FAULTS = [b"1,2", b"1,2,3,4", b"", b"1,\xff,3", b"1,\0,3", b'1,x"2",3', b"1,2,3\r", b"1,2\r,3"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("line", [2, 3, 50, 101])
def test_the_line_of_a_fault_does_not_depend_on_blocks(fault, line):
    lines = [b"a,b,c", *(b"%d,x,y" % i for i in range(100))]
    lines[line - 1] = fault
    content = b"\n".join(lines) + b"\n"
    message = message_of(content)
    assert f"line {line}" in message
    assert {message_of(content, block_bytes) for block_bytes in (1, 7, 100, 333)} == {message}


@pytest.mark.parametrize("pair", [(b"1", b"2,3"), (b"1,2", b"3"), (b"1,2,3,4", b"5,6")])
def test_two_wrong_lines_do_not_make_up_for_each_other(pair):
    lines = [b"a,b,c", b"1,2,3", *pair, b"1,2,3"]
    assert message_of(b"\n".join(lines)).startswith(
        f"log.csv: expected 3 comma-separated fields, line 3 has {pair[0].count(b',') + 1}"
    )


def test_of_two_faults_the_first_is_named():
    lines = [b"a,b,c", *[b"1,2,3"] * 100]
    for (i, first), (j, second) in itertools.combinations([(20, b"1,2"), (40, b'"'), (60, b"")], 2):
        faulty = list(lines)
        faulty[i], faulty[j] = first, second
        assert f"line {i + 1}" in message_of(b"\n".join(faulty))


def test_old_mac_line_ends_without_any_line_feed():
    content = b"a,b,c\r" + b"1,2,3\r" * 1000
    assert "carriage return alone" in message_of(content)
    assert "carriage return alone" in message_of(content, 64)


@pytest.mark.parametrize(("byte", "fault"), [(b"x", "no csv file"), (b"\r", "carriage return")])
def test_a_file_without_lines_ends_early(monkeypatch, byte, fault):
    monkeypatch.setattr("prime_bench.data.raw.lines.LONGEST_LINE", 1 << 12)
    taken = 0

    def read(n_bytes):
        nonlocal taken
        taken += n_bytes
        return byte * n_bytes

    with pytest.raises(DataError, match=f"no line end in .* bytes: .*{fault}"):
        list(read_lines(read, where="zeros", header=HEADER, block_bytes=1 << 10))
    assert taken < 1 << 14
