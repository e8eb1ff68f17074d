"""Costs that probes measured, by device, data, backbone and arm."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from prime_bench.base.identity import canonical_json
from prime_bench.findings import ArmCost, CostFindings, median_ratio
from prime_bench.store.pairing import ArmKey
from prime_bench.store.record import ProbeRecord


@dataclass(frozen=True, kw_only=True)
class CostBesideDense:
    """The cost of one arm and of Dense, measured in one job on one device."""

    record: ProbeRecord
    arm: ArmCost
    dense: ArmCost

    @property
    def inference_ms(self) -> float:
        """Median over repetitions of the latency of a batch of the protocol's size."""
        return median(self._inference(self.arm))

    @property
    def inference_ratio(self) -> float:
        """Median over repetitions of the ratio to Dense within each."""
        return median_ratio(self._inference(self.arm), self._inference(self.dense))

    @property
    def training_ms(self) -> float:
        """Median over repetitions of a training step."""
        return median(self.arm.training_ms)

    @property
    def training_ratio(self) -> float:
        """Median over repetitions of the ratio to Dense within each."""
        return median_ratio(self.arm.training_ms, self.dense.training_ms)

    @property
    def parameter_ratio(self) -> float:
        """Trainable parameters over Dense's."""
        return self.arm.parameters / self.dense.parameters

    @property
    def memory_ratio(self) -> float | None:
        """Peak memory of training over Dense's; None where it was not measured."""
        return self.arm.memory_ratio(self.dense)

    def _inference(self, arm: ArmCost) -> list[float]:
        return arm.deployed(batch_size=self.record.job.training.batch_size)


class CostKey(NamedTuple):
    """What identifies a measured cost on one device."""

    variant: str
    """Digest of the data settings."""
    backbone: str
    backbone_settings: str
    """Canonical JSON."""
    arm: ArmKey


def measured_costs(records: Iterable[ProbeRecord]) -> dict[str, dict[CostKey, CostBesideDense]]:
    """Return, by device, the latest measurement of each arm on each backbone and data set."""
    devices: dict[str, dict[CostKey, CostBesideDense]] = {}
    for record in sorted(records, key=lambda record: record.environment.started):
        findings = record.findings
        if not isinstance(findings, CostFindings):
            continue
        dense = findings.arms[0]
        own = devices.setdefault(record.environment.device, {})
        for arm in findings.arms:
            key = CostKey(
                variant=record.data_variant,
                backbone=record.job.backbone,
                backbone_settings=canonical_json(record.job.backbone_settings),
                arm=ArmKey(
                    plugin=arm.plugin,
                    settings=canonical_json(arm.settings),
                    code=record.job.code.get(arm.plugin, ""),
                ),
            )
            own[key] = CostBesideDense(record=record, arm=arm, dense=dense)
    return devices
