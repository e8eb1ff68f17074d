"""Parameters, time and memory of arms compared with Dense, a block a data set and device."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from prime_bench.base.words import counted
from prime_bench.findings import CostFindings
from prime_bench.report.quantities.costs import CostBesideDense, CostKey, measured_costs
from prime_bench.report.quantities.layout import (
    ArmColumn,
    arm_columns,
    arm_label,
    backbone_label,
    catalogue_rank,
)
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.values import Level
from prime_bench.report.tables.body import TableBody, measurements, probe_notes
from prime_bench.report.tables.definition import CostDefinition
from prime_bench.report.tables.model import (
    Block,
    Cell,
    Column,
    Row,
    TableNote,
    note,
    series,
    shown,
    words,
)
from prime_bench.settings.probes import CostProbe
from prime_bench.store.record import ProbeRecord


def build(records: ReportRecords, definition: CostDefinition) -> TableBody:
    """Build the table from the latest record of each cost probe."""
    probes = records.probes_of("cost")
    groups = measurements(probes, labels=records.dataset_labels)
    devices = sorted({record.environment.device for record in probes})
    blocks = []
    for group in groups:
        for device, costs in sorted(measured_costs(group.records).items()):
            blocks.append(
                Block(
                    key=group.key if len(devices) == 1 else f"{group.key}/{device}",
                    label=f"{group.label}, {device}",
                    columns=tuple(_columns()),
                    rows=tuple(_rows(costs, definition)),
                )
            )
    return TableBody(
        blocks=blocks,
        notes=[
            *_how(probes),
            *probe_notes(probes, noun="measurement of cost", labels=records.dataset_labels),
        ],
        records=probes,
        bold=f"the lower cost of {series([arm_label(arm) for arm in definition.compared])}, where "
        "both are measured",
        words={"datasets": series([group.label for group in groups])},
    )


def _graphed(findings: CostFindings) -> bool:
    return any(arm.eager_training_ms is not None for arm in findings.arms)


def _columns() -> Iterator[Column]:
    yield Column(key="backbone", label="Backbone", kind="words")
    yield Column(key="method", label="Method", kind="words")
    for key, label, group in (
        ("parameters", "Parameter ratio", ""),
        ("inference_ms", "Latency (ms)", "Inference"),
        ("inference", "Ratio", "Inference"),
        ("training_ms", "Latency (ms)", "Training"),
        ("training", "Ratio", "Training"),
        ("memory", "Peak-memory ratio", ""),
    ):
        yield Column(key=key, label=label, kind="number", group=group, better="lower")


def _rows(costs: dict[CostKey, CostBesideDense], definition: CostDefinition) -> Iterator[Row]:
    """Backbones in the catalogue's order, their arms in that of `arm_columns`."""
    names = {key.arm: key.arm.plugin for key in costs if key.arm.plugin in definition.arms}
    arms = arm_columns(names, baseline=definition.baseline)
    backbones = sorted(
        {(key.backbone, key.backbone_settings) for key in costs},
        key=lambda item: (catalogue_rank(item[0]), item),
    )
    for number, (name, settings) in enumerate(backbones):
        twin = sum(other == name for other, _ in backbones[:number])
        row_key = f"{name}#{twin + 1}" if twin else name
        found = {
            key.arm: cost
            for key, cost in costs.items()
            if (key.backbone, key.backbone_settings) == (name, settings)
        }
        own = [(arm, _cells(found[arm.key], definition)) for arm in arms if arm.key in found]
        for index, (arm, cells) in enumerate(_with_bold(own, definition)):
            yield Row(
                key=f"{row_key}.{arm.name}",
                cells=(words("" if index else backbone_label(name)), words(arm.label), *cells),
                ruled=index == 0 and number > 0,
            )


def _cells(cost: CostBesideDense, definition: CostDefinition) -> list[Cell]:
    values = (
        cost.parameter_ratio,
        cost.inference_ms,
        cost.inference_ratio,
        cost.training_ms,
        cost.training_ratio,
        cost.memory_ratio,
    )
    levels = [Level(value=value, jobs=(cost.record.job_id,)) for value in values]
    return [shown(level, definition.decimals) for level in levels]


def _with_bold(
    lines: list[tuple[ArmColumn, list[Cell]]], definition: CostDefinition
) -> list[tuple[ArmColumn, list[Cell]]]:
    """The lowest among the compared arms in bold, where there is more than one."""
    rivals = [cells for arm, cells in lines if arm.key.plugin in definition.compared]
    if len(rivals) < 2:
        return lines
    values = [
        [c.value for c in column if c.value is not None] for column in zip(*rivals, strict=True)
    ]
    lowest = [min(column, default=None) for column in values]
    return [
        (
            arm,
            [
                replace(
                    cell, emphasised=cells in rivals and least is not None and cell.value == least
                )
                for cell, least in zip(cells, lowest, strict=True)
            ],
        )
        for arm, cells in lines
    ]


def _how(records: Sequence[ProbeRecord]) -> Iterator[TableNote]:
    """Note how costs were measured: batches, steps, repetitions, clock, kind of memory."""
    ways: list[str] = []
    for record in records:
        if not isinstance(record.findings, CostFindings):
            continue
        probe = CostProbe.parse(record.job.probe, where="probe")
        ways.append(
            f"{record.environment.device}: batches of "
            f"{counted(record.job.training.batch_size, 'row')}; "
            f"{counted(probe.warm_up_steps, 'step')} of warm-up, {probe.inference_steps} of "
            "inference, "
            f"{probe.training_steps} of training; medians of "
            f"{counted(probe.repetitions, 'repetition')}; "
            f"time by {record.findings.clock}, memory: {record.findings.memory}"
            + ("; steps and forward passes as CUDA graphs" if _graphed(record.findings) else "")
        )
    yield from (note("measurement", way) for way in dict.fromkeys(ways))
