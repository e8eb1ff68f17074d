"""When the learning rate falls and when a run ends: FuxiCTR's rule (fidelity 11), as a state
machine that knows nothing of training.
"""

import math
from collections.abc import Mapping
from typing import Any

from prime_bench.settings.training import TrainSpec


class StopRule:
    """Fed one validation AUC an epoch.

    An AUC of at least best + `min_delta` is an improvement. Any other is a miss, and each miss
    multiplies the learning rate at once, down to its floor; `patience` misses in a row end the run.
    An improvement ends the row of misses but does not lift the rate again.
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
        """Take the next AUC and say whether it is better; None, an undefined AUC, never is.

        Raises ValueError for NaN: whoever could not compute an AUC has to say so.
        """
        if auc is not None and math.isnan(auc):
            raise ValueError("a validation AUC that is not a number")
        if auc is not None and (
            self.best_auc is None or auc >= self.best_auc + self._spec.min_delta
        ):
            self.best_auc, self.misses = auc, 0
            return True
        self.misses += 1
        # No higher than before: a floor above the starting rate must not raise it.
        lowered = max(
            self.learning_rate * self._spec.learning_rate_factor, self._spec.learning_rate_floor
        )
        self.learning_rate = min(self.learning_rate, lowered)
        return False

    @property
    def stop(self) -> bool:
        """Whether the run is over."""
        return self.misses >= self._spec.patience

    def state_dict(self) -> dict[str, Any]:
        """What the next validation is judged by."""
        return {
            "best_auc": self.best_auc,
            "learning_rate": self.learning_rate,
            "misses": self.misses,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the rule that gave `state` would."""
        self.best_auc = state["best_auc"]
        self.learning_rate = state["learning_rate"]
        self.misses = state["misses"]
