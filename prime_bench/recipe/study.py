"""Studies: several recipes that are prepared, run and reported together, read from a file.

The keys that a study sets in its recipes do what `--set` does, so a recipe's own checks find their
faults; the messages name the line of the study that set the key.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.files import NotReadable, bundled_folder, read_file
from prime_bench.base.frozen import Fault, Frozen, JsonTable
from prime_bench.base.toml import excess, line_of, place, read_toml
from prime_bench.recipe.file import find_recipe, load_recipe, toml_files
from prime_bench.recipe.recipe import Recipe, TableName

MOST_BYTES = 256 << 10
"""Bytes of a study's file."""
MOST_RECIPES = 200
"""Recipes of a study."""
_NAMED = ("dataset", "backbone", "arm")
"""Tables of a recipe whose keys are names, which not every recipe of a study has."""
_SIMPLE_KEY = re.compile(r"[A-Za-z0-9_+:-]+")
_Key = tuple[str, ...]
"""The keys of a recipe that lead to a value."""

FigureKind = Literal[
    "pairs",
    "wins",
    "forest",
    "tradeoff",
    "controls",
    "sensitivity",
    "curves",
    "load",
    "competition",
    "gap",
    "subgroups",
]
"""What the names of figures begin with; `prime-bench ls figures` says what each shows."""


class StudyRecipeKeys(Frozen):
    """`[[recipes]]`: a recipe of a study."""

    recipe: str
    """Name of a bundled recipe, or a file's path from the folder of the study."""
    name: str | None = pydantic.Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,59}$")
    """What the study calls it; by default the recipe's own name. Needed where a recipe is there
    twice."""
    only: list[str] = []
    """Which of its jobs, as `--only` has them: `backbone=DNN`."""
    set: JsonTable = {}
    """Keys of this recipe that the study sets, as `--set` does."""
    tables: list[TableName] = []
    """Tables of the report; empty: the recipe's own."""
    figures: list[FigureKind] | None = None
    """Figures of the report, by what their names begin with; by default all that there are."""


class StudyKeys(Frozen):
    """The top level of a study's file."""

    study_schema: Literal[1] = pydantic.Field(alias="schema")
    """Version of this format."""
    title: str
    """Title of the report."""
    label: str = ""
    """What the numbers are, where they are not what the titles of tables say; printed with every
    table and figure. One sentence without a full stop."""
    against: Literal["paper"] | None = None
    """`paper`: the report compares with every claim and printed number of the paper."""
    max_hours: float | None = pydantic.Field(None, gt=0)
    """Hours after which one command starts no further job."""
    set: JsonTable = {}
    """Keys that the study sets in its recipes, as `--set` does: below `dataset`, `backbone` and
    `arm` in those that have the name, all others in every recipe."""
    recipes: list[StudyRecipeKeys] = pydantic.Field(min_length=1, max_length=MOST_RECIPES)
    """The recipes, in the order in which they are run and reported."""


@dataclass(frozen=True, kw_only=True)
class StudyRecipe:
    """A recipe of a study."""

    recipe: Recipe
    """With the study's keys set; its name is that in the study, which no other has."""
    only: list[str]
    tables: list[TableName]
    """Tables of the report; empty: the recipe's own."""
    figures: list[FigureKind] | None
    """None: all that there are."""
    lines: Mapping[_Key, int]
    """The line of the study that sets a key of the recipe."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study without faults: its recipes are read, with the keys that it sets in them."""

    name: str
    title: str
    label: str
    """What the numbers are; empty where nothing has to be said."""
    against: Literal["paper"] | None
    max_hours: float | None
    recipes: list[StudyRecipe]
    path: Path

    @property
    def argument(self) -> str:
        """What a command takes for it: the name of a bundled study, or the name of the file."""
        return self.name if self.path in bundled_studies() else self.path.name

    def placed(self, error: UsageError, item: StudyRecipe) -> UsageError:
        """The error of a recipe, at the line of the study where that has set the faulty key."""
        return _placed(error, path=self.path, name=item.recipe.name, lines=item.lines)


def load_study(argument: str | Path) -> Study:
    """Read the study at a path, or the bundled one of that name.

    Raises UsageError with every fault of the file, or those of the first recipe that has any.
    """
    path = find_study(argument)
    try:
        content = read_file(path, most_bytes=MOST_BYTES)
    except (FileNotFoundError, NotReadable, PermissionError) as error:
        raise UsageError(f"{path}: cannot read the study: {error.strerror}") from error
    text, table = read_toml(content, path=path, noun="study", most_bytes=MOST_BYTES)
    if why := excess(table):
        raise UsageError(f"{path}: {why}")
    keys, faults = StudyKeys.check(table)
    if keys is None:
        raise _faulty(faults, path=path, text=text)
    files, faults = _recipe_files(keys, folder=path.parent)
    faults += [*_repeated_names(keys, files), *_unfit_keys(keys)]
    if faults:
        raise _faulty(faults, path=path, text=text)
    plain = [load_recipe(file) for file in files]
    if faults := list(_unknown_names(keys, plain)):
        raise _faulty(faults, path=path, text=text)
    return Study(
        name=path.stem,
        title=keys.title,
        label=keys.label.strip(),
        against=keys.against,
        max_hours=keys.max_hours,
        recipes=[
            _study_recipe(keys, index, file=file, plain=recipe, path=path, text=text)
            for index, (file, recipe) in enumerate(zip(files, plain, strict=True))
        ],
        path=path,
    )


def find_study(argument: str | Path) -> Path:
    """The study's file: that path, or the bundled study of the name `NAME` or
    `recipes/studies/NAME.toml`. Raises UsageError.
    """
    path = Path(argument)
    if path.is_file():
        return path
    bundled = {file.stem: file for file in bundled_studies()}
    names_bundled = path.parent in (Path(), Path("recipes/studies"))
    if names_bundled and path.suffix in ("", ".toml") and path.stem in bundled:
        return bundled[path.stem]
    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a study")
    raise UsageError(
        f"{path}: no such study{did_you_mean(path.stem, bundled)}",
        hint=f"give a file, or one of the bundled studies: {', '.join(bundled)}",
    )


def bundled_studies() -> list[Path]:
    """The files of the bundled studies."""
    return sorted((bundled_folder("recipes") / "studies").glob("*.toml"))


def study_files() -> list[tuple[str, str, int, Path]]:
    """The bundled studies, and those in the working folder and its folder `recipes/studies`.

    Returns what names each as an argument, its title, its number of recipes, and its path. A file
    that is not a study is left out; one with faults is not.
    """
    own = (Path(), Path("recipes/studies"))
    found = toml_files(bundled_folder("recipes") / "studies", own=own)
    return [
        (name, str(table.get("title", "")), len(recipes), file)
        for name, table, file in found
        if isinstance(recipes := table.get("recipes"), list)
    ]


def _faulty(faults: Sequence[Fault], *, path: Path, text: str) -> UsageError:
    return UsageError("\n".join(place(fault, path=path, text=text) for fault in faults))


def _recipe_files(keys: StudyKeys, *, folder: Path) -> tuple[list[Path], list[Fault]]:
    """The file of each recipe, and what names none."""
    files, faults = [], []
    for index, item in enumerate(keys.recipes):
        try:
            beside = folder / item.recipe
            files.append(beside if beside.is_file() else find_recipe(item.recipe))
        except UsageError as error:
            faults.append(Fault(("recipes", str(index), "recipe"), error.message))
    return files, faults


def _name(item: StudyRecipeKeys) -> str:
    return item.name or Path(item.recipe).stem


def _repeated_names(keys: StudyKeys, files: Sequence[Path]) -> Iterator[Fault]:
    names = [_name(item) for item in keys.recipes]
    if len(files) < len(names):
        return
    for index, name in enumerate(names):
        if name in names[:index]:
            why = f"another recipe of the study is called `{name}`; give one of them a `name`"
            yield Fault(("recipes", str(index)), why)


def _unfit_keys(keys: StudyKeys) -> Iterator[Fault]:
    """Keys that a study cannot set."""
    for key, _ in _values(keys.set):
        if key[0] == "probe":
            why = "keys of a probe differ by its kind: set them with the recipe that measures"
            yield Fault(("set", *key), why)
    tables: list[tuple[_Key, JsonTable]] = [(("set",), keys.set)]
    tables += [(("recipes", str(i), "set"), item.set) for i, item in enumerate(keys.recipes)]
    for above, table in tables:
        for key, _ in _values(table):
            if bad := [part for part in key if not _SIMPLE_KEY.fullmatch(part)]:
                why = f"`{bad[0]}` has a letter that no key which a study sets may have"
                yield Fault((*above, *key), why)


def _unknown_names(keys: StudyKeys, recipes: Sequence[Recipe]) -> Iterator[Fault]:
    """Names in the study's own `set` that no recipe has, so that the key would change nothing."""
    for key, _ in _values(keys.set):
        if key[0] in _NAMED and len(key) > 1:
            known = sorted({name for recipe in recipes for name in _names(recipe, key[0])})
            if key[1] not in known:
                near = did_you_mean(key[1], known)
                yield Fault(("set", *key), f"no recipe of the study has `{key[1]}`{near}")


def _names(recipe: Recipe, table: str) -> list[str]:
    own = {
        "dataset": list(recipe.datasets),
        "backbone": list(recipe.backbones),
        "arm": [arm.name for arm in recipe.arms],
    }
    # A grid's points have names of their own, and its table has another.
    return [*own[table], *(key[1] for key in recipe.given if key[0] == table and len(key) > 1)]


def _study_recipe(
    keys: StudyKeys, index: int, *, file: Path, plain: Recipe, path: Path, text: str
) -> StudyRecipe:
    """The recipe with the study's keys set. Raises UsageError."""
    item = keys.recipes[index]
    changes = {key: (value, ("set", *key)) for key, value in _values(keys.set)}
    changes = {key: change for key, change in changes.items() if _concerns(key, plain)}
    own = ("recipes", str(index), "set")
    changes |= {key: (value, (*own, *key)) for key, value in _values(item.set)}
    lines = {key: line_of(text, place) or 0 for key, (_, place) in changes.items()}
    try:
        recipe = load_recipe(
            file, changes=[_as_set(key, value) for key, (value, _) in changes.items()]
        )
    except UsageError as error:
        raise _placed(error, path=path, name=_name(item), lines=lines) from error
    try:
        recipe.job_specs(only=item.only)
    except UsageError as error:
        fault = Fault(("recipes", str(index), "only"), error.message.removeprefix("--only "))
        raise UsageError(place(fault, path=path, text=text), hint=error.hint) from error
    return StudyRecipe(
        recipe=replace(recipe, name=_name(item)),
        only=item.only,
        tables=item.tables,
        figures=item.figures,
        lines=lines,
    )


def _concerns(key: _Key, recipe: Recipe) -> bool:
    """Whether the recipe has the data set, backbone or arm that a key of the study names."""
    if key[0] not in _NAMED or len(key) < 2:
        return True
    there = key[1] in _names(recipe, key[0])
    on = key[3] if key[0] == "backbone" and len(key) > 3 and key[2] == "on" else None
    return there and (on is None or on in recipe.datasets)


def _values(table: JsonTable, above: _Key = ()) -> Iterator[tuple[_Key, object]]:
    """Every value of a table that is no table itself, with its keys."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _values(value, (*above, key))
        else:
            yield (*above, key), value


def _as_set(key: _Key, value: object) -> str:
    """The key and its value as `--set` has them. JSON without escapes of surrogates is TOML."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{'.'.join(key)}={text}"


def _placed(error: UsageError, *, path: Path, name: str, lines: Mapping[_Key, int]) -> UsageError:
    """The error of the recipe `name` with, for each key that the study has set, the line there.

    A recipe that was read with `--set` begins the line of a fault with `--set key.key: `, and so
    tells which key it is about; all other lines are about the recipe's own file.
    """
    found = []
    for line in error.message.splitlines():
        after = line.removeprefix("--set ")
        faulty = tuple(re.split(r"[\s:=]", after, maxsplit=1)[0].split("."))
        key = next((k for k in lines if faulty[: len(k)] == k or k[: len(faulty)] == faulty), None)
        if after == line or key is None:
            found.append(f"{path}: in the recipe {name}: {line}")
        else:
            found.append(f"{path}:{lines[key]}: in the recipe {name}: {after}")
    return UsageError("\n".join(found), hint=error.hint)
