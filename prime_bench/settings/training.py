"""The training protocol: that of FuxiCTR 2.3.10, with the paper's values as defaults."""

import math
from typing import Literal, TypedDict

import pydantic

from prime_bench.base.frozen import Frozen


class TrainSpec(Frozen):
    """Everything that defines a training run beside data, model and seed."""

    batch_size: int = pydantic.Field(4096, ge=2)
    """Rows of an optimiser step. The last batch of an epoch is smaller; a single row left over
    joins the batch before it."""
    learning_rate: float = pydantic.Field(1e-3, gt=0)
    """Initial learning rate of Adam."""
    max_epochs: int = pydantic.Field(100, ge=1)
    """Maximum number of epochs; `patience` may end the run earlier."""
    patience: int = pydantic.Field(2, ge=1)
    """Number of validations in a row without an improvement after which the run stops."""
    min_delta: float = pydantic.Field(1e-6, ge=0)
    """A validation AUC of at least best + min_delta is an improvement."""
    learning_rate_factor: float = pydantic.Field(0.1, gt=0, le=1)
    """Factor by which each validation without an improvement multiplies the learning rate."""
    learning_rate_floor: float = pydantic.Field(1e-6, ge=0)
    """Minimum of the learning rate."""
    max_gradient_norm: float = pydantic.Field(10.0, gt=0)
    """Global norm to which the gradient, L2 term included, is clipped (fidelity 12)."""
    loss: Literal["probability", "logit"] = "probability"
    """Binary cross-entropy of the float32 probability with logs clamped at -100, as in FuxiCTR, or
    of the logit."""
    matmul: Literal["float32", "tf32"] = "float32"
    """Precision of matrix products on a GPU: float32, or TF32, whose factors have 10 bits after the
    point instead of 23 and which is faster. It changes results; a CPU has float32 alone."""
    compile: bool = False
    """Whether torch.compile compiles the step. This is faster and changes the last bits of results.
    On a CPU it needs a C++ compiler."""

    def steps_of_epoch(self, n_rows: int) -> int:
        """Optimiser steps of an epoch of `n_rows` training rows."""
        return math.ceil(n_rows / self.batch_size) - joins_last_row(n_rows, self.batch_size)


def joins_last_row(n_rows: int, batch_size: int) -> bool:
    """Whether the last batch of `n_rows` training rows would have a single row, on which batch norm
    cannot train, and which therefore joins the batch before it (fidelity 39).
    """
    return n_rows > batch_size and n_rows % batch_size == 1


class StopState(TypedDict):
    """State of a `StopRule` between two validations: its attributes of the same names."""

    best_auc: float | None
    learning_rate: float
    misses: int


class StopRule:
    """FuxiCTR's rule for the learning rate and the end of a run (fidelity 11).

    The rule gets one validation AUC an epoch. An AUC of at least best + `min_delta` is an
    improvement, any other is a miss. A miss multiplies the learning rate by
    `learning_rate_factor`, down to `learning_rate_floor`; `patience` misses in a row end the run.
    An improvement sets the count of misses to 0 and leaves the learning rate as it is.
    """

    def __init__(self, spec: TrainSpec) -> None:
        self._spec = spec
        self.best_auc: float | None = None
        """The best AUC so far; None before the first improvement."""
        self.learning_rate = spec.learning_rate
        """The rate for the next epoch."""
        self.misses = 0
        """Misses in a row."""

    def improves(self, auc: float | None) -> bool:
        """Take the next AUC and return whether it is an improvement. None stands for an undefined
        AUC and is a miss. Raises ValueError for NaN.
        """
        if auc is not None and math.isnan(auc):
            raise ValueError("the validation AUC is NaN; pass None for an undefined AUC")
        if auc is not None and (
            self.best_auc is None or auc >= self.best_auc + self._spec.min_delta
        ):
            self.best_auc, self.misses = auc, 0
            return True
        self.misses += 1
        # A floor above the starting rate must not raise the rate.
        lowered = max(
            self.learning_rate * self._spec.learning_rate_factor, self._spec.learning_rate_floor
        )
        self.learning_rate = min(self.learning_rate, lowered)
        return False

    @property
    def stop(self) -> bool:
        """Whether the run is over."""
        return self.misses >= self._spec.patience

    def state_dict(self) -> StopState:
        """The rule's state after the validations so far, as plain numbers."""
        return {
            "best_auc": self.best_auc,
            "learning_rate": self.learning_rate,
            "misses": self.misses,
        }

    def load_state_dict(self, state: StopState) -> None:
        """Take the place of the rule that `state_dict` was called on: the next `improves` answers
        as that rule's would.
        """
        self.best_auc = state["best_auc"]
        self.learning_rate = state["learning_rate"]
        self.misses = state["misses"]
