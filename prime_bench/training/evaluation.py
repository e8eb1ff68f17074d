"""Predictions of a whole split, their metrics, and what makes them no sound measurement."""

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prime_bench.base.errors import DataError
from prime_bench.base.files import write_whole
from prime_bench.findings import Score
from prime_bench.plugins.attach import ArmModel
from prime_bench.training.batches import Rows
from prime_bench.training.metrics import auc, logloss


@torch.inference_mode()
def predict(
    model: ArmModel, rows: Rows, *, batch_size: int, on_rows: Callable[[int], None] = lambda _: None
) -> Tensor:
    """Probabilities (N,) in the order of the file, in eval mode, on the model's device, which is
    not waited for.

    `on_rows` is told how many more rows were handed to it. The model is back in its mode
    afterwards.
    """
    training = model.training
    model.eval()
    parts = []
    for batch in rows.in_order(batch_size=batch_size):
        parts.append(model(batch.ids, batch.numerics))
        on_rows(len(batch.labels))
    model.train(training)
    return torch.cat(parts)


def score(labels: np.ndarray, probabilities: Tensor) -> Score:
    """AUC and LogLoss over all rows, counted where the probabilities are; None for both where one
    of them is not finite.
    """
    if not bool(probabilities.isfinite().all()):
        return Score(auc=None, logloss=None)
    return Score(auc=auc(labels, probabilities), logloss=logloss(labels, probabilities))


def degeneracy(probabilities: Mapping[str, Tensor], scores: Mapping[str, Score]) -> str | None:
    """What is wrong with the predictions of each split by name; None where nothing is."""
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
    """Raise DataError where a split is of no use, before a run is spent on it."""
    classes = np.unique(labels)
    if len(classes) == 0:
        raise DataError(f"the split {name} has no rows")
    if len(classes) == 1:
        raise DataError(
            f"all {len(labels)} labels of the split {name} are {classes[0]}: both are needed",
            hint="prepare the data with more rows, or split them otherwise",
        )


SPLITS = ("valid", "test")


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A split's rows, (N,) each."""

    probabilities: np.ndarray
    """float32."""
    labels: np.ndarray
    """uint8."""


def save_predictions(
    path: Path, probabilities: Mapping[str, Tensor], labels: Mapping[str, np.ndarray]
) -> None:
    """Write what each split of `SPLITS` was predicted, (N,) on any device, whole.

    Raises EnvironmentFault where `path` cannot be written.
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


def load_predictions(path: Path) -> dict[str, Predicted]:
    """What `save_predictions` wrote, by split. Raises DataError for a missing or broken file."""
    try:
        # numpy leaves a file open that is no zip archive, unless it was opened here.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {
                name: Predicted(probabilities=file[name], labels=file[f"{name}_labels"])
                for name in SPLITS
            }
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: cannot read the predictions: {error}",
            hint="make them with `prime-bench predict` and the job's id",
        ) from error
