"""What routers do on rows that they were not trained on, a row a backbone (paper, supplement)."""

from collections.abc import Iterator, Sequence

from prime_bench.findings import RoutingFindings
from prime_bench.report.quantities.formulas import SPLIT_LABELS, moments
from prime_bench.report.quantities.layout import arm_label, backbone_label, catalogue_rank
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.values import Level, count
from prime_bench.report.tables.body import TableBody, measurements, probe_notes
from prime_bench.report.tables.definition import RoutingDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Row, series, shown, words
from prime_bench.store.record import ProbeRecord

_MEASURES = (
    ("normalised_entropy", "Normalised entropy"),
    ("effective_experts", "Effective experts"),
    ("largest_load", "Max mean load"),
)


def build(records: ReportRecords, definition: RoutingDefinition) -> TableBody:
    """Build the table: mean and SD over runs, on each backbone and over all."""
    probes = records.probes_of("routing")
    groups = measurements(probes, labels=records.dataset_labels)
    arms = sorted({record.arm for record in probes})
    blocks = [
        Block(
            key=f"{group.key}.{arm}" if len(arms) > 1 else group.key,
            label=f"{group.label}, {arm_label(arm)}" if len(arms) > 1 else group.label,
            columns=tuple(_columns()),
            rows=tuple(_rows([r for r in group.records if r.arm == arm], definition)),
        )
        for group in groups
        for arm in arms
        if any(record.arm == arm for record in group.records)
    ]
    splits = {r.findings.split for r in probes if isinstance(r.findings, RoutingFindings)}
    return TableBody(
        blocks=blocks,
        notes=probe_notes(probes, noun="routing probe", labels=records.dataset_labels),
        records=probes,
        words={
            "datasets": series([group.label for group in groups]),
            "split": series(sorted(SPLIT_LABELS[split] for split in splits)),
        },
    )


def _columns() -> Iterator[Column]:
    yield Column(key="backbone", label="Backbone", kind="words")
    yield Column(key="runs", label="Runs", kind="count")
    for key, label in _MEASURES:
        yield Column(key=key, label=label, kind="number")


def _rows(records: Sequence[ProbeRecord], definition: RoutingDefinition) -> Iterator[Row]:
    names = sorted({record.job.backbone for record in records}, key=catalogue_rank)
    for name in names:
        own = [record for record in records if record.job.backbone == name]
        cells = _cells(own, definition.decimals)
        yield Row(key=name, cells=(words(backbone_label(name)), *cells))
    yield Row(
        key="all", cells=(words("All runs"), *_cells(records, definition.decimals)), ruled=True
    )


def _cells(records: Sequence[ProbeRecord], decimals: int) -> Iterator[Cell]:
    jobs = tuple(record.job_id for record in records)
    yield shown(count(len(records), jobs=jobs), decimals)
    findings = [r.findings for r in records if isinstance(r.findings, RoutingFindings)]
    for key, _ in _MEASURES:
        found = moments([getattr(finding, key) for finding in findings])
        level = Level(value=found.mean, sd=found.sd, noise=found.noise, jobs=jobs)
        yield shown(level, decimals)
