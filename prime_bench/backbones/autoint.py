"""AutoInt: layers of multi-head self-attention over the fields, and optionally an MLP beside them.

    X_0 = E;    Q = X W_q, K = X W_k, V = X W_v, each cut into heads;    A = softmax(Q K^T / s)
    X_{i+1} = ReLU(LN([Dropout(A) V for all heads] + X W_res))
    l = fc(vec(X_L)) + MLP(z; h; 1) + LR(x),    z = vec(E),    LR without bias

s is sqrt(a / heads) or 1. The residual is X itself if X has width a. LN, the residual, MLP and LR
can each be switched off; with MLP the model is the paper's AutoInt+.

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k, a width
of all heads together, L layers. Song et al., AutoInt: Automatic Feature Interaction Learning via
Self-Attentive Neural Networks, CIKM 2019; as FuxiCTR 2.3.10's AutoInt, whose parameter names these
are. The Top-NN is the MLP.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.dropout import dropout
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import LinearTerm, mlp_with_head, reset_linears
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import AutoIntSettings


class SelfAttention(nn.Module):
    """One attention layer, (B, F, width_in) -> (B, F, a)."""

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
        """Attend from each field to all fields of the row."""
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
        """Cut the last axis into heads, (B, F, a) -> (B, heads, F, a / heads)."""
        n_rows, n_fields, _ = x.shape
        return x.view(n_rows, n_fields, self._n_heads, -1).transpose(1, 2)


class AutoInt(Backbone):
    """AutoInt. Sites: `embedding` (B, F, k) and, with an MLP, `top_input` (B, d)."""

    dnn: nn.Module | None
    lr_layer: LinearTerm | None

    def __init__(self, schema: Schema, settings: AutoIntSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.lr_layer = LinearTerm(schema) if settings.use_wide else None
        self.self_attention = nn.Sequential(
            *(SelfAttention(width, settings) for width in settings.layer_inputs)
        )
        self.dnn = None
        if settings.dnn_hidden_units:
            self.dnn = fuxi.mlp(
                settings.input_width(schema.shape),
                settings.dnn_hidden_units,
                width_out=1,
                dropout=settings.net_dropout,
                batch_norm=settings.batch_norm,
            )
        self.fc = nn.Linear(schema.shape.n_fields * settings.attention_dim, 1)
        reset_linears(self)
        has_top = self.dnn is not None
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn") if has_top else ([], [])

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        logit: Tensor = self.fc(self.self_attention(embeddings).flatten(1))  # (B, F a) -> (B, 1)
        if self.dnn is not None:
            logit = logit + self.dnn(self.sites["top_input"](embeddings.flatten(1)))
        logit = logit.squeeze(-1)
        return logit if self.lr_layer is None else logit + self.lr_layer(ids, numerics)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The tables of width k and, with a linear term, of width 1; weights of numeric fields."""
        linear = [] if self.lr_layer is None else self.lr_layer.embedding_parameters()
        return [*self.embedding.parameters(), *linear]
