"""DCN: cross layers with weight vectors beside an MLP.

    x_0 = z = vec(E),    x_{l+1} = x_l + (w_l . x_l) x_0 + b_l,    l = 0, ..., L - 1
    l = fc([x_L, MLP(z; h)]),    l = fc(x_L) without an MLP

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k, L cross
layers. Wang et al., Deep & Cross Network for Ad Click Predictions, ADKDD 2017; as FuxiCTR 2.3.10's
DCN, whose parameter names these are. The Top-NN is the MLP; `fc` is shared with the cross path.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import linear_paths, parameter_paths, reset_linears
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import DCNSettings


class DCN(Backbone):
    """DCN. Sites: `embedding` (B, F, k), `cross_1` to `cross_L` (B, d) and, with an MLP,
    `top_input` (B, d).
    """

    dnn: nn.Module | None

    def __init__(self, schema: Schema, settings: DCNSettings) -> None:
        super().__init__()
        width, widths = settings.input_width(schema.shape), settings.dnn_hidden_units
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.crossnet = fuxi.cross_net(width, settings.num_cross_layers)
        self.dnn = None
        if widths:
            self.dnn = fuxi.mlp(
                width, widths, dropout=settings.net_dropout, batch_norm=settings.batch_norm
            )
        self.fc = nn.Linear(settings.head_width(width), 1)
        reset_linears(self)
        self.top_layers = linear_paths(self, "dnn") if widths else []
        self.top_parameters = parameter_paths(self, "dnn") if widths else []
        self.shared_head = tuple(parameter_paths(self, "fc")) if widths else ()

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        z = self.sites["embedding"](self.embedding(ids, numerics)).flatten(1)  # (B, F, k) -> (B, d)
        crossed = z
        layers = self.crossnet.get_submodule("cross_net").children()
        for number, layer in enumerate(layers, start=1):
            bias = layer.get_parameter("bias")
            share = layer.get_submodule("weight")(crossed)  # (B, d) -> (B, 1)
            crossed = self.sites[f"cross_{number}"](torch.addcmul(crossed + bias, share, z))
        if self.dnn is not None:
            crossed = torch.cat([crossed, self.dnn(self.sites["top_input"](z))], dim=1)
        logit: Tensor = self.fc(crossed)  # (B, head width) -> (B, 1)
        return logit.squeeze(-1)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The table and the numeric fields' weights."""
        return list(self.embedding.parameters())
