"""The gradient diagnosis: how unlike the gradients of semantic groups are in the shared Top-NN
(paper, section 4.2 and Eq. 28; fidelity 26, 36).
"""

from typing import Literal

import pydantic

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.model import Settings
from prime_bench.settings.plugin import ArmSettings
from prime_bench.settings.prime import PrimeConfig
from prime_bench.settings.probe import PAPER_FIELDS, GroupSize, ProbeSettings, SemanticFields

NULL_FIELD = "null_"
"""How the names of random labels start, which are measured as if they were fields."""


class GradientsSettings(ProbeSettings):
    """The paper's numbers are the defaults."""

    fields: SemanticFields = PAPER_FIELDS
    """Semantic fields whose values make the groups."""
    null_labels: int = pydantic.Field(0, ge=0)
    """Random labels of groups that no model sees, measured as fields `null_1`, ...: their gap is 0
    but for noise."""
    null_groups: int = pydantic.Field(4, ge=2)
    """Equally likely groups of each of them."""
    blocks: int = pydantic.Field(8, ge=1)
    """Disjoint blocks of rows a group."""
    positives_per_block: int = pydantic.Field(256, ge=1)
    """Clicks a block."""
    negatives_per_block: int = pydantic.Field(256, ge=1)
    """Rows without a click a block."""
    permutations: int = pydantic.Field(2000, ge=1)
    """Random groupings that reassign whole blocks."""
    example_permutations: int = pydantic.Field(100, ge=0)
    """Random groupings that reassign rows within each label; 0: this gap is not measured."""
    include_head: bool = False
    """Whether gaps with the output layer are measured as well where it is shared with another path
    (fidelity 36)."""
    sharing_steps: int = pydantic.Field(0, ge=0)
    """Steps of fine-tuning the Top-NN on one group alone, for the loss of sharing (Eq. 4); 0: it is
    not measured."""
    sharing_learning_rate: float = pydantic.Field(1e-4, gt=0)
    """Adam's rate there."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:
        """There must be a Top-NN, and each row must have a gradient of its own."""
        if not backbone.top_nn:
            return "it has no Top-NN, so there are no shared weights whose gradients could compete"
        if isinstance(arm, PrimeConfig) and arm.routing == "permuted":
            return "a row's routing is another row's, so no row has a gradient of its own"
        return None


class Gap(Settings):
    """Semantic groups against random ones of the same sizes and label counts, by one unit."""

    permutations: int
    random: float
    """Mean over random groupings of the mean pairwise cosine of the groups' gradients."""
    random_deviation: float
    """Standard deviation of that over random groupings."""
    gap: float
    """`random` less that of the semantic groups (Eq. 28)."""
    monte_carlo_error: float
    """Standard error of `random`, and so of the gap, for the finite number of groupings."""
    p_value: float
    """(1 + groupings whose cosine is at most the semantic groups') / (1 + groupings)."""


class Measure(Settings):
    """Cosines and gaps over one set of parameters."""

    parameters: Literal["top", "top_and_head"]
    n_parameters: int
    semantic: float
    """Mean pairwise cosine of the semantic groups' gradients."""
    cosines: list[list[float]]
    """Of each two groups, in the order of `groups`."""
    block: Gap
    example: Gap | None = None
    """None where it was not asked for, or not possible: `note` says why."""
    note: str | None = None


class GroupLoss(Settings):
    """What a group loses by sharing the Top-NN with the others, in nats a row."""

    name: str
    share: float
    """Its share of the measured groups' rows."""
    shared: float
    """LogLoss on half of its validation rows with the shared weights."""
    own: float
    """The same after the steps of fine-tuning on its other half alone."""


class Sharing(Settings):
    """The loss of sharing (Eq. 4) as far as a few steps reach it."""

    steps: int
    groups: list[GroupLoss]
    expected: float
    """Sum over groups of share times (shared - own)."""


class FieldGradients(Settings):
    """One semantic field."""

    field: str
    groups: list[GroupSize]
    """Groups that were measured."""
    too_small: list[GroupSize]
    """Groups without enough rows of both labels."""
    skipped: str | None = None
    """Why nothing was measured."""
    measures: list[Measure] = []
    sharing: Sharing | None = None


class GradientFindings(Settings):
    """What a job of the kind found, on validation rows."""

    kind: Literal["gradients"] = "gradients"
    fields: list[FieldGradients]
    rows: str
    """SHA-256 of the rows of all blocks: equal in all arms that may be compared."""
