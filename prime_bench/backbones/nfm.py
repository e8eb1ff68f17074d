"""NFM: a linear term and a multi-layer perceptron on the summed products of all pairs of fields.

    l = LR(x) + MLP(sum_{i<j} E_i * E_j; h; 1),    LR without bias

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width.
He and Chua, Neural Factorization Machines for Sparse Predictive Analytics, SIGIR 2017; as FuxiCTR
2.3.10's NFM, whose parameter names these are. The Top-NN is the MLP, whose input is the sum of
products and not z.
"""

from torch import Tensor, nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import (
    LinearTerm,
    mlp_with_head,
    pooled_products,
    reset_linears,
    top_mlp,
)
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import NFMSettings


class NFM(Backbone):
    """NFM. Sites: `embedding` (B, F, k), `top_input` (B, k)."""

    def __init__(self, schema: Schema, settings: NFMSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.lr_layer = LinearTerm(schema)
        self.dnn = top_mlp(settings.embedding_dim, settings)
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        pooled = self.sites["top_input"](pooled_products(embeddings))  # (B, F, k) -> (B, k)
        deep: Tensor = self.dnn(pooled).squeeze(-1)  # (B, 1) -> (B,)
        linear: Tensor = self.lr_layer(ids, numerics)
        return deep + linear

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Both tables and the numeric fields' weights."""
        return [*self.embedding.parameters(), *self.lr_layer.embedding_parameters()]
