"""Which figures a report has, and in which order."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.identity import canonical_json
from prime_bench.findings import METRIC_LABELS, GradientFindings, Metric, SubgroupFindings
from prime_bench.report.figures.curves import (
    draw_learning_curves,
    draw_load,
    load_curves,
    validation_curve,
)
from prime_bench.report.figures.differences import (
    LARGEST_GROUPS,
    control_bars,
    cost_points,
    draw_controls,
    draw_forest,
    draw_tradeoff,
    forest_rows,
    subgroup_rows,
)
from prime_bench.report.figures.gradients import (
    arm_order,
    draw_competition,
    draw_gap_reduction,
    gap_findings,
)
from prime_bench.report.figures.pairs import (
    draw_paired_dots,
    draw_win_grid,
    paired_runs_of,
    paired_scores,
)
from prime_bench.report.figures.save import NamedFigure
from prime_bench.report.figures.sensitivity import draw_sensitivity, sensitivity_of, shown_keys
from prime_bench.report.figures.style import unique
from prime_bench.report.quantities.choice import Choice
from prime_bench.report.quantities.formulas import difference_text
from prime_bench.report.quantities.grid import Grid, GridBlock
from prime_bench.report.quantities.layout import ArmColumn, arm_label, backbone_label
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.store.record import ProbeRecord

EQUIVALENT_AUC = 0.001
"""A difference of AUC that the literature calls noticeable: the band of the forest plots."""


def figures_of(
    records: ReportRecords, *, baseline: str, arms: Sequence[str] = ()
) -> list[NamedFigure]:
    """Draw every figure that the records suffice for, with `baseline` (an arm) as the reference.

    Figures of single pairs show one arm each: those named in `arms`, or the leading arm. With
    `arms`, the other figures leave the rest out too, and names of files end in the arm's.

    Raises UsageError for a name in `arms` that is not an arm of the records beside the baseline.
    """
    grid = records.grid(baseline=baseline)
    shown = _chosen(grid, records, arms=arms)
    leading = leading_arm(grid)
    single = shown or ([leading] if leading else [])
    figures: list[NamedFigure] = []
    if grid.baseline and single:
        for block in grid.blocks:
            for arm in single:
                own = _pairs(block, grid.baseline, arm, metrics=grid.metrics)
                figures += _named_after(arm if shown else None, own)
            figures += _differences(
                block, grid.baseline, arms=shown or grid.others, metric=grid.metrics[0]
            )
            for arm in single:
                pair = (grid.baseline, arm)
                figures += _named_after(arm if shown else None, _curves(grid, block, arms=pair))
        for arm in shown or grid.others:
            if arm.key.plugin == "prime":
                figures += _controls(records, arm=arm, baseline=baseline)
                break
    figures += _sensitivity(records, arms=arms)
    figures += _gradients(records, baseline=baseline, arms=arms)
    figures += _subgroups(records, baseline=baseline, arms=arms)
    # All figures of a data set together, in the order in which the data sets come.
    order = list(dict.fromkeys(item.data for item in figures))
    return _with_unique_names(sorted(figures, key=lambda item: order.index(item.data)))


def leading_arm(grid: Grid) -> ArmColumn | None:
    """Return the first arm beside the baseline; None if there is none.

    The order is the recipe's, or the catalogue's, which begins with PRIME.
    """
    return next(iter(grid.others), None)


def _chosen(grid: Grid, records: ReportRecords, *, arms: Sequence[str]) -> list[ArmColumn]:
    """The columns of the arms named in `arms`, in that order. Raises UsageError."""
    columns = {arm.name: arm for arm in grid.others}
    measured = {record.arm for record in records.probes} - {grid.baseline_name}
    for name in arms:
        known = sorted(columns.keys() | measured)
        if name not in known:
            raise UsageError(
                f"--arms {name}: no such arm beside {grid.baseline_name}"
                + did_you_mean(name, known),
                hint=f"the report has {', '.join(known)}" if known else "it has no other arm",
            )
    return [columns[name] for name in dict.fromkeys(arms) if name in columns]


def _named_after(arm: ArmColumn | None, figures: Iterable[NamedFigure]) -> Iterator[NamedFigure]:
    """Add the arm to the names, so that the figures of several arms have files of their own."""
    for item in figures:
        yield item if arm is None else replace(item, name=_slug(f"{item.name}-{arm.name}"))


def _pairs(
    block: GridBlock, baseline: ArmColumn, arm: ArmColumn, *, metrics: Sequence[Metric]
) -> Iterator[NamedFigure]:
    """Every pair of one arm with the baseline, by the first metric, and the pairs won by each."""
    names, data = (baseline.name, arm.name), block.layout.label
    scores = {METRIC_LABELS[m]: paired_scores(block, names, metric=m) for m in metrics}
    first, of_first = next(iter(scores.items()))
    if not of_first:
        return
    yield _named(
        f"Every pair of {arm.label} and {baseline.label}",
        data,
        f"pairs-{data}",
        draw_paired_dots(
            of_first, baseline=baseline.label, arm=arm.label, metric_label=f"Test {first}"
        ),
    )
    yield _named(
        f"Pairs won by {arm.label} against {baseline.label}",
        data,
        f"wins-{data}",
        draw_win_grid(scores, seeds=block.layout.seeds, arm=arm.label),
    )


def _differences(
    block: GridBlock, baseline: ArmColumn, *, arms: Sequence[ArmColumn], metric: Metric
) -> Iterator[NamedFigure]:
    """Every arm's differences from the baseline with their intervals, and those of AUC against
    their cost.
    """
    data = block.layout.label
    rows = [
        row
        for arm in arms
        for row in forest_rows(
            paired_scores(block, (baseline.name, arm.name), metric=metric),
            heading=arm.label if len(arms) > 1 else "",
        )
    ]
    if not rows:
        return
    name = "arm" if len(arms) > 1 else arms[0].label
    yield _named(
        "Differences and their intervals",
        data,
        f"forest-{data}",
        draw_forest(
            rows,
            axis_label=f"Test {METRIC_LABELS[metric]}: "
            + difference_text(metric, arm=name, baseline=baseline.label),
            band=EQUIVALENT_AUC if metric == "auc" else None,
            note="Rows: median paired difference; diamond: Hodges-Lehmann estimate over them; its "
            "interval takes them as symmetric.",
        ),
    )
    yield _named(
        "Gain and cost",
        data,
        f"tradeoff-{data}",
        draw_tradeoff(cost_points(block, baseline, arms=arms), baseline=baseline.label),
    )


def _controls(records: ReportRecords, *, arm: ArmColumn, baseline: str) -> Iterator[NamedFigure]:
    """The paper's Figure 4, in which PRIME is the reference."""
    grid = records.grid(baseline=arm.name)
    for block in grid.blocks:
        bars = control_bars(grid, block, baseline=baseline)
        if any(bar.pooled for bar in bars):
            data = block.layout.label
            yield _named(
                "Controls", data, f"controls-{data}", draw_controls(bars, reference=arm.label)
            )


def _curves(
    grid: Grid, block: GridBlock, *, arms: tuple[ArmColumn, ArmColumn]
) -> Iterator[NamedFigure]:
    """Validation AUC of both arms' paired runs by epoch, and the load of the arm's experts."""
    baseline, arm = arms
    data = block.layout.label
    curves = {
        row.label: [
            validation_curve(run, arm=column.label)
            for pair in paired_runs_of(block, row.label, (baseline.name, arm.name))
            for run, column in zip(pair, arms, strict=True)
        ]
        for row in block.layout.rows
    }
    if any(curve.epochs for runs in curves.values() for curve in runs):
        yield _named(
            f"Learning curves of {arm.label} and {baseline.label}",
            data,
            f"curves-{data}",
            draw_learning_curves(
                curves, arms=(baseline.label, arm.label), metric_label="Validation AUC"
            ),
        )
    jobs = block.run_ids(arm.name)
    own = [run for run in grid.records if run.job_id in jobs]
    if loads := load_curves(own):
        yield _named(f"Load over training of {arm.label}", data, f"load-{data}", draw_load(loads))


def _sensitivity(records: ReportRecords, *, arms: Sequence[str]) -> Iterator[NamedFigure]:
    """A figure for each data set and arm that has points of grids to compare."""
    asked = records.recipe.sensitivity if records.recipe else ()
    choices = [choice for choice in records.every_choice if len(choice.tried) > 1]
    groups: dict[tuple[str, str, tuple[str, ...]], list[Choice]] = {}
    for choice in choices:
        if not arms or choice.arm.name in arms:
            keys = tuple(shown_keys(choice, asked))
            groups.setdefault((choice.block.label, choice.arm.name, keys), []).append(choice)
    for (data, _, keys), own in groups.items():
        arm = own[0].arm
        others = unique(key for c in own for key in c.tried[0].values if key not in keys)
        yield _named(
            f"Sensitivity of {arm.label} to {' and '.join(keys)}",
            data,
            f"sensitivity-{data}-{arm.name}",
            draw_sensitivity([sensitivity_of(c, keys) for c in own], keys=keys, others=others),
        )


def _gradients(
    selected: ReportRecords, *, baseline: str, arms: Sequence[str]
) -> Iterator[NamedFigure]:
    """The paper's Figures 1 and 3."""
    for (dataset, _), records in _comparable(selected.probes, GradientFindings).items():
        label = selected.dataset_labels.get(dataset, dataset)
        shown = [item for item in records if not arms or item.arm in (baseline, *arms)]
        findings = gap_findings(shown, baseline=baseline)
        names = arm_order(shown, baseline=baseline)
        of_first = [item for item in findings if item.arm == names[0]]
        if of_first:
            yield _named(
                f"Gradient alignment of {names[0]}",
                label,
                f"competition-{dataset}",
                draw_competition(of_first),
            )
        if len(names) > 1:
            yield _named(
                "Competition gap",
                label,
                f"gap-{dataset}",
                draw_gap_reduction(findings, arms=names),
            )


def _subgroups(
    selected: ReportRecords, *, baseline: str, arms: Sequence[str]
) -> Iterator[NamedFigure]:
    """An arm's differences within the groups of each field, a figure a backbone."""
    for (dataset, _), records in _comparable(selected.probes, SubgroupFindings).items():
        label = selected.dataset_labels.get(dataset, dataset)
        labels = {record.arm: arm_label(record.arm) for record in records}
        # PRIME if it was measured: the recipe's order of arms is not in the records of probes.
        others = sorted(labels.keys() - {baseline}, key=lambda name: (name != "prime", name))
        for arm in [name for name in arms if name in others] if arms else others[:1]:
            for backbone in dict.fromkeys(record.job.backbone for record in records):
                rows = subgroup_rows(records, backbone=backbone, arms=(baseline, arm))
                if rows:
                    on = backbone_label(backbone)
                    names = f"{labels[arm]} \N{MINUS SIGN} {arm_label(baseline)}"
                    yield _named(
                        f"Subgroups, {labels[arm]} on {on}",
                        label,
                        f"subgroups-{label}-{on}{f'-{arm}' if arms else ''}",
                        draw_forest(
                            rows,
                            axis_label=f"AUC within the group: {names}",
                            band=EQUIVALENT_AUC,
                            note=f"The {LARGEST_GROUPS} largest groups of each field.",
                        ),
                    )


def _comparable(
    probes: Iterable[ProbeRecord], kind: type[GradientFindings] | type[SubgroupFindings]
) -> dict[tuple[str, str], list[ProbeRecord]]:
    """Records of one kind by data set and by settings of data, training and probe."""
    groups: dict[tuple[str, str], list[ProbeRecord]] = {}
    for record in sorted(probes, key=lambda record: record.job_id):
        if isinstance(record.findings, kind):
            job = record.job
            settings = [job.fingerprint, job.probe, job.training.plain(), job.numerics]
            groups.setdefault((record.dataset, canonical_json(settings)), []).append(record)
    return groups


def _named(title: str, data: str, name: str, figure: Figure) -> NamedFigure:
    return NamedFigure(name=_slug(name), title=title, data=data, figure=figure)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _with_unique_names(figures: Sequence[NamedFigure]) -> list[NamedFigure]:
    """Number a name that comes again, as where a data set is there in two versions."""
    seen: Counter[str] = Counter()
    unique = []
    for item in figures:
        seen[item.name] += 1
        suffix = f"-{seen[item.name]}" if seen[item.name] > 1 else ""
        unique.append(replace(item, name=item.name + suffix))
    return unique
