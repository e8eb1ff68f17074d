"""The subgroup report: where an arm predicts well and where it does not."""

from typing import Literal

import pydantic

from prime_bench.settings.model import Settings
from prime_bench.settings.probe import PAPER_FIELDS, GroupSize, ProbeSettings, SemanticFields, Split


class SubgroupsSettings(ProbeSettings):
    """Which rows, and which groups of them."""

    split: Split = "test"
    """Rows that are scored."""
    fields: SemanticFields = pydantic.Field(PAPER_FIELDS, min_length=1)
    """Semantic fields whose values make the groups."""
    min_rows: int = pydantic.Field(1000, ge=1)
    """Rows that a group needs."""
    calibration_bins: int = pydantic.Field(15, ge=1)
    """Bins with equally many rows over which the calibration error is taken."""


class SubgroupScore(Settings):
    """An arm on one group's rows; None where a prediction is not a number."""

    size: GroupSize
    click_rate: float
    mean_prediction: float | None
    auc: float | None
    """None, as `logloss`, for rows of one class as well."""
    logloss: float | None
    calibration_error: float | None
    """Mean over rows of |click rate - mean prediction| of the row's bin."""


class FieldSubgroups(Settings):
    """One semantic field."""

    field: str
    groups: list[SubgroupScore]
    too_small: list[GroupSize]
    skipped: str | None = None
    """Why there are no groups."""


class SubgroupFindings(Settings):
    """What a job of the kind found."""

    kind: Literal["subgroups"] = "subgroups"
    split: Split
    overall: SubgroupScore
    """All rows of the split."""
    fields: list[FieldSubgroups]
