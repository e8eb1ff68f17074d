"""The fields of a prepared table: names, kinds, vocabulary sizes, meanings."""

import json
from pathlib import Path
from typing import Literal, Self

import pydantic

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.frozen import Frozen
from prime_bench.settings.interface import TableShape


class Field(Frozen):
    """One column of the table."""

    name: str
    kind: Literal["categorical", "numeric"]
    vocabulary_size: int | None = None
    """Ids 0 (PAD) to vocabulary_size - 1 (out-of-vocabulary); None for a numeric field."""
    semantic: str | None = None
    """What the column means (`site_category`, `hour`, ...), from the card; None: nobody knows."""

    @pydantic.model_validator(mode="after")
    def _only_categories_have_a_vocabulary(self) -> Self:
        if (self.kind == "categorical") != (self.vocabulary_size is not None):
            raise ValueError(
                f"{self.name}: a categorical field has a vocabulary_size, a numeric one has none"
            )
        if self.vocabulary_size is not None and self.vocabulary_size < 2:
            raise ValueError(f"{self.name}: a vocabulary holds at least PAD and out-of-vocabulary")
        return self


class Schema(Frozen):
    """All fields, in the order in which a model concatenates their embeddings."""

    fields: list[Field]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The schema in a file. Raises DataError where it is missing or unfit."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(table, dict):
                raise UsageError("no JSON object")
            return cls.parse(table, where="")
        except (OSError, ValueError, RecursionError, UsageError) as error:
            advice = "prepare the table again, which replaces it"
            raise DataError(f"{path}: cannot be read: {error}", hint=advice) from error

    @property
    def categorical(self) -> list[Field]:
        """The C categorical fields, in order: the columns of `ids`."""
        return [field for field in self.fields if field.kind == "categorical"]

    @property
    def numeric(self) -> list[Field]:
        """The K numeric fields, in order: the columns of `numerics`."""
        return [field for field in self.fields if field.kind == "numeric"]

    @property
    def shape(self) -> TableShape:
        """The sizes that parameter and cost formulas need."""
        return TableShape(
            vocabulary_sizes=tuple(field.vocabulary_size or 0 for field in self.categorical),
            n_numeric=len(self.numeric),
        )
