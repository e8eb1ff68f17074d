"""Every figure that the evidence can fill, in the order of the report."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from prime_bench.findings import GradientFindings, SubgroupFindings
from prime_bench.report.figures.competition import draw_competition
from prime_bench.report.figures.controls import draw_controls
from prime_bench.report.figures.findings import (
    LARGEST_GROUPS,
    alike,
    arm_order,
    gap_findings,
    subgroup_rows,
)
from prime_bench.report.figures.forest import draw_forest
from prime_bench.report.figures.gap_reduction import draw_gap_reduction
from prime_bench.report.figures.histories import load_curves, validation_curve
from prime_bench.report.figures.learning_curves import draw_learning_curves
from prime_bench.report.figures.load import draw_load
from prime_bench.report.figures.paired_dots import draw_paired_dots
from prime_bench.report.figures.pairs import (
    control_bars,
    cost_points,
    forest_rows,
    leading_arm,
    paired_scores,
    runs_of,
)
from prime_bench.report.figures.save import save_figure
from prime_bench.report.figures.tradeoff import draw_tradeoff
from prime_bench.report.figures.win_grid import draw_win_grid
from prime_bench.report.quantities.design import ArmColumn, backbone_label
from prime_bench.report.quantities.grid import Grid, Panel
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.tables.definition import dataset_labels
from prime_bench.store.pairing import arm_key, comparison_key

EQUIVALENT_AUC = 0.001
"""A difference of AUC that the literature calls noticeable: the band of the forest plots."""


@dataclass(frozen=True, kw_only=True)
class NamedFigure:
    """A figure, what its files are called, and what stands above it in a page."""

    name: str
    title: str
    figure: Figure


def write_figures(figures: Sequence[NamedFigure], folder: Path) -> list[Path]:
    """Write each as SVG, PDF and PNG; the paths written. Raises EnvironmentFault."""
    return [path for item in figures for path in save_figure(item.figure, folder, name=item.name)]


def figures_of(evidence: Evidence, *, baseline: str) -> list[NamedFigure]:
    """Draw them; a figure without anything to show is left out."""
    grid = evidence.grid(baseline=baseline)
    arm = leading_arm(grid)
    figures: list[NamedFigure] = []
    if grid.baseline and arm:
        for panel in grid.panels:
            figures += _of_pairs(panel, grid.baseline, arm=arm)
            figures += _over_arms(panel, grid.baseline, arms=grid.others)
            figures += _of_histories(grid, panel, arms=(grid.baseline, arm))
        if arm.key.plugin == "prime":
            figures += _of_controls(evidence, arm=arm, baseline=baseline)
    figures += _of_gradients(evidence, baseline=baseline)
    figures += _of_subgroups(evidence, baseline=baseline)
    return _numbered(figures)


def _of_pairs(panel: Panel, baseline: ArmColumn, *, arm: ArmColumn) -> Iterator[NamedFigure]:
    """One arm's pairs, one by one."""
    names, place = (baseline.name, arm.name), panel.design.label
    cells = paired_scores(panel, names, metric="auc")
    if not cells:
        return
    yield _named(
        f"Every pair, {place}",
        f"pairs-{place}",
        draw_paired_dots(cells, baseline=baseline.label, arm=arm.label, metric_label="Test AUC"),
    )
    losses = paired_scores(panel, names, metric="logloss")
    yield _named(
        f"Pairs won, {place}",
        f"wins-{place}",
        draw_win_grid({"AUC": cells, "LogLoss": losses}, seeds=panel.design.seeds),
    )


def _over_arms(
    panel: Panel, baseline: ArmColumn, *, arms: Sequence[ArmColumn]
) -> Iterator[NamedFigure]:
    """All arms against the baseline, in sum and against their cost."""
    place = panel.design.label
    rows = [
        row
        for arm in arms
        for row in forest_rows(
            paired_scores(panel, (baseline.name, arm.name), metric="auc"),
            heading=arm.label if len(arms) > 1 else "",
        )
    ]
    if not rows:
        return
    name = "arm" if len(arms) > 1 else arms[0].label
    yield _named(
        f"Differences and their intervals, {place}",
        f"forest-{place}",
        draw_forest(
            rows,
            axis_label=f"Test AUC: {name} \N{MINUS SIGN} {baseline.label}",
            band=EQUIVALENT_AUC,
            note="Rows: median paired difference; diamond: Hodges-Lehmann estimate over them.",
        ),
    )
    yield _named(
        f"Gain and cost, {place}",
        f"tradeoff-{place}",
        draw_tradeoff(cost_points(panel, baseline, arms=arms), baseline=baseline.label),
    )


def _of_controls(evidence: Evidence, *, arm: ArmColumn, baseline: str) -> Iterator[NamedFigure]:
    """The paper's Figure 4: PRIME in the baseline's place."""
    grid = evidence.grid(baseline=arm.name)
    for panel in grid.panels:
        bars = control_bars(grid, panel, baseline=baseline)
        if any(bar.pooled for bar in bars):
            place = panel.design.label
            yield _named(
                f"Controls, {place}", f"controls-{place}", draw_controls(bars, reference=arm.label)
            )


def _of_histories(
    grid: Grid, panel: Panel, *, arms: tuple[ArmColumn, ArmColumn]
) -> Iterator[NamedFigure]:
    """What both arms' runs, and the arm's routers, did while they trained."""
    baseline, arm = arms
    place = panel.design.label
    curves = {
        row.label: [
            validation_curve(run, arm=column.label)
            for pair in runs_of(panel, row.label, (baseline.name, arm.name))
            for run, column in zip(pair, arms, strict=True)
        ]
        for row in panel.design.rows
    }
    if any(curve.epochs for runs in curves.values() for curve in runs):
        yield _named(
            f"Learning curves, {place}",
            f"curves-{place}",
            draw_learning_curves(
                curves, arms=(baseline.label, arm.label), metric_label="Validation AUC"
            ),
        )
    places = [row.comparison for row in panel.design.rows]
    own = [run for run in grid.records if comparison_key(run) in places and arm_key(run) == arm.key]
    if loads := load_curves(own):
        yield _named(f"Load over training, {place}", f"load-{place}", draw_load(loads))


def _of_gradients(evidence: Evidence, *, baseline: str) -> Iterator[NamedFigure]:
    """The paper's Figures 1 and 3."""
    labels = dataset_labels()
    for (dataset, _), records in alike(evidence.probes, GradientFindings).items():
        label = labels.get(dataset, dataset)
        findings = gap_findings(records, baseline=baseline)
        arms = arm_order(records, baseline=baseline)
        own = [item for item in findings if item.arm == arms[0]]
        if own:
            yield _named(
                f"Gradient alignment of {arms[0]}, {label}",
                f"competition-{dataset}",
                draw_competition(own),
            )
        if len(arms) > 1:
            yield _named(
                f"Competition gap, {label}",
                f"gap-{dataset}",
                draw_gap_reduction(findings, arms=arms),
            )


def _of_subgroups(evidence: Evidence, *, baseline: str) -> Iterator[NamedFigure]:
    labels = dataset_labels()
    for (dataset, _), records in alike(evidence.probes, SubgroupFindings).items():
        plugins = [record.job.plugin for record in records]
        if baseline not in plugins or "prime" not in plugins:
            continue
        for backbone in dict.fromkeys(record.job.backbone for record in records):
            rows = subgroup_rows(records, backbone=backbone, arms=(baseline, "prime"))
            if rows:
                place = f"{labels.get(dataset, dataset)}, {backbone_label(backbone)}"
                yield _named(
                    f"Subgroups, {place}",
                    f"subgroups-{place}",
                    draw_forest(
                        rows,
                        axis_label="AUC within the group: PRIME \N{MINUS SIGN} Dense",
                        band=EQUIVALENT_AUC,
                        note=f"The {LARGEST_GROUPS} largest groups of each field.",
                    ),
                )


def _named(title: str, name: str, figure: Figure) -> NamedFigure:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return NamedFigure(name=slug, title=title, figure=figure)


def _numbered(figures: Sequence[NamedFigure]) -> list[NamedFigure]:
    """Names that come again get a number: two versions of one data set have one label."""
    seen: Counter[str] = Counter()
    unique = []
    for item in figures:
        seen[item.name] += 1
        suffix = f"-{seen[item.name]}" if seen[item.name] > 1 else ""
        unique.append(replace(item, name=item.name + suffix))
    return unique
