"""DNN: a multi-layer perceptron on the flattened embeddings.

    l = MLP(z; h; 1),    z = vec(E)

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k.
Zhang, Du and Wang, Deep Learning over Multi-field Categorical Data, ECIR 2016; as FuxiCTR 2.3.10's
DNN, whose parameter names these are. The Top-NN is the whole MLP.
"""

from torch import Tensor, nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import mlp_with_head, reset_linears, top_mlp
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import DNNSettings


class DNN(Backbone):
    """DNN. Sites: `embedding` (B, F, k), `top_input` (B, d)."""

    def __init__(self, schema: Schema, settings: DNNSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.mlp = top_mlp(settings.input_width(schema.shape), settings)
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "mlp")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        z = self.sites["embedding"](self.embedding(ids, numerics)).flatten(1)  # (B, F, k) -> (B, d)
        logit: Tensor = self.mlp(self.sites["top_input"](z))
        return logit.squeeze(-1)  # (B, 1) -> (B,)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The table and the numeric fields' weights."""
        return list(self.embedding.parameters())
