"""The numbers of a report in full precision: as one JSON object, and as flat lines for CSV."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prime_bench.report import stats
from prime_bench.report.document import Report
from prime_bench.report.stats import METRICS, Metric
from prime_bench.report.tables import Cell, Comparison, MainTable, Panel, Summary

REPORT_SCHEMA = 1
CSV_COLUMNS = [
    "dataset",
    "data",
    "row",
    "backbone",
    "arm",
    "metric",
    "n",
    "mean",
    "sd",
    "missing_seeds",
    "degenerate_seeds",
    "pairs",
    "delta_mean",
    "delta_median",
    "delta_low",
    "delta_high",
    "wins",
    "ties",
    "losses",
    "sign_p",
    "wilcoxon_p",
    "smallest_p",
]


def report_content(report: Report) -> dict[str, Any]:
    """The report as JSON values. A difference is positive where the arm is better."""
    table = report.table
    return {
        "schema": REPORT_SCHEMA,
        "title": report.title,
        "caption": report.caption,
        "baseline": table.baseline.name if table.baseline else None,
        "arms": [
            {
                "name": arm.name,
                "label": arm.label,
                "plugin": arm.key.plugin,
                "settings": json.loads(arm.key.settings),
            }
            for arm in table.arms
        ],
        "datasets": [_dataset(table, panel) for panel in table.panels],
        "pairs": [pair for panel in table.panels for pair in _pairs(panel)],
        "dropped_pairs": [
            {
                "dataset": dropped.panel.dataset,
                "table": dropped.panel.label,
                "backbone": dropped.row.backbone,
                "row": dropped.row.label,
                "arm": dropped.arm.name,
                "seed": dropped.unpaired.seed,
                "reason": dropped.unpaired.reason,
            }
            for panel in table.panels
            for dropped in panel.dropped
        ],
        "notes": list(report.notes),
    }


def csv_rows(table: MainTable) -> Iterator[dict[str, Any]]:
    """A line a panel, row, arm and metric; the Mean row's lines carry the paired median.

    None becomes an empty field.
    """
    for panel in table.panels:
        data = {"dataset": panel.design.label, "data": panel.design.fingerprint}
        for row in panel.design.rows:
            for arm in table.arms:
                for metric in METRICS:
                    key = (row.label, arm.name, metric)
                    cell = panel.cells[key]
                    line = {
                        "row": row.label,
                        "backbone": row.backbone,
                        "arm": arm.name,
                        "metric": metric,
                        **_cell(cell),
                        "missing_seeds": _words(cell.missing_seeds),
                        "degenerate_seeds": _words(cell.degenerate),
                    }
                    if key in panel.comparisons:
                        line |= _flat(_comparison(panel.comparisons[key]))
                    yield {**data, **{name: line.get(name) for name in CSV_COLUMNS[2:]}}
        for (name, metric), summary in panel.summaries.items():
            yield {**data, **_mean_line(name, metric, summary, panel=panel)}


def _dataset(table: MainTable, panel: Panel) -> dict[str, Any]:
    design = panel.design
    return {
        "label": design.label,
        "dataset": design.dataset,
        "variant": design.variant,
        "fingerprint": design.fingerprint,
        "training": design.training,
        "seeds": list(design.seeds),
        "rows": [
            {
                "label": row.label,
                "backbone": row.backbone,
                "settings": json.loads(row.place.backbone_settings) if row.place else None,
                "cells": [
                    _cell_content(panel, row.label, arm.name, metric)
                    for arm in table.arms
                    for metric in METRICS
                ],
            }
            for row in design.rows
        ],
        "mean_rows": list(panel.mean_rows),
        "summaries": [
            {"arm": name, "metric": metric, **_summary(summary)}
            for (name, metric), summary in panel.summaries.items()
        ],
    }


def _cell_content(panel: Panel, row: str, arm: str, metric: Metric) -> dict[str, Any]:
    comparison = panel.comparisons.get((row, arm, metric))
    return {
        "arm": arm,
        "metric": metric,
        **_cell(panel.cells[row, arm, metric]),
        "delta": _comparison(comparison) if comparison and comparison.seeds else None,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "n": cell.moments.n if cell.moments else 0,
        "mean": cell.moments.mean if cell.moments else None,
        "sd": cell.moments.sd if cell.moments else None,
        "missing_seeds": list(cell.missing_seeds),
        "degenerate": {str(seed): reason for seed, reason in cell.degenerate.items()},
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    differences = comparison.differences
    return {
        "seeds": list(comparison.seeds),
        "differences": list(differences),
        "mean": comparison.mean,
        "median": comparison.median,
        "low": min(differences, default=None),
        "high": max(differences, default=None),
        **_tests(differences),
    }


def _summary(summary: Summary) -> dict[str, Any]:
    medians = summary.backbone_medians
    return {
        "n": summary.mean.n if summary.mean else 0,
        "mean": summary.mean.mean if summary.mean else None,
        "sd": summary.mean.sd if summary.mean else None,
        "delta": summary.delta,
        "paired_median": summary.paired_median,
        "pairs": len(summary.differences),
        "pairs_won": summary.tally.wins,
        "pairs_tied": summary.tally.ties,
        "backbones_compared": summary.backbones_compared,
        "backbones_won": summary.backbones_won,
        # Pairs of one backbone are a cluster: tests are over backbones, never over pooled pairs.
        "over_backbone_medians": {
            "hodges_lehmann": stats.hodges_lehmann(medians),
            **_tests(medians),
        }
        if medians
        else None,
    }


def _tests(differences: Sequence[float]) -> dict[str, Any]:
    tally = stats.tally(differences)
    return {
        "wins": tally.wins,
        "ties": tally.ties,
        "losses": tally.losses,
        "sign_p": stats.sign_test(differences),
        "wilcoxon_p": stats.wilcoxon(differences),
        "smallest_p": stats.smallest_p(differences),
    }


def _pairs(panel: Panel) -> Iterator[dict[str, Any]]:
    for pair in panel.pairs:
        yield {
            "dataset": panel.design.dataset,
            "table": panel.design.label,
            "backbone": pair.row.backbone,
            "row": pair.row.label,
            "seed": pair.seed,
            "arms": {
                name: {
                    "test_auc": run.result.test.auc,
                    "test_logloss": run.result.test.logloss,
                    "degenerate": run.result.degenerate,
                    "job_id": run.job_id,
                }
                for name, run in pair.runs.items()
            },
        }


def _flat(comparison: dict[str, Any]) -> dict[str, Any]:
    own = {name: comparison[name] for name in CSV_COLUMNS if name in comparison}
    del own["mean"]
    places = {f"delta_{name}": comparison[name] for name in ("mean", "median", "low", "high")}
    return {**own, **places, "pairs": len(comparison["seeds"])}


def _mean_line(arm: str, metric: Metric, summary: Summary, *, panel: Panel) -> dict[str, Any]:
    line = {
        "row": "Mean",
        "arm": arm,
        "metric": metric,
        "n": len(panel.mean_rows),
        "mean": summary.mean.mean if summary.mean else None,
        "sd": summary.mean.sd if summary.mean else None,
    }
    if summary.differences:
        line |= {
            "pairs": len(summary.differences),
            "delta_mean": summary.delta,
            "delta_median": summary.paired_median,
            "delta_low": min(summary.differences),
            "delta_high": max(summary.differences),
            "wins": summary.tally.wins,
            "ties": summary.tally.ties,
            "losses": summary.tally.losses,
        }
    return {name: line.get(name) for name in CSV_COLUMNS[2:]}


def _words(values: Iterable[int]) -> str:
    return " ".join(str(value) for value in values)
