"""Predictions of a split, their metrics, and the reasons for which a run is degenerate."""

import contextlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prime_bench.base.errors import DataError
from prime_bench.base.files import write_whole
from prime_bench.findings import (
    GroupCounts,
    Score,
    calibration_error,
    normalised_entropy,
    predicted_over_clicks,
    whole,
)
from prime_bench.plugins.attach import ArmModel
from prime_bench.training.batches import Rows
from prime_bench.training.graph import Capture, GraphedForward, NotCaptured
from prime_bench.training.metrics import Ranking, auc, group_auc, logloss

SCORED_SPLITS = ("valid", "test")
"""The splits that are scored with the best weights."""


@torch.inference_mode()
def predict(
    model: ArmModel,
    rows: Rows,
    *,
    batch_size: int,
    capture: Capture | None = None,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """Predict probabilities (N,) in the order of the file, in evaluation mode, on the model's
    device. The model's mode is restored.

    With `capture`, batches of `batch_size` rows are predicted by a graph if it can be had, with the
    same bits. `on_rows` is called after each batch with its number of rows.
    """
    training = model.training
    model.eval()
    parts: list[Tensor] = []
    graph: GraphedForward | None = None
    for batch in rows.in_order(batch_size=batch_size):
        n_rows = len(batch.labels)
        if capture is not None and not parts and n_rows == batch_size:
            # An arm that cannot be captured is predicted eagerly.
            with contextlib.suppress(NotCaptured, RuntimeError):
                graph = GraphedForward(model, batch, capture=capture)
        if graph is not None and n_rows == batch_size:
            parts.append(graph(batch).clone())
        else:
            parts.append(model(batch.ids, batch.numerics))
        on_rows(n_rows)
    model.train(training)
    return torch.cat(parts)


def score(labels: np.ndarray, probabilities: Tensor) -> Score:
    """AUC and LogLoss over all rows (N,), computed on the device of the probabilities. Both are
    None if a probability is not finite.
    """
    if not bool(probabilities.isfinite().all()):
        return Score(auc=None, logloss=None)
    return Score(auc=auc(labels, probabilities), logloss=logloss(labels, probabilities))


def full_score(
    labels: np.ndarray,
    probabilities: Tensor,
    *,
    groups: np.ndarray | None = None,
    column: str = "",
) -> Score:
    """Every metric over all rows (N,); AUC and LogLoss have the bits of `score`. All are None if a
    probability is not finite.

    `groups` (N,) are the groups of the values of `column`, 0 for none; None: no group AUC.
    """
    if not bool(probabilities.isfinite().all()):
        return Score(auc=None, logloss=None)
    loss, ranking = logloss(labels, probabilities), Ranking(labels, probabilities)
    deciles = ranking.bins(10)
    every = whole(deciles)
    found = None if groups is None else group_auc(labels, probabilities, groups)
    return Score(
        # Wider probabilities than float32 are ordered by all of their bits.
        auc=ranking.auc if probabilities.dtype == torch.float32 else auc(labels, probabilities),
        logloss=loss,
        gauc=None if found is None else found.mean,
        ne=normalised_entropy(loss, clicks=every.clicks, rows=every.rows),
        pcoc=predicted_over_clicks(deciles),
        ece=calibration_error(deciles),
        ece_all=calibration_error([every]),
        deciles=deciles,
        groups=None
        if found is None
        else GroupCounts(
            column=column,
            groups=found.groups,
            rows=found.rows,
            one_class_groups=found.one_class_groups,
            one_class_rows=found.one_class_rows,
            rows_without_group=found.rows_without_group,
        ),
    )


def degeneracy(probabilities: Mapping[str, Tensor], scores: Mapping[str, Score]) -> str | None:
    """Why the predictions (N,) of the splits, by name, are no sound measurement; None if they are
    one.
    """
    faults = []
    for name, values in probabilities.items():
        n_lost = len(values) - int(values.isfinite().sum())
        if n_lost:
            faults.append(f"{name}: {n_lost} of {len(values)} predictions are not finite")
        elif bool(values.min() == values.max()):
            faults.append(f"{name}: every prediction is {float(values[0]):.6g}")
        elif scores[name].auc == 0.5:
            faults.append(f"{name}: the AUC is 0.5")
    return "; ".join(faults) or None


def check_labels(name: str, labels: np.ndarray) -> None:
    """Raise DataError for a split without rows, or with rows of one class only."""
    classes = np.unique(labels)
    if len(classes) == 0:
        raise DataError(f"the split {name} has no rows")
    if len(classes) == 1:
        raise DataError(
            f"all {len(labels)} labels of the split {name} are {classes[0]}: both are needed",
            hint="prepare the data with more rows, or split them otherwise",
        )


def save_predictions(
    path: Path, probabilities: Mapping[str, Tensor], labels: Mapping[str, np.ndarray]
) -> None:
    """Write the predictions of the valid and test split, (N,) each and on any device, atomically.

    Raises EnvironmentFault if `path` cannot be written.
    """
    buffer = io.BytesIO()
    np.savez(
        buffer,
        valid=probabilities["valid"].float().cpu().numpy(),
        valid_labels=np.asarray(labels["valid"], dtype=np.uint8),
        test=probabilities["test"].float().cpu().numpy(),
        test_labels=np.asarray(labels["test"], dtype=np.uint8),
    )
    write_whole(path, buffer.getbuffer())
