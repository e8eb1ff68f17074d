"""Multi-head self-attention over fields, as AutoInt has it.

    Q = X W_q, K = X W_k, V = X W_v, cut into heads;    A = softmax(Q K^T / s) a head
    Y = ReLU(LN([Dropout(A) V of all heads] + X W_res))

s is sqrt(a / heads) or 1; the residual is X itself where its width is a; LN and residual may be
off.

Shapes: B rows, F fields, a width of all heads together. Source: FuxiCTR 2.3.10's AutoInt, whose
parameter names these are.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.backbones.dropout import dropout
from prime_bench.settings.autoint import AutoIntSettings


class SelfAttention(nn.Module):
    """(B, F, width_in) -> (B, F, a)."""

    W_res: nn.Linear | None
    layer_norm: nn.LayerNorm | None

    def __init__(self, width_in: int, settings: AutoIntSettings) -> None:
        super().__init__()
        width = settings.attention_dim
        self._n_heads, self._dropout = settings.num_heads, settings.net_dropout
        self._residual = settings.use_residual
        self._scale = math.sqrt(width // settings.num_heads) if settings.use_scale else 1.0
        self.W_q, self.W_k, self.W_v = (nn.Linear(width_in, width, bias=False) for _ in range(3))
        projected = settings.projections(width_in) == 4
        self.W_res = nn.Linear(width_in, width, bias=False) if projected else None
        self.layer_norm = nn.LayerNorm(width) if settings.layer_norm else None

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each field to all."""
        query, key, value = (self._heads(project(x)) for project in (self.W_q, self.W_k, self.W_v))
        scores = query @ key.transpose(2, 3) / self._scale  # (B, heads, F, F)
        weights = torch.softmax(scores, dim=-1)
        weights = dropout(weights, self._dropout, training=self.training)
        y = (weights @ value).transpose(1, 2).flatten(2)  # (B, heads, F, a / heads) -> (B, F, a)
        if self._residual:
            y = y + (x if self.W_res is None else self.W_res(x))
        if self.layer_norm is not None:
            y = self.layer_norm(y)
        return F.relu(y)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, F, a) -> (B, heads, F, a / heads)."""
        n_rows, n_fields, _ = x.shape
        return x.view(n_rows, n_fields, self._n_heads, -1).transpose(1, 2)
