"""Measured costs of arms, as a terminal shows them."""

from collections.abc import Sequence
from statistics import median

from prime_bench.base.characters import visible
from prime_bench.cli.output import table_text
from prime_bench.findings import ArmCost, InferenceCost, median_ratio
from prime_bench.store.costs import MeasuredCosts

_MEMORY = {
    "max_memory_allocated": "memory: the most that torch had allocated on the device",
    "resident growth": "memory: by how much the resident memory of a process of its own grew at "
    "most, pages of libraries included",
    "not measured": "memory: not measured on a CPU with a compiler at work, or on a system that "
    "does not report it",
}
"""`memory` of the findings -> what its numbers are."""


def tables(measured: Sequence[MeasuredCosts]) -> str:
    """Tables of the protocol's figures, then of inference by batch size."""
    parts = [_protocol(measured)]
    if any(_others(item) for item in measured):
        parts.append("inference, ms a batch and ratio to Dense, by rows of a batch:")
        parts.append(_by_size(measured))
    parts.append("\n".join(dict.fromkeys(line for item in measured for line in _words(item))))
    return "\n\n".join(parts)


def _protocol(measured: Sequence[MeasuredCosts]) -> str:
    header = ["dataset", "backbone", "arm", "parameters", "x", "MACs a row", "x"]
    header += ["inference ms", "x", "training ms", "x", "memory MB", "x"]
    rows = []
    for item in measured:
        size = item.record.job.training.batch_size
        for arm in item.findings.arms:
            dense, row = item.findings.arms[0], [*_place(item), item.arm_name(arm)]
            for count, base in ((arm.parameters, dense.parameters), (arm.macs, dense.macs)):
                row += [f"{count:,}", f"{count / base:.3f}"]
            for own, other in (
                (arm.deployed(batch_size=size), dense.deployed(batch_size=size)),
                (arm.training_ms, dense.training_ms),
            ):
                row += [_ms(own), f"{median_ratio(own, other):.3f}"]
            peak, ratio = arm.peak_memory_bytes, arm.memory_ratio(dense)
            row += ["-" if peak is None else f"{peak / 1e6:,.1f}"]
            row += ["-" if ratio is None else f"{ratio:.3f}"]
            rows.append(row)
    return table_text(rows, header=header, n_words=3)


def _by_size(measured: Sequence[MeasuredCosts]) -> str:
    inference = [cost for item in measured for cost in item.findings.arms[0].inference]
    sizes = sorted({cost.batch_size for cost in inference})
    rows = []
    for item in measured:
        dense = item.findings.arms[0]
        for form in dict.fromkeys(cost.form for cost in dense.inference):
            for arm in item.findings.arms:
                found = {cost.batch_size: cost for cost in arm.inference if cost.form == form}
                cells = [_cell(found.get(size), dense, is_dense=arm is dense) for size in sizes]
                rows.append([*_place(item), form, item.arm_name(arm), *cells])
    header = ["dataset", "backbone", "form", "arm", *(f"{size:,}" for size in sizes)]
    return table_text(rows, header=header, n_words=4)


def _cell(cost: InferenceCost | None, dense: ArmCost, *, is_dense: bool) -> str:
    if cost is None:
        return "-"
    if is_dense:
        return _ms(cost.latencies_ms)
    base = dense.inference_ms(batch_size=cost.batch_size, form=cost.form)
    return f"{_ms(cost.latencies_ms)} x{median_ratio(cost.latencies_ms, base):.2f}"


def _others(item: MeasuredCosts) -> bool:
    """Whether inference was measured in more than one way."""
    return len(item.findings.arms[0].inference) > 1


def _words(item: MeasuredCosts) -> list[str]:
    probe, where = item.record.job.probe, item.record.environment
    arms, size = item.findings.arms, item.record.job.training.batch_size
    graphed = [
        f"on {where.device} inference and training are CUDA graphs; a training step without is "
        f"{_ms(arm.eager_training_ms)} ms for {item.arm_name(arm)} on {item.record.job.backbone}, "
        f"inference {_ms(arm.inference_ms(batch_size=size))} ms"
        for arm in arms
        if arm.eager_training_ms is not None
    ]
    return [
        *map(visible, graphed),
        visible(
            f"on {where.device}, {where.threads} CPU threads, "
            f"torch {where.versions.get('torch', '?')}"
        ),
        f"times by {item.findings.clock}: medians of {probe['repetitions']} repetitions of "
        f"{probe['inference_steps']} forward passes (evaluation mode) and "
        f"{probe['training_steps']} training steps (forward, backward, update) after "
        f"{probe['warm_up_steps']} to warm up, batches of {item.record.job.training.batch_size} "
        "rows; the arms take turns, and ratios are paired within a repetition",
        _MEMORY[item.findings.memory],
    ]


def _place(item: MeasuredCosts) -> list[object]:
    """Data set and backbone, the first cells of a row."""
    return [item.record.dataset, item.record.job.backbone]


def _ms(latencies_ms: Sequence[float]) -> str:
    return f"{median(latencies_ms):.4g}"
