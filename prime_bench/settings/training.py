"""The training protocol: FuxiCTR 2.3.10's, with the paper's values as defaults."""

from typing import Literal

import pydantic

from prime_bench.base.frozen import Frozen


class TrainSpec(Frozen):
    """Everything about a training run that is neither data, model nor seed."""

    batch_size: int = pydantic.Field(4096, ge=2)
    """Rows an optimiser step; the last batch is smaller (a single row joins the one before it)."""
    learning_rate: float = pydantic.Field(1e-3, gt=0)
    """Adam's rate at the start."""
    max_epochs: int = pydantic.Field(100, ge=1)
    """Upper bound; `patience` may end the run sooner."""
    patience: int = pydantic.Field(2, ge=1)
    """Validations in a row without a better AUC before the run stops."""
    min_delta: float = pydantic.Field(1e-6, ge=0)
    """A validation AUC is better from best + min_delta on."""
    learning_rate_factor: float = pydantic.Field(0.1, gt=0, le=1)
    """Each validation without improvement multiplies the rate by this."""
    learning_rate_floor: float = pydantic.Field(1e-6, ge=0)
    """The rate never falls below this."""
    max_gradient_norm: float = pydantic.Field(10.0, gt=0)
    """Global norm to which the gradient is clipped, after the L2 term is in it (fidelity 12)."""
    loss: Literal["probability", "logit"] = "probability"
    """BCE of the float32 probability with logs clamped at -100, as FuxiCTR, or of the logit."""
    compile: bool = False
    """Whether torch.compile makes the step's kernels: faster, and other in the last bits. On a CPU
    it needs a C++ compiler."""
