"""What the size of a model depends on: the fields of a prepared table, as plain integers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """Sizes of the categorical fields and the number of numeric ones."""

    vocabulary_sizes: tuple[int, ...]
    """Ids of each categorical field, PAD and out-of-vocabulary included."""
    n_numeric: int

    @property
    def n_fields(self) -> int:
        """F: categorical and numeric fields."""
        return len(self.vocabulary_sizes) + self.n_numeric

    @property
    def n_pairs(self) -> int:
        """P = F (F - 1) / 2: pairs of different fields."""
        return self.n_fields * (self.n_fields - 1) // 2

    @property
    def embedding_rows(self) -> int:
        """V: rows of all embedding tables; a numeric field has one (its weight vector)."""
        return sum(self.vocabulary_sizes) + self.n_numeric
