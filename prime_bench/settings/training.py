"""The training protocol: that of FuxiCTR 2.3.10, with the paper's values as defaults."""

from typing import Literal

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
