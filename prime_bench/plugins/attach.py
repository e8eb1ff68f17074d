"""The model that is trained: a backbone with at most one plug-in.

Shapes: B rows, C categorical and K numeric fields, k embedding width, d = (C + K) k.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from prime_bench.backbones.interface import Backbone
from prime_bench.plugins.interface import Attachment, Plugin


class Tap:
    """A forward hook that keeps the output of its module until `take` is called."""

    def __init__(self) -> None:
        self._output: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG002
        """Called by torch after the module's forward."""
        self._output = output

    def take(self) -> Tensor | None:
        """Return the output and forget it, so that no graph stays alive between forward passes."""
        output, self._output = self._output, None
        return output


class ArmModel(nn.Module):
    """A backbone with a plug-in, which gives click probabilities.

    A `Plugin` reads z, the flattened output of `input_site`, and the backbone's logit; its router
    reads the output of `router_site` if one is given. An `Attachment` replaces modules of the
    backbone. None is the dense arm: the backbone alone.
    """

    plugin: Plugin | None

    def __init__(
        self,
        backbone: Backbone,
        plugin: Plugin | Attachment | None = None,
        *,
        input_site: str = "embedding",
        router_site: str | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.plugin = plugin if isinstance(plugin, Plugin) else None
        self._attachment = plugin if isinstance(plugin, Attachment) else None
        self._sites = [input_site] if router_site is None else [input_site, router_site]
        self._taps = [Tap() for _ in self._sites]
        self._hooks: list[RemovableHandle] = []
        if self._attachment is not None:
            self._attachment.swap(backbone)
        if self.plugin is not None:
            for site, tap in zip(self._sites, self._taps, strict=True):
                self._hooks.append(backbone.sites[site].register_forward_hook(tap))

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) int32 or int64, values (B, K) -> click probability (B,)."""
        if self.plugin is None:
            return torch.sigmoid(self.backbone(ids, numerics))
        probability: Tensor = self.plugin(*self._run(ids, numerics))
        return probability

    def log_probabilities(self, ids: Tensor, numerics: Tensor) -> tuple[Tensor, Tensor]:
        """As `forward`, but returns (log p, log(1 - p)), (B,) each, for `loss = "logit"` (fidelity
        13).
        """
        if self.plugin is None:
            logit = self.backbone(ids, numerics)
            return F.logsigmoid(logit), F.logsigmoid(-logit)
        return self.plugin.log_probabilities(*self._run(ids, numerics))

    def routing(self, ids: Tensor, numerics: Tensor) -> Tensor | None:
        """Ids (B, C), values (B, K) -> the routers' weights of the experts (B, G, M).

        None if the plug-in has no routers.
        """
        if self.plugin is None:
            return None
        z, _, router_input = self._run(ids, numerics)
        return self.plugin.routing(z, router_input)

    def auxiliary_loss(self) -> Tensor | None:
        """The plug-in's term in the loss of the last training batch, or None."""
        return None if self.plugin is None else self.plugin.auxiliary_loss()

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The parameters in the embedding L2 term."""
        return self.backbone.embedding_parameters()

    def network_parameters(self) -> list[nn.Parameter]:
        """All other trainable parameters, the plug-in's included, which are those in the term
        `network_l2` (fidelity 35).
        """
        embeddings = {id(parameter) for parameter in self.embedding_parameters()}
        return [p for p in self.parameters() if p.requires_grad and id(p) not in embeddings]

    def detach(self) -> Backbone:
        """Remove the plug-in and return the backbone with its own modules and without hooks.

        This model is then the dense arm.
        """
        for hook in self._hooks:
            hook.remove()
        if self._attachment is not None:
            self._attachment.swap(self.backbone)
        self._hooks, self.plugin, self._attachment = [], None, None
        return self.backbone

    def _run(self, ids: Tensor, numerics: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Run the backbone; returns z (B, d), the logit (B,) and the router's input (B, d') or
        None.
        """
        try:
            logit = self.backbone(ids, numerics)
        finally:
            found = [tap.take() for tap in self._taps]
        flat = []
        for site, activation in zip(self._sites, found, strict=True):
            assert activation is not None, f"the backbone did not pass its site `{site}`"
            flat.append(activation.flatten(1))  # (B, F, k) -> (B, d)
        return flat[0], logit, flat[1] if len(flat) > 1 else None
