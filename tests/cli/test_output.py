"""How every command prints: style, columns and amounts."""

import io
import json
import sys

import pytest

from prime_bench.cli.output import (
    console,
    has_style,
    print_document,
    print_json,
    print_line,
    print_text,
    table_text,
)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, True),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "NO_COLOR": "1"}, False),
    ],
)
def test_bold_is_for_a_terminal_whose_user_has_nothing_against_it(monkeypatch, environment, wanted):
    for name in ("NO_COLOR", "TERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console.is_terminal", True)

    assert has_style() is wanted
    assert (console().color_system is not None) is wanted

    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not has_style()


@pytest.mark.parametrize("err", [False, True])
def test_a_text_goes_to_one_stream_and_has_no_markup(capsys, err):
    print_line("[red]:x: 1\nline", err=err)
    print_text("two\nlines", err=err)
    console(stderr=err).print("[red]:x: 12")

    other, stream = sorted(capsys.readouterr(), key=len)
    assert other == ""
    assert stream == "[red]:x: 1\\nline\ntwo\nlines\n[red]:x: 12\n"


def test_err_is_stderr(capsys):
    print_line("line", err=True)
    console(stderr=True).print("rich")
    print_text("text")

    assert capsys.readouterr() == ("text\n", "line\nrich\n")


def test_json_is_one_object_with_its_schema_first_and_letters_as_they_are(capsys):
    print_json(3, {"name": "é", "list": [1]})

    out = capsys.readouterr().out
    assert out.startswith('{\n  "schema": 3,\n  "name": "é",\n')
    assert out.endswith("}\n")
    assert json.loads(out) == {"schema": 3, "name": "é", "list": [1]}


def test_a_document_is_as_it_is_in_a_file_and_visible_on_a_terminal(monkeypatch, capfdbinary):
    text = "é \x1b[31m \ud800\n"
    print_document(text)
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"\xc3\xa9 \x1b[31m \\ud800\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_document(text)
    assert capfdbinary.readouterr().out.decode() == "é \\x1b[31m \\ud800\n"


def test_a_document_goes_to_a_stream_that_takes_no_bytes(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    print_document("a \x1b\n")
    assert sys.stdout.getvalue() == "a \\x1b\n"


def test_words_stand_on_the_left_and_numbers_on_the_right():
    rows = [["a", "b", 1], ["long", "longer", 1000]]
    header = ["x", "y", "z"]

    assert table_text(rows, header=header, n_words=2).splitlines() == [
        "x     y          z",
        "a     b          1",
        "long  longer  1000",
    ]
    assert table_text(rows, header=header).splitlines()[1] == "a     b       1"
    assert table_text(rows, header=header, n_words=0).splitlines()[1] == "   a       b     1"
