"""The two interfaces of plug-ins.

A `Plugin` is a module that turns the backbone's logit into a probability. An `Attachment` replaces
modules of the backbone.

Shapes: B rows, d width of z, d' width of the router's input, G bags, M experts of a bag.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from prime_bench.backbones.interface import Backbone, replace

StreamValue = Tensor | int | float | str
"""What the state of a random stream may consist of."""


class Plugin(nn.Module):
    """A module that reads z and the backbone's logit l_d, and leaves the backbone unchanged.

    Only `forward` and `log_probabilities` must be defined.
    """

    starts_neutral: ClassVar[bool] = True
    """Whether the predictions before the first update are bitwise those of the dense arm, which
    `prime-bench check` tests with the defaults of the settings. PRIME and the residuals with
    `anchor = "probability"` are where the dense probability is in [eps, 1 - eps]; elsewhere they
    are within (1 - alpha) eps of it (fidelity 14, 40)."""
    uncompiled: ClassVar[tuple[str, ...]] = ()
    """Names of methods that torch.compile leaves out, since it cannot compile them."""

    @abstractmethod
    def forward(self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None) -> Tensor:
        """z (B, d), l_d (B,), router's input (B, d') if it is not z -> probability (B,)."""

    @abstractmethod
    def log_probabilities(
        self, z: Tensor, dense_logit: Tensor, router_input: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `forward`, but returns (log p, log(1 - p)), (B,) each.

        These are accurate also where p would round to 0 or 1 (fidelity 13).
        """

    def use_seed(self, seed: int) -> None:
        """Receive the seed of the run; called once, before training.

        A plug-in that draws random numbers after its construction derives its own random streams
        from the seed by `base.streams.derive`. Most plug-ins need none.
        """

    def stream_state(self) -> dict[str, StreamValue]:
        """The state of the plug-in's own random streams between two epochs.

        It is saved, so that a run can continue in another process. Parameters and buffers are saved
        elsewhere and need not be part of it.
        """
        return {}

    def load_stream_state(self, state: Mapping[str, StreamValue]) -> None:
        """Continue the random streams from a `state` that `stream_state` returned."""

    def prepare_batch(self, n_rows: int) -> None:
        """Called before each training batch, with its number of rows.

        Whatever `forward` needs from the host in train mode, such as random numbers that are drawn
        on the CPU, is copied here into tensors that keep their memory: on a GPU the rest of a step
        is a CUDA graph, in which Python code runs no more after the first steps.
        """

    def routing(self, z: Tensor, router_input: Tensor | None = None) -> Tensor | None:  # noqa: ARG002
        """The weights of the experts (B, G, M) in evaluation; None without routers."""
        return None

    def take_routing(self) -> tuple[Tensor, Tensor] | None:
        """Routing in the training batches since the last call, as tensors on the device.

        Returns the mean routing entropy of a row in nats (G,) and the mean load of each expert
        (G, M), averaged over batches; None without routers or without batches.
        """
        return None

    def auxiliary_loss(self) -> Tensor | None:
        """A term that is added to the loss of the last forward pass in train mode, or None."""
        return None

    def update_buffers(self) -> None:
        """Update buffers after a batch in train mode, without a gradient.

        A plug-in calls this at the end of its forward pass, except while that is compiled: the
        training step then calls it.
        """


class Attachment:
    """Modules that replace modules of the backbone.

    `modules` is path -> module, with paths that `backbones.interface.replace` accepts.
    """

    starts_neutral: ClassVar[bool] = False
    """As `Plugin.starts_neutral`."""

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        self._outside = modules

    def swap(self, backbone: Backbone) -> None:
        """Exchange the modules with those of the backbone. A second call restores the backbone.

        The inserted modules are moved to the device and the dtype of the backbone.
        """
        like = next(backbone.parameters())
        self._outside = {
            path: replace(backbone, path, module.to(like)) for path, module in self._outside.items()
        }
