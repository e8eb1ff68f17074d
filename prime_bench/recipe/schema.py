"""What a recipe file may say; backbones, arms and data sets are checked by their own settings."""

from typing import Annotated, Literal

import pydantic

from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.settings.probes import Kind
from prime_bench.settings.training import TrainSpec


class TrainingTable(TrainSpec):
    """`[training]`: the protocol, and the embedding width that holds for every backbone."""

    embedding_dim: int = pydantic.Field(10, ge=1)
    """Width of a field's embedding; a backbone's own table may set another."""

    def spec(self) -> TrainSpec:
        """The protocol alone."""
        return TrainSpec(**self.model_dump(exclude={"embedding_dim"}))


Note = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]


TableName = Literal[
    "main",
    "apg",
    "cost",
    "controls",
    "criteo_numeric",
    "dense_weight",
    "gdcn_attachment",
    "gdcn_seeds",
    "gradients",
    "routing",
    "structural",
    "subgroups",
    "family",
    "cells",
    "pairs",
]
"""A definition below `reports/`."""


class ReportTable(Frozen):
    """`[report]`: which tables the recipe is made for, and what they have to say."""

    tables: list[TableName] = []
    """Empty: `main` of a recipe that trains, else the table of the recipe's kind."""
    family: list[tuple[str, str]] = []
    """Comparisons, each an arm and what it is compared with, that the Holm correction counts."""
    notes: list[Note] = []
    """What a reader must know that no record tells; printed among the table's notes, so each is
    one sentence without a full stop."""


class RecipeTable(Frozen):
    """The whole file."""

    recipe_schema: Literal[1] = pydantic.Field(alias="schema")
    title: str
    kind: Kind = "train"
    """What the jobs do: train, or measure what such jobs have trained."""
    seeds: list[int] = pydantic.Field(min_length=1)
    arms: list[str] = pydantic.Field(min_length=1)
    arm: dict[str, JsonTable] = {}
    """Arms of the recipe's own: `plugin`, optionally `label`, and the plug-in's keys."""
    dataset: dict[str, JsonTable] = pydantic.Field(min_length=1)
    """Data sets: keys that differ from the card's defaults; `card` where the name is not its."""
    training: TrainingTable = TrainingTable()
    backbone: dict[str, JsonTable] = pydantic.Field(min_length=1)
    """A backbone's keys; `[backbone.<name>.on.<dataset>]` has those that hold on one data set."""
    probe: JsonTable = {}
    """Settings of a kind that measures (`settings.kinds`)."""
    report: ReportTable = ReportTable()
