"""What every backbone is, and the two ways in which a plug-in may touch it.

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k.
"""

from abc import abstractmethod
from collections.abc import Iterable

from torch import Tensor, nn


class Backbone(nn.Module):
    """A CTR model. No device, optimiser, loss, sigmoid or checkpoint inside.

    Plug-ins attach from outside, in two ways: a *site* (read or replace an activation by a hook on
    an identity module) and `replace` (swap a layer of the Top-NN, or a site's module). The backbone
    does not know that plug-ins exist.
    """

    sites: nn.ModuleDict
    """Identity modules. "embedding" (always) sees all fields' embeddings, (B, F, k), in schema
    order; "top_input" what the Top-NN reads, wherever there is a Top-NN; "cross_1", ... the outputs
    of cross layers."""
    top_layers: list[str]
    """Paths of the Top-NN's hidden Linears, in order, which `replace` may swap; may be empty."""
    top_parameters: list[str]
    """Names of all parameters of the shared Top-NN, for the gradient diagnosis (fidelity 36)."""

    shared_head: tuple[str, ...] = ()
    """Names of the output layer's parameters where another path shares it with the Top-NN, so that
    they are not among `top_parameters`."""

    @abstractmethod
    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) int, each field's from 0, and values (B, K) float32 -> logits (B,)."""

    @abstractmethod
    def embedding_parameters(self) -> list[nn.Parameter]:
        """What the embedding L2 term covers: main and linear tables, numeric fields' weights."""


def identity_sites(names: Iterable[str]) -> nn.ModuleDict:
    """A site for each name."""
    return nn.ModuleDict({name: nn.Identity() for name in names})


def replace(backbone: Backbone, path: str, module: nn.Module) -> nn.Module:
    """Put `module` in place of the Top-NN layer or the site (`sites.<name>`) at `path`, and return
    the old one. `top_parameters` follows.

    Raises KeyError for a path that is neither in `top_layers` nor a site.
    """
    if path not in backbone.top_layers and path not in [f"sites.{name}" for name in backbone.sites]:
        raise KeyError(
            f"{path} is no hidden layer of the Top-NN and no site; "
            f"there are {backbone.top_layers} and {list(backbone.sites)}"
        )
    parent, _, name = path.rpartition(".")
    owner = backbone.get_submodule(parent)
    old = owner.get_submodule(name)
    setattr(owner, name, module)
    if path in backbone.top_layers:
        backbone.top_parameters = _renamed(backbone.top_parameters, f"{path}.", module)
    return old


def _renamed(names: list[str], prefix: str, module: nn.Module) -> list[str]:
    """`names` with those below `prefix` replaced by the parameters of `module`, in their place."""
    at = next(i for i, name in enumerate(names) if name.startswith(prefix))
    others = [name for name in names if not name.startswith(prefix)]
    return [*others[:at], *(prefix + name for name, _ in module.named_parameters()), *others[at:]]
