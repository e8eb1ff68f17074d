"""The result of a check of a plug-in or backbone; loads without torch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """The result of checking one rule."""

    rule: str
    fault: str | None
    """How the rule is broken; None if it is kept."""
