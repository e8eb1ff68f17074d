"""AFM's attention scores of all pairs of fields, block by block of rows.

    s_p = h . ReLU(W (E_i * E_j) + b),    p = (i, j), i < j

On their way the scores need tensors of B P k and B P a numbers (4,096 x 741 x 32 floats on Criteo:
388 MB). Here they exist for a block of rows at a time, and backward makes them again: only E is
kept.

Shapes: B rows, F fields, k embedding width, P = F (F - 1) / 2 pairs in row order of the upper
triangle, a width of the hidden layer, R rows of a block.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Floats of a block's hidden layer: what a core's cache holds, or on an accelerator what keeps it
# busy.
CPU_BLOCK = 2**19
ACCELERATOR_BLOCK = 2**27


def pair_scores(embeddings: Tensor, weight: Tensor, bias: Tensor, head: Tensor) -> Tensor:
    """E (B, F, k), W (a, k), b (a,), h (1, a) -> (B, P)."""
    apply: Any = _PairScores.apply  # torch gives the method no types
    scores: Tensor = apply(embeddings, weight, bias, head)
    return scores


class _PairScores(torch.autograd.Function):
    """The scores and their gradient; second derivatives are not there."""

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
            # In place of the hidden layer: where it lets through, the score's gradient; h follows
            # below, where a row of it is one number.
            passed = hidden.sign_().mul_(column)
            d_bias += passed.sum(dim=0)
            d_weight += passed.T @ flat
            _add_product_gradients(d_rows, rows, (passed @ weight_by_head).view_as(products))
        return d_embeddings, d_weight * head.T, d_bias * head[0], d_head


def _block_rows(embeddings: Tensor, width: int) -> int:
    """R, at least 1."""
    n_fields = embeddings.shape[1]
    # A compiler would unroll the loop over blocks, and fuses by itself what they save.
    small = embeddings.device.type == "cpu" and not torch.compiler.is_compiling()
    block = CPU_BLOCK if small else ACCELERATOR_BLOCK
    return max(1, block // max(1, n_fields * (n_fields - 1) // 2 * width))


def _pair_products(rows: Tensor) -> Tensor:
    """(R, F, k) -> (R, P, k): E_i * E_j, all pairs of one left field at a time."""
    lefts = range(rows.shape[1] - 1)
    return torch.cat([rows[:, i : i + 1] * rows[:, i + 1 :] for i in lefts], dim=1)


def _add_product_gradients(d_rows: Tensor, rows: Tensor, d_products: Tensor) -> None:
    """Add to (R, F, k) what the gradient (R, P, k) of the products says; the latter is used up."""
    n_fields = rows.shape[1]
    parts = torch.split(d_products, list(range(n_fields - 1, 0, -1)), dim=1)
    for left, part in enumerate(parts):
        d_rows[:, left + 1 :].addcmul_(part, rows[:, left : left + 1])
        d_rows[:, left] += part.mul_(rows[:, left + 1 :]).sum(dim=1)
