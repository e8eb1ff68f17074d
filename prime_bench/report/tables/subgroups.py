"""Scores and calibration of an arm and the baseline in every semantic group."""

from collections.abc import Iterator, Sequence
from statistics import mean, stdev

from prime_bench.findings import SubgroupFindings, SubgroupScore
from prime_bench.report.quantities.formulas import t_interval
from prime_bench.report.quantities.layout import arm_label, backbone_label, catalogue_rank
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.values import MISSING, Better, Difference, Level, count
from prime_bench.report.tables.body import TableBody, measurements, probe_notes
from prime_bench.report.tables.definition import SubgroupsDefinition
from prime_bench.report.tables.model import Block, Column, Row, series, shown, words
from prime_bench.store.record import ProbeRecord

_SCORES: tuple[tuple[str, str, Better], ...] = (
    ("auc", "AUC", "higher"),
    ("logloss", "LogLoss", "lower"),
    ("calibration_error", "Calibration error", "lower"),
)
ScoresBySeed = dict[int, tuple[SubgroupScore, SubgroupScore, tuple[str, str]]]
"""Seed -> the baseline's and the arm's score of one group, and the ids of the two jobs."""


def build(records: ReportRecords, definition: SubgroupsDefinition) -> TableBody:
    """Build a block for each backbone and field, over the seeds that both arms have."""
    probes = records.probes_of("subgroups")
    groups = measurements(probes, labels=records.dataset_labels)
    blocks = [
        block
        for group in groups
        for backbone in sorted({r.job.backbone for r in group.records}, key=catalogue_rank)
        for block in _blocks(
            [record for record in group.records if record.job.backbone == backbone],
            definition,
            key=f"{group.key}.{backbone}",
            label=f"{backbone_label(backbone)}, {group.label}",
        )
    ]
    return TableBody(
        blocks=blocks,
        notes=probe_notes(probes, noun="subgroup report", labels=records.dataset_labels),
        records=probes,
        bold=f"Δ where {arm_label(definition.arm)} is better, which for LogLoss and calibration "
        "error is below zero",
        words={"datasets": series([group.label for group in groups])},
    )


def _blocks(
    records: Sequence[ProbeRecord], definition: SubgroupsDefinition, *, key: str, label: str
) -> Iterator[Block]:
    groups = _paired(records, definition)
    for field in dict.fromkeys(field for field, _ in groups):
        rows = tuple(
            _row(name, seeds, definition.decimals)
            for (own, name), seeds in groups.items()
            if own == field
        )
        yield Block(
            key=f"{key}.{field}",
            label=f"{label}, {field}",
            columns=tuple(_columns(definition)),
            rows=rows,
        )


def _paired(
    records: Sequence[ProbeRecord], definition: SubgroupsDefinition
) -> dict[tuple[str, str], ScoresBySeed]:
    """Field and group -> scores of both arms by seed; the group of all rows comes first."""
    scores: dict[tuple[str, str], dict[int, dict[str, tuple[SubgroupScore, str]]]] = {}
    for record in records:
        findings = record.findings
        if not isinstance(findings, SubgroupFindings):
            continue
        own = [("all rows", findings.overall)]
        own += [(field.field, score) for field in findings.fields for score in field.groups]
        for field, score in own:
            by_seed = scores.setdefault((field, score.size.name), {})
            by_seed.setdefault(record.job.seed, {})[record.arm] = (score, record.job_id)
    wanted = (definition.baseline, definition.arm)
    return {
        place: {
            seed: (arms[wanted[0]][0], arms[wanted[1]][0], (arms[wanted[0]][1], arms[wanted[1]][1]))
            for seed, arms in sorted(by_seed.items())
            if all(arm in arms for arm in wanted)
        }
        for place, by_seed in scores.items()
    }


def _columns(definition: SubgroupsDefinition) -> Iterator[Column]:
    yield Column(key="group", label="Group", kind="words")
    yield Column(key="rows", label="Rows", kind="count")
    yield Column(key="click_rate", label="Click rate", kind="number")
    for key, label, better in _SCORES:
        yield Column(
            key=f"{key}.{definition.baseline}",
            label=arm_label(definition.baseline),
            kind="number",
            group=label,
            better=better,
        )
        yield Column(
            key=f"{key}.delta",
            label="Δ",
            kind="change",
            group=label,
            better=better,
        )


def _row(name: str, seeds: ScoresBySeed, decimals: int) -> Row:
    jobs = tuple(job for _, _, both in seeds.values() for job in both)
    first = next((baseline for baseline, _, _ in seeds.values()), None)
    rate = Level(value=first.click_rate if first else None, jobs=jobs)
    cells = [
        words(name),
        shown(count(first.size.rows) if first else MISSING, decimals),
        shown(rate, decimals),
    ]
    for key, _, better in _SCORES:
        scores = [(getattr(a, key), getattr(b, key)) for a, b, _ in seeds.values()]
        whole = [(a, b) for a, b in scores if a is not None and b is not None]
        differences = [b - a for a, b in whole]
        level = Level(value=mean(a for a, _ in whole) if whole else None, jobs=jobs)
        difference = Difference(
            value=mean(differences) if differences else None,
            sd=stdev(differences) if len(differences) > 1 else None,
            n=len(whole),
            interval=t_interval(differences),
            better=better,
            jobs=jobs,
        )
        cells += [shown(level, decimals), shown(difference, decimals)]
    return Row(key=name, cells=tuple(cells))
