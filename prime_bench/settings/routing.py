"""The routing diagnosis: what a trained PRIME's routers do, over all rows and group by group
(paper, supplement: routing diagnostics, attachment controls).
"""

from typing import Literal

import pydantic

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.model import Settings
from prime_bench.settings.plugin import ArmSettings
from prime_bench.settings.prime import PrimeConfig
from prime_bench.settings.probe import PAPER_FIELDS, GroupSize, ProbeSettings, SemanticFields, Split


class RoutingSettings(ProbeSettings):
    """Which rows, and which groups of them."""

    split: Split = "valid"
    """Rows that are routed, in evaluation mode."""
    fields: SemanticFields = PAPER_FIELDS
    """Semantic fields whose values make the groups; may be empty."""
    min_rows: int = pydantic.Field(1000, ge=1)
    """Rows that a group needs."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:  # noqa: ARG002
        """There must be routers."""
        if not isinstance(arm, PrimeConfig):
            return "the arm has no routers"
        return None


class BagRouting(Settings):
    """One bag's routing over a set of rows."""

    entropy: float
    """Mean over rows of the entropy of the experts' weights, in nats."""
    normalised_entropy: float
    """Over ln M, the entropy of M equal weights; 0 for a single expert."""
    effective_experts: float
    """exp of the entropy."""
    load: list[float]
    """Mean weight of each of the M experts."""
    largest_load: float


class GroupRouting(Settings):
    """Routing of one group's rows."""

    size: GroupSize
    bags: list[BagRouting]


class FieldRouting(Settings):
    """One semantic field."""

    field: str
    groups: list[GroupRouting]
    too_small: list[GroupSize]
    overlap: list[list[float]]
    """Of each two groups, in their order: the mean over bags of the sum over experts of the smaller
    load; 1 for equal loads, 0 for groups that share no expert."""
    skipped: str | None = None
    """Why there are no groups."""


class RoutingFindings(Settings):
    """What a job of the kind found."""

    kind: Literal["routing"] = "routing"
    split: Split
    rows: int
    entropy: float
    """Mean over bags, in nats, as are the two below."""
    normalised_entropy: float
    effective_experts: float
    largest_load: float
    """The largest mean weight of one expert, over all bags."""
    bags: list[BagRouting]
    fields: list[FieldRouting]
