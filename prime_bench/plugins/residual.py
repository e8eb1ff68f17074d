"""The matched residuals: controls with PRIME's budget but no experts, routing or bags (fidelity 22,
23).

    p = p_d + (1 - alpha) (sigmoid(logit(p_d) + delta) - p_d)
    parameters:                  delta = u . SiLU(V LN(z)) + b
    multiply-accumulates:        delta = u . SiLU(W SiLU(V LN(z) + v) + w) + b

logit(p_d), input, anchor and start (u = b = 0) are those of PRIME; Eq. 25 and 24 give the budgets.

Shapes: B rows, d width of z, h hidden width.
"""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.plugins.interface import Plugin
from prime_bench.plugins.prime import anchor_logit, anchored, log_weight
from prime_bench.settings.plugins import (
    ResidualMacsSettings,
    ResidualParametersSettings,
    ResidualSettings,
)


class Residual(Plugin):
    """A residual logit from an MLP, mixed with the dense probability as in PRIME."""

    settings: ResidualSettings

    def forward(self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None) -> Tensor:
        """z (B, d), l_d (B,) -> probability (B,).

        Raises ValueError for a `router_input`, since there is no router.
        """
        delta = self._delta(z, router_input)
        # The sum has the layout of l_d, so equal logits give bitwise equal probabilities.
        dense_probability = torch.sigmoid(dense_logit)
        shifted = torch.sigmoid(anchor_logit(dense_logit, self.settings) + delta)
        correction = shifted - dense_probability
        return anchored(dense_probability, correction, 1 - self.settings.dense_weight)

    def log_probabilities(
        self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `forward`, but returns (log p, log(1 - p)), (B,) each."""
        shifted = anchor_logit(dense_logit, self.settings) + self._delta(z, router_input)
        anchor = log_weight(self.settings.dense_weight)
        residual = log_weight(1 - self.settings.dense_weight)
        log_p, log_not_p = (
            torch.logaddexp(
                anchor + F.logsigmoid(sign * dense_logit), residual + F.logsigmoid(sign * shifted)
            )
            for sign in (1, -1)
        )
        return log_p, log_not_p

    def _delta(self, z: Tensor, router_input: Tensor | None) -> Tensor:
        if router_input is not None:
            raise ValueError("a residual has no router, so it takes no router_input")
        return self.residual(F.layer_norm(z, z.shape[-1:]) if self.settings.layer_norm else z)

    @abstractmethod
    def residual(self, h: Tensor) -> Tensor:
        """h (B, d), which is LN(z) or z without LayerNorm -> delta (B,)."""


class ParameterMatchedResidual(Residual):
    """One hidden layer, input width d = `input_width`. Initial values come from `generator`."""

    def __init__(
        self,
        input_width: int,
        settings: ResidualParametersSettings,
        *,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.weight_in = nn.Parameter(torch.empty(settings.width, input_width))  # V
        self.weight_out = nn.Parameter(torch.zeros(settings.width))  # u
        self.bias = nn.Parameter(torch.zeros(()))  # b
        nn.init.xavier_normal_(self.weight_in, generator=generator)

    def residual(self, h: Tensor) -> Tensor:
        """h (B, d) -> delta (B,)."""
        hidden = F.silu(F.linear(h, self.weight_in))  # (B, d) -> (B, h)
        return hidden @ self.weight_out + self.bias  # (B, h) -> (B,)


class MacMatchedResidual(Residual):
    """Two hidden layers, input width d = `input_width`. Initial values come from `generator`."""

    def __init__(
        self, input_width: int, settings: ResidualMacsSettings, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width(input_width)
        self.weight_in = nn.Parameter(torch.empty(width, input_width))  # V
        self.bias_in = nn.Parameter(torch.zeros(width))  # v
        self.weight_between = nn.Parameter(torch.empty(width, width))  # W
        self.bias_between = nn.Parameter(torch.zeros(width))  # w
        self.weight_out = nn.Parameter(torch.zeros(width))  # u
        self.bias = nn.Parameter(torch.zeros(()))  # b
        for weight in (self.weight_in, self.weight_between):
            nn.init.xavier_normal_(weight, generator=generator)

    def residual(self, h: Tensor) -> Tensor:
        """h (B, d) -> delta (B,)."""
        first = F.silu(F.linear(h, self.weight_in, self.bias_in))  # (B, d) -> (B, h)
        second = F.silu(F.linear(first, self.weight_between, self.bias_between))
        return second @ self.weight_out + self.bias  # (B, h) -> (B,)
