"""DCNv2: cross layers with full matrices and MLPs on their output (stacked), beside them
(parallel), both, or neither.

    x_0 = z = vec(E),    x_{l+1} = x_l + x_0 * (W_l x_l + b_l),    l = 0, ..., L - 1
    crossnet_only: l = fc(x_L)                  stacked:          l = fc(MLP_s(x_L))
    parallel:      l = fc([x_L, MLP_p(z)])      stacked_parallel: l = fc([MLP_s(x_L), MLP_p(z)])

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k, L cross
layers. Wang et al., DCN V2: Improved Deep & Cross Network, WWW 2021; as FuxiCTR 2.3.10's DCNv2,
whose parameter names these are.

The Top-NN is the parallel MLP, or the stacked one if there is no parallel one. `fc` belongs to the
Top-NN only if it has no other input (stacked); in the other structures the cross path shares it.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import linear_paths, parameter_paths, reset_linears
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import DCNv2Settings


class DCNv2(Backbone):
    """DCNv2. Sites: `embedding` (B, F, k), `cross_1` to `cross_L` (B, d) and, with an MLP,
    `top_input` (B, d).
    """

    stacked_dnn: nn.Module | None
    parallel_dnn: nn.Module | None

    def __init__(self, schema: Schema, settings: DCNv2Settings) -> None:
        super().__init__()
        width = settings.input_width(schema.shape)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.crossnet = fuxi.cross_net_v2(width, settings.num_cross_layers)
        self.stacked_dnn = _mlp(width, settings.stacked_dnn_hidden_units, settings)
        self.parallel_dnn = _mlp(width, settings.parallel_dnn_hidden_units, settings)
        self.fc = nn.Linear(settings.head_width(width), 1)
        reset_linears(self)
        mlps = {"parallel_dnn": self.parallel_dnn, "stacked_dnn": self.stacked_dnn}
        self._top = next((name for name, mlp in mlps.items() if mlp is not None), None)
        self.sites = identity_sites(settings.sites)
        self.top_layers = linear_paths(self, self._top) if self._top else []
        self.top_parameters = parameter_paths(self, self._top) if self._top else []
        if settings.model_structure == "stacked":
            self.top_parameters += parameter_paths(self, "fc")
        elif self._top:
            self.shared_head = tuple(parameter_paths(self, "fc"))

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        z = self.sites["embedding"](self.embedding(ids, numerics)).flatten(1)  # (B, F, k) -> (B, d)
        crossed = z
        layers = self.crossnet.get_submodule("cross_layers").children()
        for number, layer in enumerate(layers, start=1):
            crossed = self.sites[f"cross_{number}"](torch.addcmul(crossed, z, layer(crossed)))
        if self.stacked_dnn is not None:
            crossed = self.stacked_dnn(self._mlp_input("stacked_dnn", crossed))  # (B, d) -> (B, h)
        parts = [crossed]
        if self.parallel_dnn is not None:
            parts.append(self.parallel_dnn(self._mlp_input("parallel_dnn", z)))
        logit: Tensor = self.fc(torch.cat(parts, dim=1))  # (B, head width) -> (B, 1)
        return logit.squeeze(-1)

    def _mlp_input(self, mlp: str, x: Tensor) -> Tensor:
        """The input of an MLP, which passes the site `top_input` if that MLP is the Top-NN."""
        seen: Tensor = self.sites["top_input"](x) if mlp == self._top else x
        return seen

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The table and the numeric fields' weights."""
        return list(self.embedding.parameters())


def _mlp(width: int, widths: tuple[int, ...], settings: DCNv2Settings) -> nn.Module | None:
    if not widths:
        return None
    return fuxi.mlp(width, widths, dropout=settings.net_dropout, batch_norm=settings.batch_norm)
