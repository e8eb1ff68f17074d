"""Records as polars frames: a row a run, a row a validation, a row a prediction."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl

from prime_bench.findings import ALL_METRICS
from prime_bench.recipe.differences import dotted
from prime_bench.store.predictions import read_predictions
from prime_bench.store.record import RunRecord


def runs_frame(runs: Sequence[RunRecord]) -> pl.DataFrame:
    """Make a row of each run: what it is, the settings that differ between runs, its result."""
    heads, settings = _heads(runs)
    rows = [
        {
            **head,
            **{
                f"{split}_{metric}": getattr(score, metric)
                for split, score in run.result.scores.items()
                for metric in ALL_METRICS
            },
            "epochs": run.result.epochs,
            "best_epoch": run.result.best_epoch,
            "stopped": run.result.stopped,
            "wall_s": run.wall_s,
            "epoch_s": run.epoch_s,
            "degenerate": run.degenerate,
            "parameters": run.budget.backbone_parameters + run.budget.plugin_parameters,
            "plugin_parameters": run.budget.plugin_parameters,
            "device": run.environment.device,
            "numerics": run.job.numerics,
            "started": run.environment.started,
        }
        for run, head in zip(runs, heads, strict=True)
    ]
    return pl.DataFrame(
        rows,
        schema={
            **_head_types(settings),
            **{
                f"{split}_{metric}": pl.Float64
                for split in ("valid", "test")
                for metric in ALL_METRICS
            },
            "epochs": pl.Int64,
            "best_epoch": pl.Int64,
            "stopped": pl.String,
            "wall_s": pl.Float64,
            "epoch_s": pl.Float64,
            "degenerate": pl.String,
            "parameters": pl.Int64,
            "plugin_parameters": pl.Int64,
            "device": pl.String,
            "numerics": pl.Int64,
            "started": pl.String,
        },
    )


def histories_frame(runs: Sequence[RunRecord]) -> pl.DataFrame:
    """Make a row of each validation of each run."""
    heads, settings = _heads(runs)
    rows = [
        {
            **head,
            "epoch": point.epoch,
            "step": point.step,
            "learning_rate": point.learning_rate,
            "train_loss": point.train_loss,
            "valid_auc": point.valid_auc,
            "valid_logloss": point.valid_logloss,
            "improved": point.improved,
            "best": point.epoch == run.result.best_epoch,
            "wall_s": point.wall_s,
        }
        for run, head in zip(runs, heads, strict=True)
        for point in run.history
    ]
    return pl.DataFrame(
        rows,
        schema={
            **_head_types(settings),
            "epoch": pl.Int64,
            "step": pl.Int64,
            "learning_rate": pl.Float64,
            "train_loss": pl.Float64,
            "valid_auc": pl.Float64,
            "valid_logloss": pl.Float64,
            "improved": pl.Boolean,
            "best": pl.Boolean,
            "wall_s": pl.Float64,
        },
    )


def predictions_frame(folder: Path) -> pl.DataFrame:
    """Read predictions.npz of a job's folder: split, label and probability of each row.

    Raises DataError where it is missing or cannot be read.
    """
    frames = [
        pl.DataFrame(
            {"label": labels, "probability": probabilities},
            schema={"label": pl.UInt8, "probability": pl.Float32},
        ).select(pl.lit(split).alias("split"), "label", "probability")
        for split, (labels, probabilities) in read_predictions(folder).items()
    ]
    return pl.concat(frames)


def _heads(runs: Sequence[RunRecord]) -> tuple[list[dict[str, object]], dict[str, list[object]]]:
    """What identifies each run in a frame, and the values by run of each setting that differs."""
    settings = _differing_settings(runs)
    heads: list[dict[str, object]] = [
        {
            "dataset": run.dataset,
            "backbone": run.job.backbone,
            "arm": run.arm,
            "seed": run.job.seed,
            "job_id": run.job_id,
            **{key: values[i] for key, values in settings.items()},
        }
        for i, run in enumerate(runs)
    ]
    return heads, settings


def _head_types(settings: Mapping[str, Sequence[object]]) -> dict[str, Any]:
    """The types of those columns."""
    kinds: dict[type, Any] = {bool: pl.Boolean, int: pl.Int64, float: pl.Float64, str: pl.String}
    types: dict[str, Any] = {
        "dataset": pl.String,
        "backbone": pl.String,
        "arm": pl.String,
        "seed": pl.Int64,
        "job_id": pl.String,
    }
    for key, values in settings.items():
        (kind,) = {type(value) for value in values if value is not None} or {str}
        types[key] = kinds[kind]
    return types


def _differing_settings(runs: Sequence[RunRecord]) -> dict[str, list[object]]:
    """Dotted key -> each run's value, for the settings in which comparable runs differ."""
    # What a key is compared within: backbones have other keys than each other, plug-ins too.
    scopes: dict[tuple[str, str], list[int]] = {}
    tables: list[dict[str, object]] = []
    for i, run in enumerate(runs):
        job = run.job
        table: dict[str, object] = {}
        for scope, name, settings in (
            ("data", run.dataset, {"variant": run.data_variant}),
            ("training", "", job.training.plain()),
            ("backbone", job.backbone, job.backbone_settings),
            ("arm", job.plugin, job.plugin_settings),
        ):
            scopes.setdefault((scope, name), []).append(i)
            table |= {f"{scope}.{key}": value for key, value in dotted(settings).items()}
        tables.append(table)
    differing: dict[str, None] = {}
    for (scope, _), members in scopes.items():
        keys = dict.fromkeys(key for i in members for key in tables[i] if key.startswith(scope))
        for key in keys:
            if len({json.dumps(tables[i].get(key), default=str) for i in members}) > 1:
                differing[key] = None
    columns = {key: [table.get(key) for table in tables] for key in differing}
    if "data.variant" in columns:
        columns["data_variant"] = columns.pop("data.variant")
    return {key: _column(values) for key, values in columns.items()}


def _column(values: Sequence[object]) -> list[object]:
    """Values of one type: a list or a mixture as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(cast("float", value)) for value in values]
    if len(kinds) <= 1 and kinds <= {bool, int, float, str}:
        return list(values)
    return [None if value is None else json.dumps(value) for value in values]
