"""The recipe, bundles and folders that `report` and `pack` are given beside each other."""

from collections.abc import Sequence
from pathlib import Path

import click


def recipe_and_places(
    ctx: click.Context, given: Sequence[str], runs_dirs: Sequence[Path]
) -> tuple[str | None, list[Path]]:
    """Tell the recipe from the sources of records, which keep their order.

    A name that ends in `.zip` is a bundle, one that ends in `.toml` a recipe; of the others the
    first that names a recipe, or that is no folder, is the recipe. Without a bundle or folder among
    them the records are those of `--runs-dir`, else in addition where the option was given on the
    command line.

    Raises UsageError where two names are those of recipes.
    """
    from prime_bench.base.errors import UsageError

    recipe: str | None = None
    places: list[Path] = []
    for text in given:
        path = Path(text)
        if path.suffix == ".zip" or (path.is_dir() and (recipe or not _names_a_recipe(text))):
            places.append(path)
        elif recipe is None:
            recipe = text
        else:
            raise UsageError(
                f"{text}: neither a bundle nor a folder, and {recipe} is already the recipe",
                hint="one recipe, and bundles (.zip) or folders of records beside it",
            )
    source = ctx.get_parameter_source("runs_dirs")
    if not places or source is click.core.ParameterSource.COMMANDLINE:
        places += runs_dirs
    return recipe, places


def _names_a_recipe(text: str) -> bool:
    from prime_bench.base.errors import UsageError
    from prime_bench.recipe.file import find_recipe

    if text.endswith("/"):
        return False
    if Path(text).suffix == ".toml":
        return True
    try:
        find_recipe(text)
    except UsageError:
        return False
    return True
