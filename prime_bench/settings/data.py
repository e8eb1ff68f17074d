"""Data settings: how a click log becomes a table. A card gives the defaults, which recipes and the
options of `prime-bench prepare` override.
"""

from typing import Annotated, Literal

import pydantic

from prime_bench.base.frozen import Frozen

NumericRule = Literal["raw", "log_bucket", "log1p", "minmax", "standard", "quantile"]
"""How the values of a numeric field are transformed (fidelity 4).

raw: the value, missing 0. log_bucket: floor(ln(x)^2) above 2, else int(x), and then categorical.
log1p: sign(x) ln(1 + |x|), missing 0. minmax: scaled by the range of the training rows, clipped to
[0, 1], missing 0, a constant column 0. standard: (x - mean) / standard deviation (divisor n) of the
training rows, missing 0, which is the mean, a constant column 0. quantile: the number of the bin
between quantiles of the training rows, and then categorical; missing is out of vocabulary.
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
    """Rows whose values get an id: those of all splits, or train rows alone. Labels are not
    used."""
    numeric: NumericRule = "raw"
    """How the values of numeric fields are transformed, unless the card gives a column a rule of
    its own."""
    bins: int = pydantic.Field(20, ge=2, le=10_000)
    """For quantile: into how many bins with equally many training rows a field is divided. Bins
    that fall together, because one value has many rows, are one."""
    min_count: int = pydantic.Field(1, ge=1)
    """Minimum number of rows with a categorical value, or in a bucket of log_bucket, for it to get
    an id of its own."""
    zero_is_missing: bool = True
    """For log_bucket: whether bucket 0 is out-of-vocabulary like a missing value, which is
    FuxiCTR's rule, or has an id of its own."""
    gauc_by: str = ""
    """Column whose values are the groups of the group AUC, such as the user. It need not be a field
    of the model, and its values are told apart exactly, whatever the vocabulary. The table then
    holds the group of each row, so it is another table. Empty: no group AUC."""


class LogSettings(DataSettings):
    """Keys of a data set that has no splits of its own: it is split while it is prepared."""

    split: Literal["hash", "time", "fraction", "column", "group"] = "hash"
    """How rows are assigned to splits. hash: by a seeded hash of the row's bytes, so that equal
    rows are in one split. time: by the column with the role time or hour, the earliest in train;
    rows of one time are in one split. fraction: in the order of the files, the first in train.
    column: as the column with the role split says. group: by a seeded hash of the column with the
    role group, so that rows of one value are in one split; a row without a value by its own."""
    split_fractions: Fractions = (0.8, 0.1, 0.1)
    """Shares of the train, valid and test split, which add up to 1; without effect for split =
    "column"."""
    split_seed: int = pydantic.Field(2021, ge=0)
    """Seed of the hash of rows or groups."""

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
    """How much the response to a field differs between the planted subgroups; 0: it is the same."""
    seed: int = pydantic.Field(2021, ge=0)
    """Seed of all random numbers of the log."""
