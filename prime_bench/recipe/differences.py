"""Settings by dotted key: all that a recipe asks for, and where two sides differ."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prime_bench.recipe.expand import Recipe

ABSENT = None
"""Stands where a side has no such key."""


@dataclass(frozen=True, kw_only=True)
class KeyDifference:
    """A key that two sides set differently, or that one of them has alone."""

    key: str
    """Dotted, as a recipe writes it."""
    left: Any
    right: Any
    """ABSENT where the side has no such key."""


def resolved(recipe: Recipe, datasets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every setting of the recipe by its dotted key, defaults included.

    `datasets` has the resolved settings of each of its data sets, which the recipe alone does not
    know. A backbone's keys stand below each data set.
    """
    table = {
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
        "report": recipe.report.plain(),
    }
    return dotted(table)


def differing_keys(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[KeyDifference]:
    """Where two tables of dotted keys differ, in the order of the first, then of the second."""
    return [
        KeyDifference(key=key, left=left.get(key, ABSENT), right=right.get(key, ABSENT))
        for key in dict.fromkeys([*left, *right])
        if left.get(key, ABSENT) != right.get(key, ABSENT)
    ]


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of nested tables by their dotted keys; an empty table has none."""
    return dict(_flat(table, ""))


def value_text(value: Any) -> str:
    """A value as a recipe writes it; a dash for ABSENT."""
    return "-" if value is ABSENT else json.dumps(value, ensure_ascii=False)


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
