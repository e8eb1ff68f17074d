"""Find, read and check a recipe file: all faults in one message, each with its line and key."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prime_bench.base.bundled import bundled_folder
from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.recipe.check import read_recipe
from prime_bench.recipe.expand import Recipe
from prime_bench.recipe.origins import given
from prime_bench.settings.model import Fault

# No commas: a line of a nested array is no header.
_HEADER = re.compile(r"\s*\[\[?\s*([^\[\],]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


def load_recipe(argument: str | Path, *, changes: Sequence[str] = ()) -> Recipe:
    """Read the recipe at a path, or the bundled one of that name, with `--set` changes applied.

    `changes` are `key.key=value`, the value in TOML (a bare word is a text). Raises UsageError.
    """
    path = find_recipe(argument)
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows put a mark in front
        table = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot read the recipe: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot read the recipe: {error}") from error
    except (
        ValueError,
        RecursionError,
    ) as error:
        # Python has limits too: for the digits of a number, for nesting.
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    changed = [_apply(table, change) for change in changes]
    recipe, faults = read_recipe(table, name=path.stem)
    if recipe is None:
        places = [_place(fault, path=path, text=text, changed=changed) for fault in faults]
        raise UsageError("\n".join(dict.fromkeys(places)))
    lines = {name: line_of(text, ("dataset", name)) for name in recipe.datasets}
    return replace(
        recipe,
        places={name: f"{path}:{line}" if line else str(path) for name, line in lines.items()},
        given=given(table, changed),
    )


def find_recipe(argument: str | Path) -> Path:
    """A recipe's file: the path itself, else a bundled recipe `NAME` or `recipes/NAME.toml`."""
    path = Path(argument)
    if path.is_file():
        return path
    folder = bundled_folder("recipes")
    bundled = {file.stem: file for file in sorted(folder.glob("*.toml"))}
    names_bundled = path.parent in (Path(), Path("recipes")) and path.suffix in ("", ".toml")
    if names_bundled and path.stem in bundled:
        return bundled[path.stem]
    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a recipe")
    raise UsageError(
        f"{path}: no such recipe{did_you_mean(path.stem, bundled)}",
        hint=f"give a file, or one of the bundled recipes: {', '.join(bundled)}",
    )


def _apply(table: dict[str, Any], change: str) -> tuple[str, ...]:
    """Set one `key.key=value` in the raw table and return the key's path."""
    try:
        change.encode()
    except UnicodeEncodeError:
        raise UsageError(f"--set {change!a}: not valid UTF-8") from None
    dotted, equals, value = change.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(path):
        raise UsageError(f"--set {change}: expected KEY=VALUE, such as training.max_epochs=1")
    _refuse_newcomer(table, path, change=change)
    here = table
    for part in path[:-1]:
        here = here.setdefault(part, {})
        if not isinstance(here, dict):
            raise UsageError(f"--set {change}: `{part}` is a value, not a table")
    here[path[-1]] = _toml_value(value.strip())
    return path


def _refuse_newcomer(table: dict[str, Any], path: tuple[str, ...], *, change: str) -> None:
    """Raise UsageError where a change of one key would add a data set or backbone to the grid."""
    names = {"dataset": "data set", "backbone": "backbone"}
    there = table.get(path[0])
    if path[0] in names and len(path) > 2 and isinstance(there, dict) and path[1] not in there:
        raise UsageError(
            f"--set {change}: the recipe has no {names[path[0]]} `{path[1]}`"
            f"{did_you_mean(path[1], there)}",
            hint=f"it has: {', '.join(there)}",
        )


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _place(fault: Fault, *, path: Path, text: str, changed: Sequence[tuple[str, ...]]) -> str:
    if any(fault.path[: len(change)] == change for change in changed):
        return f"--set {fault}"
    line = line_of(text, fault.path)
    if line is None and any(change[: len(fault.path)] == fault.path for change in changed):
        return f"--set {fault}"  # the change has made the table that is at fault
    return f"{path}:{line}: {fault}" if line else f"{path}: {fault}"


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line (from 1) that sets the key at `path`, else that opens its nearest table; or None."""
    table: tuple[str, ...] = ()
    best: tuple[int, int] = (0, 0)
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _keys(header[1])
            here = table
        elif key := _KEY.match(line):
            here = (*table, *_keys(key[1]))
        else:
            continue
        if here == tuple(path[: len(here)]) and len(here) > best[0]:
            best = (len(here), number)
    return best[1] or None


def _keys(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
