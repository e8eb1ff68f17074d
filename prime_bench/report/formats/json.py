"""JSON: every table with its printed digits, numbers in full precision, and provenance."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from pydantic import JsonValue

from prime_bench.base.characters import visible_json
from prime_bench.report.formats.cells import note_text, printed
from prime_bench.report.quantities.grid import GridBlock
from prime_bench.report.tables.model import Cell, Report, Table
from prime_bench.store.record import RunRecord

REPORT_SCHEMA = 2


def render(report: Report) -> str:
    """Return the report as one JSON object, ending in a newline."""
    text = json.dumps(content(report), indent=2, ensure_ascii=False, allow_nan=False)
    return visible_json(text) + "\n"


def content(report: Report) -> dict[str, JsonValue]:
    """Return the report as JSON values."""
    return {
        "schema": REPORT_SCHEMA,
        "title": report.title,
        "pairs": [pair for block in report.blocks for pair in _pairs(block)],
        "dropped_pairs": [pair for block in report.blocks for pair in _dropped(block)],
        "runs": [_run(record) for record in report.records if isinstance(record, RunRecord)],
        "tables": [_table(table) for table in report.tables],
    }


def _table(table: Table) -> dict[str, JsonValue]:
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "blocks": [
            {
                "key": block.key,
                "label": block.label,
                "columns": [asdict(column) for column in block.columns],
                "rows": [
                    {
                        "key": row.key,
                        "cells": {
                            column.key: _cell(cell)
                            for column, cell in zip(block.columns, row.cells, strict=True)
                        },
                    }
                    for row in block.rows
                ],
            }
            for block in table.blocks
        ],
        "notes": [note_text(note) for note in table.notes],
        "provenance": asdict(table.provenance),
    }


def _cell(cell: Cell) -> dict[str, JsonValue]:
    text, quantity = printed(cell), cell.quantity
    return {
        "text": text.text,
        "value": quantity.value,
        "sd": quantity.sd,
        "noise": None if quantity.noise is None else quantity.noise.error,
        "remark": text.remark,
        "aside": text.aside,
        "bold": text.bold,
        "flagged": text.dagger,
        "jobs": list(quantity.jobs),
    }


def _run(record: RunRecord) -> dict[str, JsonValue]:
    """A run behind the tables: every metric of both splits, and how it was trained."""
    result = record.result
    return {
        "job_id": record.job_id,
        "dataset": record.dataset,
        "backbone": record.job.backbone,
        "arm": record.arm,
        "seed": record.job.seed,
        **{split: score.plain() for split, score in result.scores.items()},
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "stopped": result.stopped,
        "degenerate": record.degenerate,
        "wall_s": record.wall_s,
        "epoch_s": record.epoch_s,
    }


def _pairs(block: GridBlock) -> Iterator[dict[str, JsonValue]]:
    for pair in block.pairs:
        yield {
            "dataset": block.layout.dataset,
            "table": block.layout.label,
            "backbone": pair.row.backbone,
            "row": pair.row.label,
            "seed": pair.seed,
            "arms": {
                name: {
                    "test_auc": run.result.test.auc,
                    "test_logloss": run.result.test.logloss,
                    "degenerate": run.degenerate,
                    "job_id": run.job_id,
                }
                for name, run in pair.runs.items()
            },
        }


def _dropped(block: GridBlock) -> Iterator[dict[str, JsonValue]]:
    for dropped in block.dropped:
        yield {
            "dataset": dropped.block.dataset,
            "table": dropped.block.label,
            "backbone": dropped.row.backbone,
            "row": dropped.row.label,
            "arm": dropped.arm.name,
            "seed": dropped.unpaired.seed,
            "reason": dropped.unpaired.reason,
        }
