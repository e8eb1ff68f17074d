"""What every plug-in is: a module that turns the backbone's logit into a probability.

Shapes: B rows, d width of the flattened embeddings z, d' width of the router's input.
"""

from abc import abstractmethod

from torch import Tensor, nn


class Plugin(nn.Module):
    """Reads z and the backbone's logit l_d, and leaves the backbone as it is."""

    @abstractmethod
    def forward(self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None) -> Tensor:
        """z (B, d), l_d (B,), router input (B, d') where it is not z -> probability (B,)."""

    @abstractmethod
    def log_probabilities(
        self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same -> (log p, log(1 - p)), (B,) each: exact where p itself would round to 0 or 1
        (fidelity 13).
        """
