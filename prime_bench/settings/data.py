"""How a click log becomes a prepared table: a card gives defaults, recipes and flags override."""

from typing import Annotated, Literal

import pydantic

from prime_bench.base.frozen import Frozen

NumericRule = Literal["raw", "log_bucket", "log1p", "minmax"]
"""What becomes of a numeric field (fidelity 4).

raw: the value, missing 0. log_bucket: floor(ln(x)^2) above 2, else int(x), and then categorical.
log1p: sign(x) ln(1 + |x|), missing 0. minmax: scaled by the range of the training rows, clipped to
[0, 1], missing 0, a constant column 0.
"""

Fractions = Annotated[
    tuple[
        Annotated[float, pydantic.Field(gt=0)],
        Annotated[float, pydantic.Field(gt=0)],
        Annotated[float, pydantic.Field(gt=0)],
    ],
    pydantic.Strict(False),
]


class DataSettings(Frozen):
    """Keys of every data set."""

    vocabulary: Literal["all", "train"] = "all"
    """Whose values get an id: rows of all splits, or training rows alone. No label is used."""
    numeric: NumericRule = "raw"
    """What becomes of the numeric fields."""
    min_count: int = pydantic.Field(1, ge=1)
    """Rows in which a categorical or bucketed value must occur to get an id of its own."""
    zero_is_missing: bool = True
    """For log_bucket: bucket 0 is out-of-vocabulary, as a missing value always is (FuxiCTR's rule);
    false gives it an id of its own."""


class LogSettings(DataSettings):
    """Keys of a data set that is one log and has to be split here."""

    split: Literal["hash", "time"] = "hash"
    """hash: each row by a seeded hash of its bytes, so equal rows fall into one split. time: whole
    hours, earliest first."""
    split_fractions: Fractions = (0.8, 0.1, 0.1)
    """Shares of the training, validation and test rows; they add up to 1."""
    split_seed: int = pydantic.Field(2021, ge=0)
    """Seed of the hash."""

    @pydantic.field_validator("split_fractions")
    @classmethod
    def _shares_of_one(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if abs(sum(value) - 1) > 1e-9:
            raise ValueError("the three fractions must add up to 1")
        return value


class SyntheticSettings(DataSettings):
    """Keys of the generated click log."""

    shape: Literal["avazu", "criteo"] = "avazu"
    """Fields like Avazu_x1's (22 categorical) or Criteo_x4's (13 numeric, 26 categorical)."""
    rows: int = pydantic.Field(100_000, ge=10)
    """Rows of all three splits together."""
    strength: float = pydantic.Field(1.0, ge=0)
    """How much the response to a field differs between the planted subgroups; 0: not at all."""
    seed: int = pydantic.Field(2021, ge=0)
    """Seed of everything that is drawn."""
