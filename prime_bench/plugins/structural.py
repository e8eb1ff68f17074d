"""Arms that change the backbone itself: two designs with experts inside the Top-NN, and LayerNorm
in front of the backbone.

    hidden subspace      y = W x + w + mean over g of sum over e of r_ge U_ge V_ge x
    multi-layer bagged   y = mean over g of sum over e of r_ge U_ge SiLU(V_ge LN(x)) + b
    r_ge = softmax over e of a_ge . LN(x)

at every hidden Linear (W, w) of the Top-NN. The layers after a Linear (batch norm, ReLU, dropout)
stay, and LN has no affine parameters. U, V and the routers are Xavier normal with the fans of one
expert or one bag. There is no anchor, so neither arm starts as the dense function. The paper only
names the two designs; the equations are our reading (fidelity 27, 28).

Shapes: B rows, in and out widths of a layer, G bags, M experts of a bag, E = G M, q rank.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.backbones.interface import Backbone
from prime_bench.plugins.interface import Attachment
from prime_bench.settings.interface import BackboneSettings, TableShape
from prime_bench.settings.plugins import (
    DenseLayerNormSettings,
    HiddenExpertsSettings,
)


class HiddenExperts(nn.Module):
    """E routed low-rank experts for one layer."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        settings: HiddenExpertsSettings,
        *,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self._bags, self._rank = settings.bags, settings.rank
        experts, rank, per_bag = settings.experts, settings.rank, settings.experts_per_bag
        self.expert_in = nn.Parameter(torch.empty(experts, rank, width_in))  # V
        self.expert_out = nn.Parameter(torch.empty(experts, rank, width_out))  # U, transposed
        self.router = nn.Parameter(torch.empty(experts, width_in))  # a
        for weight, fans in (
            (self.expert_in, width_in + rank),
            (self.expert_out, rank + width_out),
            (self.router, width_in + per_bag),
        ):
            nn.init.normal_(weight, std=math.sqrt(2 / fans), generator=generator)

    def route(self, normalised: Tensor) -> Tensor:
        """LN(x) (B, in) -> weights (B, E) of the experts, which sum to 1 over all bags together."""
        scores = F.linear(normalised, self.router).view(len(normalised), self._bags, -1)
        return torch.softmax(scores, dim=-1).flatten(1) / self._bags

    def inside(self, x: Tensor) -> Tensor:
        """V x for every expert, (B, in) -> (B, E q)."""
        return F.linear(x, self.expert_in.flatten(0, 1))

    def outside(self, weights: Tensor, inside: Tensor) -> Tensor:
        """The weighted sum of U applied to `inside` (B, E q), with weights (B, E) -> (B, out)."""
        weighted = inside * weights.repeat_interleave(self._rank, dim=1)
        return weighted @ self.expert_out.flatten(0, 1)


class SubspaceLayer(HiddenExperts):
    """The backbone's own Linear plus routed experts, (B, in) -> (B, out)."""

    def __init__(
        self, linear: nn.Linear, settings: HiddenExpertsSettings, *, generator: torch.Generator
    ) -> None:
        super().__init__(linear.in_features, linear.out_features, settings, generator=generator)
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        """x (B, in) -> (B, out)."""
        weights = self.route(F.layer_norm(x, x.shape[-1:]))
        y: Tensor = self.linear(x) + self.outside(weights, self.inside(x))
        return y


class BaggedLayer(HiddenExperts):
    """Routed experts in place of a Linear, (B, in) -> (B, out)."""

    def __init__(
        self, linear: nn.Linear, settings: HiddenExpertsSettings, *, generator: torch.Generator
    ) -> None:
        super().__init__(linear.in_features, linear.out_features, settings, generator=generator)
        self.bias = nn.Parameter(torch.zeros(linear.out_features))

    def forward(self, x: Tensor) -> Tensor:
        """x (B, in) -> (B, out)."""
        normalised = F.layer_norm(x, x.shape[-1:])
        inside = F.silu(self.inside(normalised))
        return self.outside(self.route(normalised), inside) + self.bias


class _AtEveryHiddenLayer(Attachment):
    """Replaces every hidden Linear of the Top-NN by a module of the class `layer`."""

    layer: type[SubspaceLayer] | type[BaggedLayer]

    def __init__(
        self,
        backbone: Backbone,
        settings: HiddenExpertsSettings,
        *,
        backbone_settings: BackboneSettings,  # noqa: ARG002
        shape: TableShape,  # noqa: ARG002
        generator: torch.Generator,
    ) -> None:
        super().__init__(
            {
                path: self.layer(linear, settings, generator=generator)
                for path, linear in _hidden(backbone)
            }
        )


class HiddenSubspace(_AtEveryHiddenLayer):
    """A SubspaceLayer at every hidden Linear of the Top-NN."""

    layer = SubspaceLayer


class MultilayerBagged(_AtEveryHiddenLayer):
    """A BaggedLayer at every hidden Linear of the Top-NN."""

    layer = BaggedLayer


class NormalisedEmbeddings(nn.Module):
    """(B, F, k) -> (B, F, k): LayerNorm over a row's d = F k numbers, without affine."""

    def forward(self, embeddings: Tensor) -> Tensor:
        """LN(z) in the shape (B, F, k)."""
        return F.layer_norm(embeddings, embeddings.shape[1:])


class DenseLayerNorm(Attachment):
    """Puts LN(z) in place of z at the site `embedding` (fidelity 38)."""

    def __init__(
        self,
        backbone: Backbone,  # noqa: ARG002
        settings: DenseLayerNormSettings,  # noqa: ARG002
        *,
        backbone_settings: BackboneSettings,  # noqa: ARG002
        shape: TableShape,  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> None:
        super().__init__({"sites.embedding": NormalisedEmbeddings()})


def _hidden(backbone: Backbone) -> list[tuple[str, nn.Linear]]:
    layers = [(path, backbone.get_submodule(path)) for path in backbone.top_layers]
    return [(path, layer) for path, layer in layers if isinstance(layer, nn.Linear)]
