"""Predictions in a file, so that metrics can be computed anew and subgroups looked at.

predictions.npz has for each of `valid` and `test`, in the order of the prepared table's rows,

    <split>          (N,) float32    probabilities of the best weights
    <split>_labels   (N,) uint8      0 or 1
"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from prime_bench.base.errors import DataError
from prime_bench.base.files import write_whole

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
