"""What comes of predicting again with the weights of finished jobs."""

from dataclasses import dataclass
from pathlib import Path

from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class PredictionProgress:
    """How far the predicting of several jobs is."""

    record: RunRecord
    """Of the job that predicts now."""
    number: int
    """Of the job, from 1."""
    n_jobs: int
    rows: int
    """Rows that are predicted."""
    n_rows: int


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
