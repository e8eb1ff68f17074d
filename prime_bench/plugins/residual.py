"""The matched residuals: PRIME's budget without experts, routing or bags (fidelity 22, 23).

    p = p_d + (1 - alpha) (sigmoid(l_d + delta) - p_d)
    parameters:                  delta = u . SiLU(V LN(z)) + b
    multiply-accumulates:        delta = u . SiLU(W SiLU(V LN(z) + v) + w) + b

Shapes: B rows, d width of z, h hidden width. Same input, anchor and start (u = b = 0) as PRIME; Eq.
25 and 24 give the budgets.
"""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.plugins.anchor import anchored, log_weight
from prime_bench.plugins.interface import Plugin
from prime_bench.settings.plugins import (
    ResidualMacsSettings,
    ResidualParametersSettings,
    ResidualSettings,
)


class Residual(Plugin):
    """One residual logit for all rows, mixed with the Dense probability as PRIME mixes."""

    settings: ResidualSettings

    def forward(self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None) -> Tensor:
        """z (B, d), l_d (B,) -> probability (B,). There is no router to read `router_input`:
        ValueError.
        """
        delta = self._delta(z, router_input)
        # l_d + delta is as contiguous and as long as l_d, so equal logits give equal bits.
        dense_probability = torch.sigmoid(dense_logit)
        correction = torch.sigmoid(dense_logit + delta) - dense_probability
        return anchored(dense_probability, correction, self.settings.dense_weight)

    def log_probabilities(
        self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same -> (log p, log(1 - p)), (B,) each."""
        shifted = dense_logit + self._delta(z, router_input)
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
            raise ValueError("a residual without a router has no use for router_input")
        return self.residual(F.layer_norm(z, z.shape[-1:]) if self.settings.layer_norm else z)

    @abstractmethod
    def residual(self, h: Tensor) -> Tensor:
        """LN(z), or z without LayerNorm, (B, d) -> delta (B,)."""


class ParameterMatchedResidual(Residual):
    """One hidden layer at width d = `input_width`; its initial values come from `generator`
    alone.
    """

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
        """(B, d) -> (B,)."""
        hidden = F.silu(F.linear(h, self.weight_in))  # (B, d) -> (B, h)
        return hidden @ self.weight_out + self.bias  # (B, h) -> (B,)


class MacMatchedResidual(Residual):
    """Two hidden layers at width d = `input_width`; its initial values come from `generator`
    alone.
    """

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
        """(B, d) -> (B,)."""
        first = F.silu(F.linear(h, self.weight_in, self.bias_in))  # (B, d) -> (B, h)
        second = F.silu(F.linear(first, self.weight_between, self.bias_between))
        return second @ self.weight_out + self.bias  # (B, h) -> (B,)
