"""What every backbone is, and the two ways in which a plug-in may touch it.

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k.
"""

from abc import abstractmethod

from torch import Tensor, nn


class Backbone(nn.Module):
    """A CTR model. No device, optimiser, loss, sigmoid or checkpoint inside.

    Plug-ins attach from outside, in two ways: a *site* (read or replace an activation by a hook on
    an identity module) and `replace` (swap a layer of the Top-NN). The backbone does not know that
    plug-ins exist.
    """

    sites: nn.ModuleDict
    """Identity modules. "embedding" (always) sees all fields' embeddings, (B, F, k), in schema
    order; "top_input" what the Top-NN reads, wherever there is a Top-NN; "cross_1", ... the outputs
    of cross layers."""
    top_layers: list[str]
    """Paths of the Top-NN's hidden Linears, in order, which `replace` may swap; may be empty."""
    top_parameters: list[str]
    """Names of all parameters of the shared Top-NN, for the gradient diagnosis (fidelity 36)."""

    @abstractmethod
    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) int, each field's from 0, and values (B, K) float32 -> logits (B,)."""

    @abstractmethod
    def embedding_parameters(self) -> list[nn.Parameter]:
        """What the embedding L2 term covers: main and linear tables, numeric fields' weights."""


def replace(backbone: Backbone, path: str, module: nn.Module) -> nn.Module:
    """Put `module` in place of the Top-NN layer at `path` and return the old one.

    Raises KeyError for a path that is not in `top_layers`.
    """
    if path not in backbone.top_layers:
        raise KeyError(f"{path} is no hidden layer of the Top-NN; there are {backbone.top_layers}")
    parent, _, name = path.rpartition(".")
    owner = backbone.get_submodule(parent)
    old = owner.get_submodule(name)
    setattr(owner, name, module)
    return old
