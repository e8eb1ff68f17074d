"""The fields of a prepared table: names, kinds, vocabulary sizes and meanings."""

from pathlib import Path
from typing import Literal, Self

import pydantic

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import read_json
from prime_bench.base.frozen import Frozen
from prime_bench.settings.interface import TableShape


class Field(Frozen):
    """A column of a prepared table that models read."""

    name: str
    kind: Literal["categorical", "numeric"]
    vocabulary_size: int | None = None
    """Number of ids, from 0 (PAD) to vocabulary_size - 1 (out of vocabulary); None if numeric."""
    semantic: str | None = None
    """What the column means (`site_category`, `hour`, ...), from the card; None if unknown."""

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
    """All fields of a table, in the order in which models concatenate their embeddings."""

    fields: list[Field]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the schema file at `path`. Raises DataError if it is missing or invalid."""
        try:
            table = read_json(path)
            if not isinstance(table, dict):
                raise UsageError("not a JSON object")
            return cls.parse(table, where="")
        except (OSError, ValueError, UsageError) as error:
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
        """The sizes on which the formulas of parameters and MACs depend."""
        return TableShape(
            vocabulary_sizes=tuple(field.vocabulary_size or 0 for field in self.categorical),
            n_numeric=len(self.numeric),
        )
