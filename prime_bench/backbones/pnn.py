"""PNN with inner products: a multi-layer perceptron on embeddings and inner products of all pairs.

    l = MLP([z, q]; h; 1),    z = vec(E),    q = (<E_i, E_j>)_{i<j}

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k,
P = F (F - 1) / 2 pairs. Qu et al., Product-based Neural Networks for User Response Prediction, ICDM
2016; as FuxiCTR 2.3.10's PNN, whose parameter names these are. The Top-NN is the MLP.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import (
    inner_products,
    mlp_with_head,
    reset_linears,
    top_mlp,
    upper_triangle,
)
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import PNNSettings


class PNN(Backbone):
    """PNN. Sites: `embedding` (B, F, k), `top_input` (B, d + P)."""

    upper: Tensor

    def __init__(self, schema: Schema, settings: PNNSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.register_buffer("upper", upper_triangle(schema.shape.n_fields), persistent=False)
        self.dnn = top_mlp(settings.top_width(schema.shape), settings)
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        parts = [embeddings.flatten(1), inner_products(embeddings, self.upper)]  # (B, d), (B, P)
        logit: Tensor = self.dnn(self.sites["top_input"](torch.cat(parts, dim=1)))
        return logit.squeeze(-1)  # (B, 1) -> (B,)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The table and the numeric fields' weights."""
        return list(self.embedding.parameters())
