"""FiBiNET: bilinear products of field pairs, of the embeddings and of their SENET, under an MLP
beside a linear term.

    S = SENET(E),    c = vec([Bilinear_1(E); Bilinear_2(S)]),    l = LR(x) + MLP(c; h; 1)

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, P = F (F - 1) / 2
pairs. Huang, Zhang and Zhang, FiBiNET: Combining Feature Importance and Bilinear Feature
Interaction for CTR Prediction, RecSys 2019; as FuxiCTR 2.3.10's FiBiNET, whose parameter names
these are: two bilinear weights, a linear term without bias. The Top-NN is the MLP.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.bilinear import Bilinear
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.initial import mlp_with_head, reset_linears
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.linear import LinearTerm
from prime_bench.backbones.top import top_mlp
from prime_bench.data.schema import Schema
from prime_bench.settings.fibinet import FiBiNETSettings


class FiBiNET(Backbone):
    """Sites: `embedding` (B, F, k), `bilinear` (B, 2 P, k), `top_input` (B, 2 P k)."""

    def __init__(self, schema: Schema, settings: FiBiNETSettings) -> None:
        super().__init__()
        n_fields, width = schema.shape.n_fields, settings.embedding_dim
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, width)
        self.senet_layer = fuxi.squeeze_excitation(n_fields, settings.reduction_ratio)
        self.bilinear_interaction1, self.bilinear_interaction2 = (
            Bilinear(n_fields, width, settings.bilinear_type) for _ in range(2)
        )
        self.lr_layer = LinearTerm(schema)
        self.dnn = top_mlp(settings.top_width(schema.shape), settings)
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        plain = self.bilinear_interaction1(embeddings)
        excited = self.bilinear_interaction2(self.senet_layer(embeddings))
        pairs = self.sites["bilinear"](torch.cat([plain, excited], dim=1))  # (B, 2 P, k)
        deep: Tensor = self.dnn(self.sites["top_input"](pairs.flatten(1)))  # (B, 2 P k) -> (B, 1)
        linear: Tensor = self.lr_layer(ids, numerics)
        return deep.squeeze(-1) + linear

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The tables, width k and width 1, and the numeric fields' weights."""
        return [*self.embedding.parameters(), *self.lr_layer.embedding_parameters()]
