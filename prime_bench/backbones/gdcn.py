"""GDCN: an MLP on the output of gated cross layers (the stacked form, fidelity 9).

    x_0 = z = vec(E),    x_{l+1} = x_0 * (W_l x_l + b_l) * sigmoid(G_l x_l) + x_l
    l = MLP(x_L; h; 1)

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k, L cross
layers. Wang et al., Towards Deeper, Lighter and Interpretable Cross Network for CTR Prediction,
CIKM 2023; as FuxiCTR 2.3.10's GDCN, whose parameter names these are. The Top-NN is the MLP.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import mlp_with_head, reset_linears
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import GDCNSettings


class GatedCrossNet(nn.Module):
    """The weights of L gated cross layers of width d: `w` and `wg` (d, d), `b` (d,)."""

    def __init__(self, width: int, n_layers: int) -> None:
        super().__init__()
        self.w, self.wg = (
            nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(n_layers))
            for _ in range(2)
        )
        # Uniform over [0, 1), as in FuxiCTR, whose reset only covers layers and not parameters.
        self.b = nn.ParameterList(nn.Parameter(torch.rand(width)) for _ in range(n_layers))

    def layer(self, number: int, x: Tensor, base: Tensor) -> Tensor:
        """Apply layer `number`, counted from 0: x_l and x_0 (B, d) -> x_{l+1} (B, d)."""
        gate = torch.sigmoid(self.wg[number](x))
        return torch.addcmul(x, base * (self.w[number](x) + self.b[number]), gate)


class GDCN(Backbone):
    """GDCN. Sites: `embedding` (B, F, k), and, (B, d) each, `cross_1` to `cross_<L-1>`, `cross_out`
    (the output of the last cross layer) and `top_input`.
    """

    def __init__(self, schema: Schema, settings: GDCNSettings) -> None:
        super().__init__()
        width = settings.input_width(schema.shape)
        self.sites = identity_sites(settings.sites)
        self._cross_sites = settings.inner_sites
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.cross_net = GatedCrossNet(width, settings.num_cross_layers)
        self.dnn = fuxi.mlp(
            width,
            settings.dnn_hidden_units,
            width_out=1,
            dropout=settings.net_dropout,
            batch_norm=settings.batch_norm,
        )
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        z = self.sites["embedding"](self.embedding(ids, numerics)).flatten(1)  # (B, F, k) -> (B, d)
        crossed = z
        for number, site in enumerate(self._cross_sites):
            crossed = self.sites[site](self.cross_net.layer(number, crossed, z))
        logit: Tensor = self.dnn(self.sites["top_input"](crossed))
        return logit.squeeze(-1)  # (B, 1) -> (B,)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The table and the numeric fields' weights."""
        return list(self.embedding.parameters())
