"""What every kind of job that measures a trained model, or a model's cost, is configured by."""

from typing import Annotated, ClassVar, Literal

import pydantic

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.model import Settings
from prime_bench.settings.plugin import ArmSettings

PAPER_FIELDS = ("site_category", "app_category", "device_type", "hour")
"""The paper's semantic fields (section 4.2), by what a card says that its columns mean."""

Split = Literal["valid", "test"]
"""Rows that are measured; no model was trained on them."""
SemanticFields = Annotated[tuple[str, ...], pydantic.Strict(False)]


class ProbeSettings(Settings):
    """Keys of a recipe's `[probe]`."""

    unit: ClassVar[Literal["arm", "group"]] = "arm"
    """What one job measures: an arm, or all arms of one data set, backbone and seed together."""
    reads_checkpoint: ClassVar[bool] = True
    """Whether a job needs the record and the weights of the job that trained its arm."""

    def misfit(self, backbone: BackboneSettings, arm: ArmSettings) -> str | None:  # noqa: ARG002
        """Why this arm on this backbone cannot be measured; None: it can."""
        return None


class GroupSize(Settings):
    """Rows of one value of a semantic field."""

    name: str
    """The value as the log has it."""
    rows: int
    positives: int
