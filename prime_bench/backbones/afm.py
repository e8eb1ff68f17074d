"""AFM: a linear term and the pairs' products, weighted by attention and summed.

    e_p = E_i * E_j,    a = softmax over p of h . ReLU(W e_p + b),    p = (i, j), i < j
    l = LR(x) + w . Dropout_2(sum_p Dropout_1(a)_p e_p),    LR with bias
    without attention: l = LR(x) + sum_p sum(e_p)

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width,
P = F (F - 1) / 2 pairs. Xiao et al., Attentional Factorization Machines, IJCAI 2017; as FuxiCTR
2.3.10's AFM, whose parameter names these are. There is no Top-NN. Without attention FuxiCTR's AFM
keeps the attention's parameters, which nothing reads; here there are none.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones.dropout import dropout
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.initial import reset_linears
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.linear import LinearTerm
from prime_bench.backbones.pair_attention import pair_scores
from prime_bench.backbones.products import pair_matrix, pooled_products, upper_triangle
from prime_bench.data.schema import Schema
from prime_bench.settings.afm import AFMSettings


class AFM(Backbone):
    """Site: `embedding` (B, F, k)."""

    upper: Tensor

    def __init__(self, schema: Schema, settings: AFMSettings) -> None:
        super().__init__()
        self._dropout_weights, self._dropout_sum = settings.attention_dropout
        self._attends = settings.use_attention
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.lr_layer = LinearTerm(schema, bias=True)
        if self._attends:
            self.register_buffer("upper", upper_triangle(schema.shape.n_fields), persistent=False)
            # The layers hold the weights under FuxiCTR's names; `pair_scores` does their work.
            self.attention = nn.Sequential(
                nn.Linear(settings.embedding_dim, settings.attention_dim),
                nn.ReLU(),
                nn.Linear(settings.attention_dim, 1, bias=False),
            )
            self.weight_p = nn.Linear(settings.embedding_dim, 1, bias=False)
        reset_linears(self)
        self.top_layers, self.top_parameters = [], []

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        linear: Tensor = self.lr_layer(ids, numerics)
        if not self._attends:
            return linear + pooled_products(embeddings).sum(dim=1)
        pooled: Tensor = self.weight_p(self._attend(embeddings)).squeeze(-1)  # (B, k) -> (B,)
        return linear + pooled

    def _attend(self, embeddings: Tensor) -> Tensor:
        """(B, F, k) -> (B, k)."""
        hidden, head = self.attention.get_submodule("0"), self.attention.get_submodule("2")
        weight, bias = hidden.get_parameter("weight"), hidden.get_parameter("bias")
        scores = pair_scores(embeddings, weight, bias, head.get_parameter("weight"))  # (B, P)
        weights = torch.softmax(scores, dim=1)
        weights = dropout(weights, self._dropout_weights, training=self.training)
        matrix = pair_matrix(weights, self.upper, embeddings.shape[1])  # (B, P) -> (B, F, F)
        # sum_{i<j} a_ij E_i * E_j = sum_i E_i * (A E)_i: no tensor of (B, P, k).
        pooled = (embeddings * torch.bmm(matrix, embeddings)).sum(dim=1)
        return dropout(pooled, self._dropout_sum, training=self.training)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Both tables and the numeric fields' weights."""
        return [*self.embedding.parameters(), *self.lr_layer.embedding_parameters()]
