"""What every plug-in is: a module that turns the backbone's logit into a probability, or modules
that take the place of the backbone's own.

Shapes: B rows, d width of the flattened embeddings z, d' width of the router's input.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from prime_bench.backbones.interface import Backbone, replace


class Plugin(nn.Module):
    """Reads z and the backbone's logit l_d, and leaves the backbone as it is."""

    starts_neutral: ClassVar[bool] = True
    """Whether the first predictions are bitwise the Dense arm's, as `prime-bench check` asserts."""
    uncompiled: ClassVar[tuple[str, ...]] = ()
    """Names of methods with which torch.compile cannot deal, and need not: they run as they are."""

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

    def use_seed(self, seed: int) -> None:
        """Told once, before training: what `base.streams.derive` needs to make a random stream of
        the plug-in's own, beside the generator of its initial values. Most have none.
        """

    def stream_state(self) -> dict[str, Any]:
        """Where the plug-in's own random streams stand between two epochs, as tensors, numbers and
        texts, so that a run can go on in another process. Parameters and buffers need not be here.
        """
        return {}

    def load_stream_state(self, state: Mapping[str, Any]) -> None:
        """Go on as the plug-in that gave `state` would."""

    def routing(self, z: Tensor, router_input: Tensor | None = None) -> Tensor | None:  # noqa: ARG002
        """The rows' weights of each bag's experts (B, G, M), as an evaluation uses them; None
        without routers.
        """
        return None

    def take_routing(self) -> tuple[Tensor, Tensor] | None:
        """What a plug-in with routers did with the training batches since the last call, on the
        device: the rows' routing entropy in nats (G,) and the load of each expert (G, M), means
        over batches; None where there was no batch or is no router.
        """
        return None

    def auxiliary_loss(self) -> Tensor | None:
        """What the last forward pass in train mode adds to a training step's loss, or None."""
        return None

    def follow(self) -> None:
        """Move buffers after a batch in train mode, without a gradient. A plug-in calls it at the
        end of its forward pass, but not where that is being compiled: a training step then does.
        """


class Attachment:
    """Modules that take the place of others in the backbone, and belong to it as long as they do.

    `modules` has a path for `backbones.interface.replace` -> module.
    """

    starts_neutral: ClassVar[bool] = False
    """As a plug-in's."""

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        self._outside = modules

    def swap(self, backbone: Backbone) -> None:
        """Exchange the modules with the backbone's; a second call gives it its own ones back.

        What goes in moves to the device and the dtype of the backbone.
        """
        like = next(backbone.parameters())
        self._outside = {
            path: replace(backbone, path, module.to(like)) for path, module in self._outside.items()
        }
