"""Products of all pairs of fields, i < j, without a tensor of pairs where none is needed.

Shapes: B rows, F fields, k embedding width, P = F (F - 1) / 2 pairs, in the order (0, 1), (0, 2),
..., (1, 2), ...
"""

import torch
from torch import Tensor


def upper_triangle(n_fields: int) -> Tensor:
    """Places (P,) of the pairs in a flattened (F, F) matrix."""
    pairs = torch.triu_indices(n_fields, n_fields, offset=1)
    return pairs[0] * n_fields + pairs[1]


def pooled_products(embeddings: Tensor) -> Tensor:
    """(B, F, k) -> (B, k): the sum over pairs of E_i * E_j, as ((sum E)^2 - sum E^2) / 2."""
    total: Tensor = embeddings.sum(dim=1)
    return (total.square() - embeddings.square().sum(dim=1)) / 2


def inner_products(embeddings: Tensor, upper: Tensor) -> Tensor:
    """(B, F, k) -> (B, P): <E_i, E_j> of all pairs."""
    products = torch.bmm(embeddings, embeddings.transpose(1, 2))  # (B, F, F)
    return products.flatten(1).index_select(1, upper)


def pair_matrix(values: Tensor, upper: Tensor, n_fields: int) -> Tensor:
    """(B, P) -> (B, F, F): each row's values over the diagonal, zeros elsewhere."""
    flat = values.new_zeros(len(values), n_fields * n_fields).index_copy(1, upper, values)
    return flat.view(-1, n_fields, n_fields)
