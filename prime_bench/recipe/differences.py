"""Settings by dotted key, such as `training.batch_size`: all those of a recipe, and the differences
between two tables.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prime_bench.base.frozen import JsonTable
from prime_bench.recipe.recipe import Recipe

ABSENT = None
"""The value of a key that a side does not have."""


@dataclass(frozen=True, kw_only=True)
class KeyDifference:
    """A key that two sides set differently, or that only one of them has."""

    key: str
    """Dotted, as in a recipe."""
    left: object
    """The value on the left side, or ABSENT."""
    right: object
    """The value on the right side, or ABSENT."""


def resolved(recipe: Recipe, datasets: Mapping[str, JsonTable]) -> dict[str, object]:
    """Every setting of the recipe by its dotted key, defaults included.

    `datasets` has the data settings of each data set, which also depend on its card. The keys of a
    backbone are listed for each data set.
    """
    table: dict[str, object] = {
        "title": recipe.title,
        "kind": recipe.kind,
        "seeds": recipe.seeds,
        "arms": [arm.name for arm in recipe.arms],
        "arm": {
            arm.name: {"label": arm.label, "plugin": arm.plugin, **arm.settings.plain()}
            for arm in recipe.arms
        },
        "dataset": datasets,
        "training": recipe.training.plain(),
        "backbone": {
            name: {"on": {dataset: own.plain() for dataset, own in per_dataset.items()}}
            for name, per_dataset in recipe.backbones.items()
        },
        "probe": {} if recipe.probe is None else recipe.probe.plain(),
        "budget": {} if recipe.budget is None else recipe.budget.plain(),
        "report": recipe.report.plain(),
    }
    return dotted(table)


def differing_keys(left: Mapping[str, object], right: Mapping[str, object]) -> list[KeyDifference]:
    """The differences between two tables of dotted keys, in the order of the first, then of the
    second.
    """
    return [
        KeyDifference(key=key, left=left.get(key, ABSENT), right=right.get(key, ABSENT))
        for key in dict.fromkeys([*left, *right])
        if left.get(key, ABSENT) != right.get(key, ABSENT)
    ]


def dotted(table: Mapping[str, object]) -> dict[str, object]:
    """The values of nested tables by their dotted keys. An empty table has no keys."""
    return dict(_flat(table, ""))


def value_text(value: object) -> str:
    """A value as text: as JSON, or a dash for ABSENT."""
    return "-" if value is ABSENT else json.dumps(value, ensure_ascii=False)


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
