"""Measured costs of arms: the records of `cost` jobs with medians and ratios to Dense."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from prime_bench.findings import ArmCost, CostFindings, median_ratio
from prime_bench.recipe.recipe import Recipe
from prime_bench.store.record import ProbeRecord, Record, RunRecord


@dataclass(frozen=True, kw_only=True)
class MeasuredCosts:
    """The record of a `cost` job and its findings: what all arms of a backbone cost."""

    record: ProbeRecord
    findings: CostFindings
    """The costs of each arm, Dense first."""
    recipe: Recipe
    """Has the names of the arms."""

    @classmethod
    def of(cls, record: Record, recipe: Recipe) -> "MeasuredCosts":
        """Wrap a record. Raises TypeError for one of another kind."""
        if isinstance(record, RunRecord) or not isinstance(record.findings, CostFindings):
            raise TypeError(f"{record.job_id}: a record of the kind {record.job.kind}")
        return cls(record=record, findings=record.findings, recipe=recipe)

    def arm_name(self, arm: ArmCost) -> str:
        """Return the arm's name in the recipe; the plug-in's if the recipe does not list it."""
        for own in self.recipe.arms:
            if (own.plugin, own.settings.plain()) == (arm.plugin, arm.settings):
                return own.name
        return arm.plugin

    def plain(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {
            "job_id": self.record.job_id,
            "dataset": self.record.dataset,
            "backbone": self.record.job.backbone,
            "seed": self.record.job.seed,
            "device": self.record.environment.device,
            "threads": self.record.environment.threads,
            "clock": self.findings.clock,
            "memory": self.findings.memory,
            "distinct_rows": self.findings.distinct_rows,
            "arms": [self._plain_arm(arm) for arm in self.findings.arms],
        }

    def _plain_arm(self, arm: ArmCost) -> dict[str, Any]:
        dense = self.findings.arms[0]
        return {
            "arm": self.arm_name(arm),
            "plugin": arm.plugin,
            "parameters": arm.parameters,
            "macs": arm.macs,
            "inference": [
                {
                    "form": cost.form,
                    "batch_size": cost.batch_size,
                    **_plain_times(
                        cost.latencies_ms,
                        dense.inference_ms(batch_size=cost.batch_size, form=cost.form),
                    ),
                }
                for cost in arm.inference
            ],
            "training": _plain_times(arm.training_ms, dense.training_ms),
            "eager_training": None
            if arm.eager_training_ms is None or dense.eager_training_ms is None
            else _plain_times(arm.eager_training_ms, dense.eager_training_ms),
            "peak_memory_bytes": arm.peak_memory_bytes,
            "memory_ratio": arm.memory_ratio(dense),
        }


def _plain_times(own: Sequence[float], dense: Sequence[float]) -> dict[str, Any]:
    return {"ms": list(own), "median_ms": median(own), "ratio": median_ratio(own, dense)}
