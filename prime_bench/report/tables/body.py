"""What builders of tables have in common: the body of a table, groups of probes, notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prime_bench.base.identity import canonical_json
from prime_bench.base.words import counted
from prime_bench.findings import METRIC_LABELS
from prime_bench.report.quantities.formulas import difference_text
from prime_bench.report.quantities.grid import Grid, GridBlock
from prime_bench.report.quantities.layout import ArmColumn
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.tables.choices import choice_notes
from prime_bench.report.tables.definition import TableDefinition
from prime_bench.report.tables.model import Block, TableNote, note, series
from prime_bench.report.tables.notes import collect_notes, data_notes, dirty_notes
from prime_bench.store.record import ProbeRecord, RunRecord

BOLD_DIFFERENCES = "Δ above zero before rounding, which favours the arm; not the best of a row"
"""What bold cells of a table of differences have in common."""


@dataclass(frozen=True, kw_only=True)
class TableBody:
    """A table before its title, caption and provenance are added."""

    blocks: Sequence[Block]
    notes: Sequence[TableNote]
    records: Sequence[RunRecord | ProbeRecord]
    """Records that the blocks are computed from."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Variables of the caption."""
    bold: str = ""
    """What bold cells have in common; said where there is one."""
    mixed_pairs: int = 0
    """Pairs of runs that may not be compared and are, because it was asked for."""


def keyed_blocks(grid: Grid) -> list[tuple[str, GridBlock]]:
    """Return each block with a unique key: its data set, numbered where it has several versions."""
    datasets = [block.layout.dataset for block in grid.blocks]
    keyed = []
    for index, (dataset, block) in enumerate(zip(datasets, grid.blocks, strict=True)):
        number = datasets[: index + 1].count(dataset)
        keyed.append((f"{dataset}#{number}" if datasets.count(dataset) > 1 else dataset, block))
    return keyed


def grid_body(
    records: ReportRecords,
    grid: Grid,
    *,
    blocks: Sequence[Block],
    definition: TableDefinition,
    notes: Sequence[TableNote] = (),
    probes: Sequence[ProbeRecord] = (),
    bold: str = BOLD_DIFFERENCES,
    means: str = "",
) -> TableBody:
    """Return the body of a table that is computed from a grid; `notes` come before its own.

    `means` says which backbones the table's means leave out, `{}`; empty where it has no means.
    """
    sound = records.grid(baseline=grid.baseline_name, split=grid.split, sound=True)
    own = collect_notes(
        grid,
        sound=sound,
        outdated=records.outdated,
        recipe_notes=records.recipe.notes if records.recipe else (),
        decimals=definition.decimals,
        means=means,
    )
    backbones = [block.mean_rows if means else block.layout.rows for block in grid.blocks]
    return TableBody(
        blocks=blocks,
        notes=[*notes, *choice_notes(records.choices, grid), *own],
        records=[*grid.records, *probes],
        bold=bold,
        mixed_pairs=sum(len(block.mixed) for block in grid.blocks),
        words={
            "datasets": series([block.layout.label for block in grid.blocks]),
            "baseline": grid.baseline.label if grid.baseline else "",
            "arms": series([arm.label for arm in grid.arms]),
            "seeds": _counted([len(block.layout.seeds) for block in grid.blocks], "seed"),
            "backbones": _counted([len(rows) for rows in backbones], "backbone"),
            "differences": _differences(grid),
        },
    )


def _differences(grid: Grid) -> str:
    """`arm - Dense for AUC and Dense - arm for LogLoss`; empty without a baseline."""
    if grid.baseline is None:
        return ""
    found: dict[str, list[str]] = {}
    for metric in grid.metrics:
        text = difference_text(metric, arm="arm", baseline=grid.baseline.label)
        found.setdefault(text, []).append(METRIC_LABELS[metric])
    return series([f"{text} for {series(labels)}" for text, labels in found.items()])


def arms_named(grid: Grid, names: Sequence[str]) -> list[ArmColumn]:
    """Return the arms of these names in their order, without those that the grid does not have."""
    known = {arm.name: arm for arm in grid.arms}
    return [known[name] for name in names if name in known]


def covering(text: str, n: int, of: int) -> str:
    """Return a row's name, with the number of backbones where it does not cover all of them."""
    return f"{text} ({n} of {of} backbones)" if 0 < n < of else text


def absent_note(grid: Grid, names: Sequence[str]) -> list[TableNote]:
    """Note the arms that the definition names and these jobs do not have."""
    known = {arm.name for arm in grid.arms}
    absent = [name for name in names if name not in known]
    return [note("absent", f"Not among these jobs: {', '.join(absent)}")] if absent else []


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Records of probes on one version of one data set under one training protocol."""

    key: str
    """Unique in a table: the data set, numbered where it has several versions."""
    label: str
    records: Sequence[ProbeRecord]


def measurements(
    records: Sequence[ProbeRecord], *, labels: Mapping[str, str]
) -> list[Measurements]:
    """Group records of probes by data set, version of the data and training protocol.

    `labels` has the printed names of data sets.
    """
    found: dict[tuple[str, str, str], list[ProbeRecord]] = {}
    for record in records:
        training = canonical_json(record.job.training.plain())
        key = (record.dataset, record.job.fingerprint, training)
        found.setdefault(key, []).append(record)
    groups: list[Measurements] = []
    for dataset, fingerprint, training in sorted(found):
        twins = [key for key in sorted(found) if key[0] == dataset]
        number = twins.index((dataset, fingerprint, training)) + 1
        several = len(twins) > 1
        label = labels.get(dataset, dataset)
        groups.append(
            Measurements(
                key=f"{dataset}#{number}" if several else dataset,
                label=f"{label} ({number}, data {fingerprint[:8]})" if several else label,
                records=found[dataset, fingerprint, training],
            )
        )
    return groups


def probe_notes(
    records: Sequence[ProbeRecord], *, noun: str, labels: Mapping[str, str]
) -> list[TableNote]:
    """Return the notes that every table of probes has.

    `noun` names what was measured; `labels` has the printed names of data sets.
    """
    if not records:
        return [note("missing", f"No {noun} among the records")]
    seeds = counted(len({record.job.seed for record in records}), "seed")
    notes = [note("measurement", f"n = {counted(len(records), 'job')}, {seeds}")]
    for dataset in sorted({record.dataset for record in records}):
        own = [record for record in records if record.dataset == dataset]
        label = labels.get(dataset, dataset)
        notes += [note("data", f"{label}: {text}") for text in data_notes(own)]
    devices = sorted({record.environment.device for record in records})
    if len(devices) > 1:
        text = f"The records come from {len(devices)} devices: {', '.join(devices)}"
        notes.append(note("origin", text))
    return [*notes, *dirty_notes(records)]


def _counted(numbers: Sequence[int], noun: str) -> str:
    """`5 seeds`, `3 to 5 seeds`, `1 seed`."""
    return counted(min(numbers, default=0), noun, most=max(numbers, default=0))
