"""Predictions of finished jobs: the file that holds them, and what comes of predicting again."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prime_bench.base.errors import DataError
from prime_bench.base.files import open_file
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import PREDICTIONS

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class PredictionProgress:
    """How far the predicting of several jobs is."""

    record: RunRecord
    """Record of the job that predicts now."""
    number: int
    """Number of that job among all, from 1."""
    n_jobs: int
    """Number of jobs that are to predict."""
    rows: int
    """Rows that it has predicted."""
    n_rows: int
    """Rows that it is to predict."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The predictions of a finished job."""

    record: RunRecord
    path: Path
    """predictions.npz in the job's folder."""
    differences: list[str]
    """How the predictions miss the recorded metrics, a line each; the file is not written then."""
    conditions: list[str]
    """What is not as it was when the job ran: device, threads, versions."""

    @property
    def written(self) -> bool:
        """Whether the predictions give the record's metrics, and the file is there."""
        return not self.differences


@dataclass(frozen=True, kw_only=True)
class RowPredictions:
    """The predictions of a finished job for rows of another log."""

    record: RunRecord
    rows: int
    """Rows that were predicted."""
    unknown: dict[str, int]
    """Field -> values that are not in the table's vocabulary, and were predicted as such; missing
    ones are not counted."""
    conditions: list[str]
    """What is not as it was when the job ran: device, threads, versions. The bits may be others
    then."""
    probabilities: "np.ndarray | None"
    """(N,) float32 in the order of the files; None where they were given to `on_block`."""


def read_predictions(folder: Path) -> "dict[str, tuple[np.ndarray, np.ndarray]]":
    """Read predictions.npz of a job's folder: of the splits `valid` and `test`, the labels (N,)
    uint8 and the probabilities (N,) float32.

    Raises DataError where it is missing or cannot be read.
    """
    import numpy as np  # here, since `import prime_bench.api` loads this module

    path = folder / PREDICTIONS
    try:
        # numpy leaves a file open that is no zip archive, unless it was opened here.
        with open_file(path) as raw, np.load(raw, allow_pickle=False) as file:
            found = {split: (file[f"{split}_labels"], file[split]) for split in ("valid", "test")}
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        why = str(error)
    else:
        unlike = [
            split
            for split, (labels, values) in found.items()
            if (labels.shape, labels.dtype, values.dtype) != (values.shape, np.uint8, np.float32)
            or values.ndim != 1
        ]
        if not unlike:
            return found
        why = f"{unlike[0]} has no label and probability of each row"
    raise DataError(
        f"{path}: cannot read the predictions: {why}",
        hint=f"make them with `prime-bench predict {folder.name}`",
    )
