"""Initial values as FuxiCTR's `reset_parameters` sets them, and where Linears of an MLP are."""

from torch import nn


def reset_linears(module: nn.Module) -> None:
    """Every nn.Linear inside: weight Xavier normal, bias 0; drawn in module order from torch's
    global CPU generator.
    """
    for layer in module.modules():
        if type(layer) is nn.Linear:
            nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def linear_paths(module: nn.Module, name: str) -> list[str]:
    """Paths of the Linears in the submodule `name` of `module`, in order."""
    inside = module.get_submodule(name).named_modules(prefix=name)
    return [path for path, layer in inside if type(layer) is nn.Linear]


def parameter_paths(module: nn.Module, name: str) -> list[str]:
    """Names, seen from `module`, of all parameters in its submodule `name`."""
    return [path for path, _ in module.get_submodule(name).named_parameters(prefix=name)]


def mlp_with_head(module: nn.Module, name: str) -> tuple[list[str], list[str]]:
    """Paths of the hidden Linears and names of all parameters of the MLP `name`, whose last Linear
    is the output layer.
    """
    return linear_paths(module, name)[:-1], parameter_paths(module, name)
