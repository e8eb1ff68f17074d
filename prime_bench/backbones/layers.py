"""Parts that several backbones share: initialisation, the linear term, products of fields, MLPs."""

import torch
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import TopSettings


def reset_linears(module: nn.Module) -> None:
    """Initialise every nn.Linear in `module`: weights Xavier normal, biases 0.

    Weights are drawn in the order of the modules from torch's global CPU generator.
    """
    for layer in module.modules():
        if type(layer) is nn.Linear:
            nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def linear_paths(module: nn.Module, name: str) -> list[str]:
    """The paths of all Linears in the submodule `name` of `module`, in order."""
    inside = module.get_submodule(name).named_modules(prefix=name)
    return [path for path, layer in inside if type(layer) is nn.Linear]


def parameter_paths(module: nn.Module, name: str) -> list[str]:
    """The names within `module` of all parameters in its submodule `name`."""
    return [path for path, _ in module.get_submodule(name).named_parameters(prefix=name)]


def mlp_with_head(module: nn.Module, name: str) -> tuple[list[str], list[str]]:
    """`top_layers` and `top_parameters` of a Top-NN that is the MLP `name` with an output layer.

    These are the paths of all its Linears but the last, and the names of all its parameters.
    """
    return linear_paths(module, name)[:-1], parameter_paths(module, name)


class LinearTerm(nn.Module):
    """The linear term LR(x): ids (B, C), numerics (B, K) -> (B,).

    Its weights are a FieldEmbedding of width 1; the bias starts at 0.
    """

    bias: nn.Parameter | None

    def __init__(self, schema: Schema, *, bias: bool = False) -> None:
        super().__init__()
        self.embedding = FieldEmbedding(schema, 1)
        self.bias = nn.Parameter(torch.zeros(1)) if bias else None

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Sum the weights of all fields of a row."""
        total: Tensor = self.embedding(ids, numerics).sum(dim=(1, 2))  # (B, F, 1) -> (B,)
        return total if self.bias is None else total + self.bias

    def embedding_parameters(self) -> list[nn.Parameter]:
        """All parameters but the bias."""
        return list(self.embedding.parameters())


def upper_triangle(n_fields: int) -> Tensor:
    """The positions (P,) of the pairs i < j in a flattened (F, F) matrix."""
    pairs = torch.triu_indices(n_fields, n_fields, offset=1)
    return pairs[0] * n_fields + pairs[1]


def pooled_products(embeddings: Tensor) -> Tensor:
    """The sum of E_i * E_j over all pairs, as ((sum E)^2 - sum E^2) / 2: (B, F, k) -> (B, k)."""
    total: Tensor = embeddings.sum(dim=1)
    return (total.square() - embeddings.square().sum(dim=1)) / 2


def inner_products(embeddings: Tensor, upper: Tensor) -> Tensor:
    """The inner products <E_i, E_j> of all pairs, (B, F, k) -> (B, P)."""
    products = torch.bmm(embeddings, embeddings.transpose(1, 2))  # (B, F, F)
    return products.flatten(1).index_select(1, upper)


def pair_matrix(values: Tensor, upper: Tensor, n_fields: int) -> Tensor:
    """Put the values of all pairs above the diagonal of a matrix of zeros, (B, P) -> (B, F, F)."""
    flat = values.new_zeros(len(values), n_fields * n_fields).index_copy(1, upper, values)
    return flat.view(-1, n_fields, n_fields)


def top_mlp(width: int, settings: TopSettings) -> nn.Module:
    """The MLP with output layer that `settings` describe, (B, width) -> (B, 1)."""
    return fuxi.mlp(
        width,
        settings.hidden_units,
        width_out=1,
        dropout=settings.net_dropout,
        batch_norm=settings.batch_norm,
    )
