"""Where each setting of a job comes from, as far as it is no default."""

from collections.abc import Mapping, Sequence
from typing import Any

from prime_bench.recipe.expand import Origin, Recipe, Trial


def given(
    table: Mapping[str, Any], changed: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], Origin]:
    """Every key that a recipe's raw table sets, by its path; `changed` are those of `--set`."""
    found: dict[tuple[str, ...], Origin] = {}
    for key, value in table.items():
        below = [path[1:] for path in changed if path[0] == key]
        if isinstance(value, Mapping) and () not in below:
            found |= {(key, *path): origin for path, origin in given(value, below).items()}
        else:
            found[key,] = "--set" if () in below else "recipe"
    return found


def origins(recipe: Recipe, trial: Trial) -> dict[str, Origin]:
    """Where the trial's settings come from, by dotted key: `training.batch_size`,
    `backbone.net_dropout`, `arm.rank`, `data.min_count`, `probe.blocks`, `seed`.

    A key that is not there has its default: the backbone's, the arm's, the protocol's, or what the
    data set's card says.
    """
    backbone = ("backbone", trial.backbone)
    found = {
        "seed": _first(recipe, [("seeds",)]),
        **_below("training", trial.training.plain(), recipe, [("training",)]),
        **_below(
            "backbone",
            trial.backbone_settings,
            recipe,
            [(*backbone, "on", trial.dataset), backbone],
        ),
        **_below("arm", trial.arm.settings, recipe, [("arm", trial.arm.name)]),
        **_below("data", _keys(recipe, trial.dataset), recipe, [("dataset", trial.dataset)]),
        **_below("probe", trial.probe, recipe, [("probe",)]),
    }
    # The one setting of backbones that the training table holds for all of them.
    width = ("training", "embedding_dim")
    if found.get("backbone.embedding_dim") is None and "embedding_dim" in trial.backbone_settings:
        found["backbone.embedding_dim"] = _first(recipe, [width])
    return {key: origin for key, origin in found.items() if origin is not None}


def _below(
    name: str,
    settings: Mapping[str, Any],
    recipe: Recipe,
    tables: Sequence[tuple[str, ...]],
) -> dict[str, Origin | None]:
    """The origin of each setting, which the first of `tables` that has it says."""
    return {
        f"{name}.{key}": _first(recipe, [(*table, key) for table in tables]) for key in settings
    }


def _first(recipe: Recipe, paths: Sequence[tuple[str, ...]]) -> Origin | None:
    """Of the first path that the recipe sets, itself or by something below it."""
    for path in paths:
        for key, origin in recipe.given.items():
            if key[: len(path)] == path:
                return origin
    return None


def _keys(recipe: Recipe, dataset: str) -> Mapping[str, Any]:
    return {key: value for key, value in recipe.datasets[dataset].items() if key != "card"}
