"""TOML files that a user writes: reading within limits, and the line that sets a key."""

import functools
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import Fault

_KINDS = {
    "recipe": (
        {"seeds", "arms"},
        "`prime-bench prepare --recipe {file}` prepares its data, `prime-bench run {file}` runs it",
    ),
    "study": ({"recipes"}, "`prime-bench study {file}` prepares, runs and reports it"),
    "card": (
        {"columns"},
        "`prime-bench prepare {file} --from LOG` prepares its table; a recipe names it by "
        '`card = "{name}"` in [dataset.NAME]; `prime-bench show recipe quick` prints one to copy',
    ),
}
"""Noun of a file -> the keys that no file of another noun has, and what to do with such a file."""
MOST_LINE_BYTES = 10_000
"""Bytes of a line: the parser's time for a key is quadratic in the number of its parts."""
MOST_VALUES = 10_000
"""Keys and list entries of a file."""
MOST_LEVELS = 20
"""Levels of tables and lists within each other."""


def read_toml(
    content: bytes, *, path: Path, noun: str, most_bytes: int
) -> tuple[str, dict[str, Any]]:
    """The text and the table of a file, which messages call `path` and `noun` ("recipe").

    Raises UsageError for a file that is not valid TOML in UTF-8, that is too large, or that is a
    file of another noun.
    """
    hint = "" if path.suffix == ".toml" else f"a {noun} is a file in TOML, whose name ends in .toml"
    if len(content) > most_bytes or len(max(content.split(b"\n"), key=len)) > MOST_LINE_BYTES:
        raise UsageError(
            f"{path}: a {noun} has at most {most_bytes:,} bytes, and a line {MOST_LINE_BYTES:,}",
            hint=hint,
        )
    try:
        text = content.decode("utf-8-sig")  # editors on Windows write a byte order mark
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot read the {noun}: {error}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        # Python has limits too: for the digits of a number, for nesting.
        raise UsageError(f"{path}: not valid TOML: {error}", hint=hint) from error
    if not _KINDS[noun][0] & table.keys():
        for other, (keys, what_to_do) in _KINDS.items():
            if keys <= table.keys():
                raise UsageError(
                    f"{path}: is a {other}, not a {noun}",
                    hint=what_to_do.format(file=shlex.quote(str(path)), name=path.name),
                )
    return text, table


def excess(table: Mapping[str, object]) -> str:
    """What a table has more of than it may; empty where that is nothing."""
    n_values, level, inside = 0, 0, [table]
    while inside:
        level += 1
        if level > MOST_LEVELS:
            return f"tables or lists are nested more than {MOST_LEVELS} deep"
        below: list[Any] = []
        for container in inside:
            n_values += len(container)
            if n_values > MOST_VALUES:
                return f"more than {MOST_VALUES:,} keys and list entries"
            values = container.values() if isinstance(container, Mapping) else container
            below += [value for value in values if isinstance(value, Mapping | list)]
        inside = below
    return ""


def place(fault: Fault, *, path: Path, text: str) -> str:
    """The fault after the file and the line of its key."""
    line = line_of(text, fault.path)
    return f"{path}:{line}: {fault}" if line else f"{path}: {fault}"


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line, from 1, that sets the key at `path`, else that of its nearest table or list; None
    if there is neither. Entries of a list are counted from "0".
    """
    lines = _lines(text)
    found = (lines.get(tuple(path[:n])) for n in range(len(path), 0, -1))
    return next((line for line in found if line), None)


# Texts, comments, and what gives a file its structure; all else is a bare key or value.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*'
    r"|[\[\]{},=.\n]|[^\s\[\]{},=.\"'#]+|.",
    re.DOTALL,
)
_Path = tuple[str, ...]


@functools.lru_cache(maxsize=4)
def _lines(text: str) -> dict[_Path, int]:
    """The first line of each key, of each entry of a list, and of each header of a table."""
    return dict(reversed(list(_places(text))))


def _places(text: str) -> Iterator[tuple[_Path, int]]:
    """Each path with its line, in the order of the file."""
    table: _Path = ()
    counts: dict[_Path, int] = {}
    lines = _statements(text)
    for number, tokens in lines:
        words = [token for _, token in tokens]
        if words[0] == "[":
            keys = tuple(_bare(word) for word in words if word not in ("[", "]", "."))
            yield keys, number
            table = keys
            if words[:2] == ["[", "["]:
                table = (*keys, str(counts.get(keys, 0)))
                counts[keys] = counts.get(keys, 0) + 1
                yield table, number
        elif "=" in words:
            yield from _Values(tokens).pairs(table)


def _statements(text: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """The line and the tokens, each with its line, of each header and each `key = value`."""
    number, depth, tokens = 1, 0, list[tuple[int, str]]()
    for match in _TOKEN.finditer(text + "\n"):
        token = match[0]
        if token == "\n" and depth <= 0:
            if tokens:
                yield tokens[0][0], tokens
            depth, tokens = 0, []
        elif not token.isspace() and not token.startswith("#"):
            tokens.append((number, token))
            depth += (token in ("[", "{")) - (token in ("]", "}"))
        number += token.count("\n")


class _Values:
    """Walks over the tokens of a `key = value`, where lists and tables lie within each other."""

    def __init__(self, tokens: Sequence[tuple[int, str]]) -> None:
        self._tokens = tokens
        self._next = 0

    def pairs(self, table: _Path) -> Iterator[tuple[_Path, int]]:
        """The paths below `table`, up to the brace that closes it or the end."""
        keys: list[str] = []
        while self._next < len(self._tokens):
            number, token = self._tokens[self._next]
            self._next += 1
            if token == "}":
                return
            if token == "=":
                path = (*table, *keys)
                yield path, number
                yield from self._value(path)
                keys = []
            elif token not in (",", "."):
                keys.append(_bare(token))

    def _value(self, path: _Path) -> Iterator[tuple[_Path, int]]:
        if self._next >= len(self._tokens):
            return
        _, token = self._tokens[self._next]
        if token in ("[", "{"):
            self._next += 1
            yield from self._entries(path) if token == "[" else self.pairs(path)
            return
        while self._next < len(self._tokens) and self._tokens[self._next][1] not in ",]}":
            self._next += 1

    def _entries(self, path: _Path) -> Iterator[tuple[_Path, int]]:
        entry = 0
        while self._next < len(self._tokens):
            number, token = self._tokens[self._next]
            if token in (",", "]"):
                self._next += 1
                if token == "]":
                    return
                entry += 1
                continue
            if token == "}":  # of no valid file
                return
            yield (*path, str(entry)), number
            yield from self._value((*path, str(entry)))


def _bare(word: str) -> str:
    return word.strip("\"'") if word[0] in "\"'" else word
