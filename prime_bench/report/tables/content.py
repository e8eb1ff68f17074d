"""What a builder hands back; title, caption and provenance are added to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prime_bench.report.design import PanelDesign
from prime_bench.report.table import Block
from prime_bench.store.record import ProbeRecord, RunRecord


@dataclass(frozen=True, kw_only=True)
class Content:
    """Blocks, notes, and what the caption may name."""

    blocks: Sequence[Block]
    notes: Sequence[str]
    records: Sequence[RunRecord | ProbeRecord]
    """What the blocks were computed from."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The caption's variables."""


def block_keys(panels: Sequence[PanelDesign]) -> list[str]:
    """A unique key a panel: its data set, numbered where there are several versions of it."""
    keys: list[str] = []
    for panel in panels:
        twins = sum(other.dataset == panel.dataset for other in panels)
        before = sum(key.partition("#")[0] == panel.dataset for key in keys)
        keys.append(f"{panel.dataset}#{before + 1}" if twins > 1 else panel.dataset)
    return keys


def counted(numbers: Sequence[int], noun: str) -> str:
    """`5 seeds`, `3 to 5 seeds`, `1 seed`."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    count = str(low) if low == high else f"{low} to {high}"
    return f"{count} {noun}" if high == 1 else f"{count} {noun}s"
