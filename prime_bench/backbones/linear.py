"""The linear term: one weight an id, one a numeric field, and a bias.

    LR(x) = sum_f w_f[id_f] + sum_f w_f x_f + b

Shapes: B rows, C categorical and K numeric fields, F = C + K. Source: FuxiCTR's LogisticRegression,
a second set of embedding tables, of width 1; the L2 term counts its tables as embeddings and its
bias as network.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.data.schema import Schema


class LinearTerm(nn.Module):
    """ids (B, C), numerics (B, K) -> (B,). The weights are those of a FieldEmbedding of width 1,
    initialised as one; the bias starts at 0.
    """

    bias: nn.Parameter | None

    def __init__(self, schema: Schema, *, bias: bool = False) -> None:
        super().__init__()
        self.embedding = FieldEmbedding(schema, 1)
        self.bias = nn.Parameter(torch.zeros(1)) if bias else None

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Sum the weights of a row's fields."""
        total: Tensor = self.embedding(ids, numerics).sum(dim=(1, 2))  # (B, F, 1) -> (B,)
        return total if self.bias is None else total + self.bias

    def embedding_parameters(self) -> list[nn.Parameter]:
        """All but the bias."""
        return list(self.embedding.parameters())
