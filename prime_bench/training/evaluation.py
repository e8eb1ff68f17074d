"""Predictions of a whole split, their metrics, and what makes them no sound measurement."""

from collections.abc import Mapping

import numpy as np
import torch

from prime_bench.base.errors import DataError
from prime_bench.plugins.attach import Arm
from prime_bench.store.record import Score
from prime_bench.training.batches import Rows
from prime_bench.training.metrics import auc, logloss


@torch.inference_mode()
def predict(model: Arm, rows: Rows, *, batch_size: int) -> np.ndarray:
    """Probabilities (N,) float32 in the order of the file, in eval mode.

    The device is waited for once, at the end. The model is back in its mode afterwards.
    """
    training = model.training
    model.eval()
    parts = [model(batch.ids, batch.numerics) for batch in rows.in_order(batch_size=batch_size)]
    model.train(training)
    probabilities: np.ndarray = torch.cat(parts).cpu().numpy()
    return probabilities


def score(labels: np.ndarray, probabilities: np.ndarray) -> Score:
    """AUC and LogLoss over all rows; None for both where a probability is not a number."""
    if np.isnan(probabilities).any():
        return Score(auc=None, logloss=None)
    return Score(auc=auc(labels, probabilities), logloss=logloss(labels, probabilities))


def degeneracy(probabilities: Mapping[str, np.ndarray], scores: Mapping[str, Score]) -> str | None:
    """What is wrong with the predictions of each split by name; None where nothing is."""
    faults = []
    for name, values in probabilities.items():
        n_nan = int(np.isnan(values).sum())
        if n_nan:
            faults.append(f"{name}: {n_nan} of {len(values)} predictions are not a number")
        elif values.min() == values.max():
            faults.append(f"{name}: every prediction is {values[0]:.6g}")
        elif scores[name].auc == 0.5:
            faults.append(f"{name}: the AUC is 0.5")
    return "; ".join(faults) or None


def check_labels(name: str, labels: np.ndarray) -> None:
    """Raise DataError where a split is of no use, before a run is spent on it."""
    classes = np.unique(labels)
    if len(classes) == 0:
        raise DataError(f"the split {name} has no rows")
    if len(classes) == 1:
        raise DataError(
            f"all {len(labels)} labels of the split {name} are {classes[0]}: both are needed",
            hint="prepare the data with more rows, or split them otherwise",
        )
