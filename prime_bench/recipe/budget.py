"""Parameters and multiply-accumulates of a job, by the formulas of its settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from prime_bench.base.frozen import Frozen
from prime_bench.catalog import find_backbone, find_plugin
from prime_bench.settings.interface import TableShape


class Budget(Frozen):
    """Parameters and multiply-accumulates a row."""

    backbone_parameters: int
    plugin_parameters: int
    """What the arm has beyond the backbone; a rival that replaces layers may have less."""
    backbone_macs: int
    plugin_macs: int


def budget_of(
    backbone: str,
    backbone_settings: Mapping[str, Any],
    plugin: str,
    plugin_settings: Mapping[str, Any],
    *,
    shape: TableShape,
) -> Budget:
    """Count an arm on data of that shape. Raises UsageError for settings that do not fit."""
    own = find_backbone(backbone).settings.parse(backbone_settings, where=backbone)
    added = find_plugin(plugin).settings.parse(plugin_settings, where=plugin)
    return Budget(
        backbone_parameters=own.parameters(shape),
        plugin_parameters=added.added_parameters(own, shape),
        backbone_macs=own.macs(shape),
        plugin_macs=added.added_macs(own, shape),
    )


def added_text(budgets: Sequence[Budget]) -> str:
    """What an arm adds: `120,224 and 120,192`, with a range where backbones differ."""
    parameters = [budget.plugin_parameters for budget in budgets]
    macs = [budget.plugin_macs for budget in budgets]
    return " and ".join(_extent(values) for values in (parameters, macs))


def _extent(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
