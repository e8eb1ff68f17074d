"""What jobs that measure trained models found, as what figures are drawn from."""

from collections.abc import Iterable, Sequence

from prime_bench.base.identity import canonical_json
from prime_bench.catalog import PLUGINS
from prime_bench.findings import GradientFindings, SubgroupFindings, SubgroupScore
from prime_bench.report.figures.forest import ForestRow
from prime_bench.report.figures.inputs import GapFinding
from prime_bench.report.figures.pairs import spread_row
from prime_bench.report.quantities.design import arm_label, backbone_label, catalogue_rank
from prime_bench.report.quantities.gaps import field_gaps
from prime_bench.store.record import ProbeRecord

LARGEST_GROUPS = 8
"""Groups of a field that a figure shows: more have no room, and tables have all."""


def alike(
    probes: Iterable[ProbeRecord], kind: type[GradientFindings] | type[SubgroupFindings]
) -> dict[tuple[str, str], list[ProbeRecord]]:
    """Records of one kind by data set and by what may be compared: data and probe settings."""
    groups: dict[tuple[str, str], list[ProbeRecord]] = {}
    for record in sorted(probes, key=lambda record: record.job_id):
        if isinstance(record.findings, kind):
            job = record.job
            shared = [job.fingerprint, job.probe, job.training.plain(), job.numerics]
            groups.setdefault((record.dataset, canonical_json(shared)), []).append(record)
    return groups


def gap_findings(records: Sequence[ProbeRecord], *, baseline: str) -> list[GapFinding]:
    """Gaps over whole blocks; `baseline` is an arm's name.

    What was measured on other rows than the baseline's of its backbone and seed cannot be compared
    and is left out.
    """
    gaps = sorted(field_gaps(records), key=lambda gap: catalogue_rank(gap.backbone))
    rows = {(gap.backbone, gap.seed): gap.rows for gap in gaps if gap.arm == baseline}
    return [
        GapFinding(
            backbone=backbone_label(gap.backbone),
            arm=arm_label(gap.arm),
            seed=gap.seed,
            field=gap.field,
            semantic=gap.semantic,
            matched=gap.random,
        )
        for gap in gaps
        if rows.get((gap.backbone, gap.seed), gap.rows) == gap.rows
    ]


def arm_order(records: Sequence[ProbeRecord], *, baseline: str) -> list[str]:
    """Printed names of the arms: the baseline first, PRIME last, the catalogue's order between."""
    order = list(PLUGINS)

    def rank(record: ProbeRecord) -> tuple[bool, bool, int, str]:
        plugin = record.job.plugin
        place = order.index(plugin) if plugin in order else len(order)
        return plugin != baseline, plugin == "prime", place, record.arm

    return list(dict.fromkeys(arm_label(record.arm) for record in sorted(records, key=rank)))


def subgroup_rows(
    records: Sequence[ProbeRecord], *, backbone: str, arms: tuple[str, str]
) -> list[ForestRow]:
    """Median paired difference of AUC in each group of one backbone, under its field's heading.

    `arms` are plug-ins' names, the baseline first. Each field's largest groups come first.
    """
    scores: dict[tuple[str, str], dict[tuple[str, int], SubgroupScore]] = {}
    for record in records:
        if record.job.backbone != backbone or not isinstance(record.findings, SubgroupFindings):
            continue
        overall = ("", "All rows")
        key = (record.job.plugin, record.job.seed)
        scores.setdefault(overall, {})[key] = record.findings.overall
        for field in record.findings.fields:
            for group in field.groups:
                scores.setdefault((field.field, group.size.name), {})[key] = group
    rows = []
    for heading in dict.fromkeys(heading for heading, _ in scores):
        addresses = [address for address in scores if address[0] == heading]
        addresses.sort(key=lambda address: -_rows(scores[address].values()))
        for address in addresses[:LARGEST_GROUPS]:
            differences = _paired_auc(scores[address], arms)
            if differences:
                rows.append(spread_row(differences, label=address[1], heading=heading))
    return rows


def _paired_auc(scores: dict[tuple[str, int], SubgroupScore], arms: tuple[str, str]) -> list[float]:
    differences = []
    for seed in sorted({seed for _, seed in scores}):
        left, right = (scores.get((arm, seed)) for arm in arms)
        if left and right and left.auc is not None and right.auc is not None:
            differences.append(right.auc - left.auc)
    return differences


def _rows(scores: Iterable[SubgroupScore]) -> int:
    """Rows of a group: the same in every arm that may be compared."""
    return max(score.size.rows for score in scores)
