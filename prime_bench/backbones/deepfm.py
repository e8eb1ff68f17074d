"""DeepFM: a factorization machine and a multi-layer perceptron on the same embeddings.

    l = sum_{i<j} <E_i, E_j> + LR(x) + MLP(z; h; 1),    z = vec(E),    LR with bias

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k.
Guo et al., DeepFM: A Factorization-Machine based Neural Network for CTR Prediction, IJCAI 2017; as
FuxiCTR 2.3.10's DeepFM, whose parameter names these are. The Top-NN is the MLP.
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
from prime_bench.settings.backbones import DeepFMSettings


class FactorizationMachine(nn.Module):
    """The inner products of all pairs of fields plus a linear term."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.lr_layer = LinearTerm(schema, bias=True)

    def forward(self, embeddings: Tensor, ids: Tensor, numerics: Tensor) -> Tensor:
        """Embeddings (B, F, k), ids (B, C) and values (B, K) -> (B,)."""
        linear: Tensor = self.lr_layer(ids, numerics)
        return linear + pooled_products(embeddings).sum(dim=1)


class DeepFM(Backbone):
    """DeepFM. Sites: `embedding` (B, F, k), `top_input` (B, d)."""

    def __init__(self, schema: Schema, settings: DeepFMSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.fm = FactorizationMachine(schema)
        self.mlp = top_mlp(settings.input_width(schema.shape), settings)
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "mlp")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        z = self.sites["top_input"](embeddings.flatten(1))  # (B, F, k) -> (B, d)
        deep: Tensor = self.mlp(z).squeeze(-1)  # (B, 1) -> (B,)
        shallow: Tensor = self.fm(embeddings, ids, numerics)
        return deep + shallow

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Both tables and the numeric fields' weights."""
        return [*self.embedding.parameters(), *self.fm.lr_layer.embedding_parameters()]
