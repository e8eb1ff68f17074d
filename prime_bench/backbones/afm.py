"""AFM: a linear term and an attention-weighted sum of the products of all pairs of fields.

    s_p = h . ReLU(W (E_i * E_j) + b),    alpha = softmax(s),    p = (i, j), i < j
    l = LR(x) + w . Dropout(sum_p Dropout(alpha)_p E_i * E_j),    LR with bias
    l = LR(x) + sum_p <E_i, E_j>    without attention

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width,
P = F (F - 1) / 2 pairs in row order of the upper triangle, a width of the hidden layer, R rows of a
block. Xiao et al., Attentional Factorization Machines: Learning the Weight of Feature Interactions
via Attention Networks, IJCAI 2017; as FuxiCTR 2.3.10's AFM, whose parameter names these are. There
is no Top-NN.

The scores need intermediate tensors of B P k and B P a numbers (4,096 x 741 x 32 floats on Criteo:
388 MB). They are computed for a block of rows at a time and again in backward, so that only E is
kept.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.backbones.dropout import dropout
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import (
    LinearTerm,
    pair_matrix,
    pooled_products,
    reset_linears,
    upper_triangle,
)
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import AFMSettings

# Number of floats in the hidden layer of a block: what fits into the cache of a CPU core, or what
# keeps an accelerator busy.
CPU_BLOCK = 2**19
ACCELERATOR_BLOCK = 2**27


def pair_scores(embeddings: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
    """The attention scores s: E (B, F, k), W (a, k), b (a,), h (1, a) -> (B, P)."""
    apply: Any = _PairScores.apply  # torch has no types for `apply`
    scores: Tensor = apply(embeddings, weight, bias, head)
    return scores


class _PairScores(torch.autograd.Function):
    """The scores and their gradient. Second derivatives are not defined."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
        ctx.save_for_backward(embeddings, weight, bias, head)
        scores = []
        for rows in torch.split(embeddings, _block_rows(embeddings, len(bias))):
            hidden = F.linear(_pair_products(rows).flatten(0, 1), weight, bias).relu_()  # (R P, a)
            scores.append(F.linear(hidden, head).view(len(rows), -1))  # (R P, 1) -> (R, P)
        return torch.cat(scores)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        embeddings, weight, bias, head = ctx.saved_tensors
        d_embeddings = torch.zeros_like(embeddings)
        d_head, d_bias = torch.zeros_like(head), torch.zeros_like(bias)
        d_weight, weight_by_head = torch.zeros_like(weight), weight * head.T
        size = _block_rows(embeddings, len(bias))
        blocks = (torch.split(tensor, size) for tensor in (embeddings, d_embeddings, gradient))
        for rows, d_rows, d_scores in zip(*blocks, strict=True):
            products = _pair_products(rows)
            flat = products.flatten(0, 1)  # (R, P, k) -> (R P, k)
            hidden = F.linear(flat, weight, bias).relu_()  # (R P, a)
            column = d_scores.reshape(-1, 1)  # (R, P) -> (R P, 1)
            d_head += column.T @ hidden
            # Overwrites `hidden` with its gradient, but without the factor h: that is multiplied
            # after the sums over rows, where it is cheap.
            passed = hidden.sign_().mul_(column)
            d_bias += passed.sum(dim=0)
            d_weight += passed.T @ flat
            _add_product_gradients(d_rows, rows, (passed @ weight_by_head).view_as(products))
        return d_embeddings, d_weight * head.T, d_bias * head[0], d_head


def _block_rows(embeddings: Tensor, width: int) -> int:
    """R: the number of rows of a block, at least 1."""
    n_fields = embeddings.shape[1]
    # torch.compile would unroll the loop over blocks, and its fusion saves the same memory.
    small = embeddings.device.type == "cpu" and not torch.compiler.is_compiling()
    block = CPU_BLOCK if small else ACCELERATOR_BLOCK
    return max(1, block // max(1, n_fields * (n_fields - 1) // 2 * width))


def _pair_products(rows: Tensor) -> Tensor:
    """The products E_i * E_j, one left field i at a time: (R, F, k) -> (R, P, k)."""
    lefts = range(rows.shape[1] - 1)
    return torch.cat([rows[:, i : i + 1] * rows[:, i + 1 :] for i in lefts], dim=1)


def _add_product_gradients(d_rows: Tensor, rows: Tensor, d_products: Tensor) -> None:
    """Add the gradient of E (R, F, k) that follows from that of the products (R, P, k), which is
    overwritten.
    """
    n_fields = rows.shape[1]
    parts = torch.split(d_products, list(range(n_fields - 1, 0, -1)), dim=1)
    for left, part in enumerate(parts):
        d_rows[:, left + 1 :].addcmul_(part, rows[:, left : left + 1])
        d_rows[:, left] += part.mul_(rows[:, left + 1 :]).sum(dim=1)


class AFM(Backbone):
    """AFM. Site: `embedding` (B, F, k)."""

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
            # These layers only hold the weights under FuxiCTR's names; `pair_scores` uses them.
            self.attention = nn.Sequential(
                nn.Linear(settings.embedding_dim, settings.attention_dim),
                nn.ReLU(),
                nn.Linear(settings.attention_dim, 1, bias=False),
            )
            self.weight_p = nn.Linear(settings.embedding_dim, 1, bias=False)
        reset_linears(self)

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        linear: Tensor = self.lr_layer(ids, numerics)
        if not self._attends:
            return linear + pooled_products(embeddings).sum(dim=1)
        pooled: Tensor = self.weight_p(self._attend(embeddings)).squeeze(-1)  # (B, k) -> (B,)
        return linear + pooled

    def _attend(self, embeddings: Tensor) -> Tensor:
        """The weighted sum of the products of all pairs, (B, F, k) -> (B, k)."""
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
