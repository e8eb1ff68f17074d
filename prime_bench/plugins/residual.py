"""The parameter-matched residual: PRIME's budget in one hidden layer, without experts, routing or
bags (fidelity 22).

    delta = u . SiLU(V LN(z)) + b,    p = p_d + (1 - alpha) (sigmoid(l_d + delta) - p_d)

Shapes: B rows, d width of z, h hidden width. Same input, anchor and start (u = b = 0) as PRIME; Eq.
25 gives the budget.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.plugins.interface import Plugin
from prime_bench.plugins.mixture import anchored, log_weight
from prime_bench.settings.residual import ResidualParametersSettings


class ParameterMatchedResidual(Plugin):
    """One residual logit at width d = `input_width`; its initial values come from `generator`
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
        """The residual logit, (B,)."""
        if router_input is not None:
            raise ValueError("a residual without a router has no use for router_input")
        normalised = F.layer_norm(z, z.shape[-1:]) if self.settings.layer_norm else z
        hidden = F.silu(F.linear(normalised, self.weight_in))  # (B, d) -> (B, h)
        return hidden @ self.weight_out + self.bias  # (B, h) -> (B,)
