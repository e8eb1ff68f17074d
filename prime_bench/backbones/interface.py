"""The interface of a backbone, and the two ways in which a plug-in attaches to it.

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k.
"""

from abc import abstractmethod
from collections.abc import Iterable

from torch import Tensor, nn


class Backbone(nn.Module):
    """A CTR model that computes a logit; device, optimiser, loss and sigmoid are elsewhere.

    Plug-ins attach from outside and a backbone has no code for them. There are two ways: a *site*
    is an identity module whose activation a hook can read or replace, and `replace` puts another
    module in place of a hidden layer of the Top-NN or of a site.
    """

    sites: nn.ModuleDict
    """Identity modules by name. `embedding`, which every backbone has, sees the embeddings of all
    fields, (B, F, k), in schema order; `top_input` sees the input of the Top-NN, if there is one;
    `cross_1`, ... see the outputs of cross layers."""
    top_layers: list[str]
    """Paths of the hidden Linears of the Top-NN, in order; `replace` accepts them. Empty without a
    Top-NN, as is `top_parameters`; both are empty unless a class sets them."""
    top_parameters: list[str]
    """Names of all parameters of the Top-NN, whose gradients the probe measures (fidelity 36)."""

    shared_head: tuple[str, ...] = ()
    """Names of the parameters of an output layer that another path shares with the Top-NN. They are
    not among `top_parameters`."""

    def __init__(self) -> None:
        super().__init__()
        self.top_layers, self.top_parameters = [], []

    @abstractmethod
    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) int32 or int64 and values (B, K) float32 -> logits (B,).

        The ids of each field start at 0.
        """

    @abstractmethod
    def embedding_parameters(self) -> list[nn.Parameter]:
        """The parameters of the embedding L2 term: all tables, and weights of numeric fields."""


def identity_sites(names: Iterable[str]) -> nn.ModuleDict:
    """Identity modules for sites of these names."""
    return nn.ModuleDict({name: nn.Identity() for name in names})


def replace(backbone: Backbone, path: str, module: nn.Module) -> nn.Module:
    """Put `module` in place of the hidden layer or the site (`sites.<name>`) at `path`.

    Updates `top_parameters` and returns the replaced module. Raises KeyError for a path that is
    neither in `top_layers` nor a site.
    """
    if path not in backbone.top_layers and path not in [f"sites.{name}" for name in backbone.sites]:
        raise KeyError(
            f"{path} is neither a hidden layer of the Top-NN nor a site; "
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
    """`names` with those that start with `prefix` replaced by the parameters of `module`."""
    at = next(i for i, name in enumerate(names) if name.startswith(prefix))
    others = [name for name in names if not name.startswith(prefix)]
    return [*others[:at], *(prefix + name for name, _ in module.named_parameters()), *others[at:]]
