"""APG: a linear layer whose weights are generated for each row.

    [b(c), S(c)] = g(c),    U = U_l U_r,    V = V_l V_r
    y = ((x U) S(c)) V + b(c)

g is a ReLU MLP and c the condition. In DCNv2, c is the layer's own input x (self-wise; fidelity
25). In front of FiBiNET's bilinear layers, x runs over the field embeddings and c is z, so that all
fields of a row share S and b (fidelity 24).

Shapes: B rows, F fields, k embedding width, d = F k, in, out and c widths of a layer's input,
output and condition, k' rank, p inner width of U and V. Yan et al., APG: Adaptive Parameter
Generation Network for Click-Through Rate Prediction, NeurIPS 2022; as FuxiCTR 2.3.10's APG.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones.interface import Backbone
from prime_bench.plugins.interface import Attachment
from prime_bench.settings.interface import BackboneSettings, TableShape
from prime_bench.settings.plugins import APGSettings, APGShape


class APGLinear(nn.Module):
    """A generated linear layer: x (B, n, in), condition (B, c) -> (B, n, out)."""

    def __init__(
        self, shape: APGShape, settings: APGSettings, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        inner, self._rank, self._width_out = settings.overparam_p, settings.rank_k, shape.width_out
        sizes = [(shape.width_in, inner), (inner, self._rank)]
        sizes += [(self._rank, inner), (inner, shape.width_out)]
        self.U_l, self.U_r, self.V_l, self.V_r = (nn.Parameter(torch.empty(s)) for s in sizes)
        for parameter in (self.U_l, self.U_r, self.V_l, self.V_r):
            nn.init.xavier_normal_(parameter, generator=generator)
        layers: list[nn.Module] = []
        width = shape.condition
        for units in settings.hypernet_hidden_units:
            layers += [_linear(width, units, generator=generator), nn.ReLU()]
            width = units
        layers.append(_linear(width, settings.out(shape.width_out), generator=generator))
        self.hypernet = nn.Sequential(*layers)

    def generate(self, x: Tensor, condition: Tensor) -> Tensor:
        """Apply to x (B, n, in) the weights that are generated from `condition` (B, c)."""
        generated = self.hypernet(condition)  # (B, c) -> (B, out + k' k')
        bias, matrix = generated.split([self._width_out, self._rank**2], dim=1)
        matrix = matrix.view(-1, self._rank, self._rank)
        inside = torch.bmm(x @ (self.U_l @ self.U_r), matrix)  # (B, n, in) -> (B, n, k')
        y: Tensor = inside @ (self.V_l @ self.V_r) + bias.unsqueeze(1)  # (B, n, out)
        return y


class SelfWise(APGLinear):
    """Replaces a Linear: (B, in) -> (B, out), conditioned on its own input."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, in) -> (B, out)."""
        return self.generate(x.unsqueeze(1), x).squeeze(1)


class OfFields(APGLinear):
    """Replaces the site `embedding`: (B, F, k) -> (B, F, k), conditioned on all fields."""

    def forward(self, embeddings: Tensor) -> Tensor:
        """Apply the same generated weights to all fields of a row."""
        return self.generate(embeddings, embeddings.flatten(1))


class APG(Attachment):
    """APG on DCNv2 or FiBiNET. All initial values are drawn from `generator`.

    Raises UsageError for a backbone on which APG is not defined.
    """

    def __init__(
        self,
        backbone: Backbone,
        settings: APGSettings,
        *,
        backbone_settings: BackboneSettings,
        shape: TableShape,
        generator: torch.Generator,
    ) -> None:
        shapes = settings.layers(backbone_settings, shape)
        replaced = all(each.replaced for each in shapes)
        kind = SelfWise if replaced else OfFields
        layers = [kind(each, settings, generator=generator) for each in shapes]
        paths = backbone.top_layers if replaced else ["sites.embedding"]
        super().__init__(dict(zip(paths, layers, strict=True)))


def _linear(width_in: int, width_out: int, *, generator: torch.Generator) -> nn.Linear:
    """A Linear initialised as FuxiCTR does, but from `generator` and not torch's global one."""
    with torch.device("meta"):
        empty = nn.Linear(width_in, width_out)
    layer = empty.to_empty(device="cpu")
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
