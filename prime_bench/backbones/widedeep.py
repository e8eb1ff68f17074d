"""WideDeep: the sum of a linear term and a multi-layer perceptron.

    l = LR(x) + MLP(z; h; 1),    z = vec(E),    LR without bias

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k.
Cheng et al., Wide & Deep Learning for Recommender Systems, DLRS 2016; as FuxiCTR 2.3.10's WideDeep,
whose parameter names these are. The Top-NN is the MLP.
"""

from torch import Tensor, nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import LinearTerm, mlp_with_head, reset_linears, top_mlp
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import WideDeepSettings


class WideDeep(Backbone):
    """WideDeep. Sites: `embedding` (B, F, k), `top_input` (B, d)."""

    def __init__(self, schema: Schema, settings: WideDeepSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.lr_layer = LinearTerm(schema)
        self.dnn = top_mlp(settings.input_width(schema.shape), settings)
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        z = self.sites["embedding"](self.embedding(ids, numerics)).flatten(1)  # (B, F, k) -> (B, d)
        deep: Tensor = self.dnn(self.sites["top_input"](z)).squeeze(-1)  # (B, 1) -> (B,)
        linear: Tensor = self.lr_layer(ids, numerics)
        return deep + linear

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Both tables and the numeric fields' weights."""
        return [*self.embedding.parameters(), *self.lr_layer.embedding_parameters()]
