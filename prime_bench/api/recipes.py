"""Recipes and the arguments that several functions share."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from prime_bench.base.errors import UsageError
from prime_bench.recipe import file
from prime_bench.recipe.recipe import Recipe

StrPath = str | os.PathLike[str]
Places = StrPath | Sequence[StrPath]
"""A folder of records, or several folders and bundles, that which counts in a conflict first."""
Only = Mapping[str, object] | Sequence[str]
"""What narrows a recipe: a mapping, or texts such as `backbone=DNN`."""
Changes = Mapping[str, object] | Sequence[str]
"""What overrides keys of a recipe: a mapping, or texts such as `training.max_epochs=1`."""
Log = Callable[[str], None]
"""Takes one-line messages for the user."""
RECIPE_ARGUMENTS = "only and changes (--only, --set) go with a recipe"
"""Begins the error where these arguments are given without a recipe."""


def places_of(runs_dir: Places) -> list[Path]:
    """The folders and bundles as paths. Raises UsageError where there is none."""
    if isinstance(runs_dir, str | os.PathLike):
        return [Path(runs_dir)]
    if not runs_dir:
        raise UsageError("runs_dir: the list is empty, so there is nothing to read")
    return [Path(place) for place in runs_dir]


def load_recipe(recipe: StrPath, *, changes: Changes = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        recipe: Path of a recipe's file, or the name of a bundled one.
        changes: Keys to override.

    Returns:
        The recipe: data sets, backbones, arms and seeds with all defaults filled in.

    Raises:
        UsageError: The recipe does not exist or is faulty; the message names every fault with its
            file, line and key.
    """
    return file.load_recipe(Path(recipe), changes=change_texts(changes))


def loaded_recipe(recipe: StrPath | Recipe, changes: Changes) -> Recipe:
    """Return the recipe, read if it is not yet.

    Raises UsageError for a faulty recipe, and for changes of one that has been read.
    """
    if not isinstance(recipe, Recipe):
        return load_recipe(recipe, changes=changes)
    if changes:
        raise UsageError("`changes` are for `load_recipe`, which has already read this recipe")
    return recipe


def change_texts(changes: Changes) -> list[str]:
    """Return each change as `key.key=value`, the value in TOML."""
    if isinstance(changes, str):
        raise UsageError(f"changes: a list of texts or a mapping is wanted, got `{changes}`")
    if isinstance(changes, Mapping):
        return [f"{key}={_toml(str(key), value)}" for key, value in changes.items()]
    return list(changes)


def _toml(key: str, value: object) -> str:
    """The value as TOML: JSON without escapes of surrogates is TOML too."""
    if value is None or isinstance(value, Mapping):
        raise UsageError(
            f"changes: {key}: a number, text, boolean or list is wanted, got {value!r}",
            hint="name a key of a table with dots: {'training.max_epochs': 1}",
        )
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"changes: {key}: {error}") from error
    return text.replace("\x7f", "\\u007f")


def only_texts(only: Only) -> list[str]:
    """Return each restriction as `key=value`."""
    if isinstance(only, str):
        raise UsageError(f"only: a list of texts or a mapping is wanted, got `{only}`")
    if not isinstance(only, Mapping):
        return list(only)
    texts = []
    for key, value in only.items():
        values = (
            list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        )
        if not values:
            raise UsageError(f"only: {key}: the list is empty, so it would select nothing")
        texts += [f"{key}={item}" for item in values]
    return texts
