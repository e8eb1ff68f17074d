"""MaskNet: hidden layers whose inputs are multiplied by masks made from the embeddings.

    H_0 = vec(LN_f(E_f)),    m_i = W2_i ReLU(W1_i z + b1_i) + b2_i,    z = vec(E)
    block_i(H) = Dropout(ReLU(LN(W_i (m_i * H))))
    serial:   H_{i+1} = block_i(H_i),    l = fc(H_n)
    parallel: l = MLP([block_1(H_0), ..., block_n(H_0)]; h; 1)

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k. Wang, She
and Zhang, MaskNet: Introducing Feature-Wise Multiplication to CTR Ranking Models by Instance-Guided
Mask, DLP-KDD 2021; as FuxiCTR 2.3.10's MaskNet, whose parameter names these are, except that
the LayerNorms of the F fields are one module here.

The Top-NN of the serial form consists of W_i and LN of all blocks and `fc`, and its input is
m_0 * H_0. The Top-NN of the parallel form is the MLP.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.dropout import DroppedReLU
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import linear_paths, parameter_paths, reset_linears
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import MaskNetSettings


class FieldNorm(nn.Module):
    """A LayerNorm for each field, (B, F, k) -> (B, F, k), with `weight` and `bias` (F, k)."""

    def __init__(self, n_fields: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_fields, width))
        self.bias = nn.Parameter(torch.zeros(n_fields, width))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Normalise the embedding of each field separately."""
        normalised = F.layer_norm(embeddings, embeddings.shape[-1:])
        return torch.addcmul(self.bias, normalised, self.weight)


class MaskBlock(nn.Module):
    """The layers of a block: `mask_layer` (B, d) -> (B, in), `hidden_layer` (B, in) -> (B, out)."""

    def __init__(self, d: int, width_in: int, width_out: int, settings: MaskNetSettings) -> None:
        super().__init__()
        between = settings.mask_width(width_in)
        self.mask_layer = nn.Sequential(
            nn.Linear(d, between), nn.ReLU(), nn.Linear(between, width_in)
        )
        hidden: list[nn.Module] = [nn.Linear(width_in, width_out, bias=False)]
        if settings.net_layernorm:
            hidden.append(nn.LayerNorm(width_out))
        hidden.append(DroppedReLU(settings.net_dropout))
        self.hidden_layer = nn.Sequential(*hidden)


class MaskNet(Backbone):
    """MaskNet. Sites: `embedding` (B, F, k); `top_input` (B, d) if serial, (B, blocks x width) if
    parallel.
    """

    def __init__(self, schema: Schema, settings: MaskNetSettings) -> None:
        super().__init__()
        d = settings.input_width(schema.shape)
        self._serial = settings.serial
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.emb_norm = (
            FieldNorm(schema.shape.n_fields, settings.embedding_dim)
            if settings.emb_layernorm
            else None
        )
        self.mask_net = nn.Module()
        self.mask_net.mask_blocks = nn.ModuleList(
            MaskBlock(d, width_in, width_out, settings)
            for width_in, width_out in settings.blocks(d)
        )
        width, widths = settings.head(d)
        if self._serial:
            self.mask_net.fc = nn.Sequential(nn.Linear(width, 1))
        else:
            self.mask_net.dnn = fuxi.mlp(width, widths, width_out=1, dropout=settings.net_dropout)
        reset_linears(self)
        top = settings.top_nn
        self.top_layers = [path for name in top for path in linear_paths(self, name)][:-1]
        self.top_parameters = [path for name in top for path in parameter_paths(self, name)]

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        z = embeddings.flatten(1)  # (B, F, k) -> (B, d)
        hidden = z if self.emb_norm is None else self.emb_norm(embeddings).flatten(1)
        top = self._serial_logit(z, hidden) if self._serial else self._parallel_logit(z, hidden)
        return top.squeeze(-1)  # (B, 1) -> (B,)

    def _serial_logit(self, z: Tensor, hidden: Tensor) -> Tensor:
        for number, block in enumerate(self._blocks()):
            masked = block.mask_layer(z) * hidden
            hidden = block.hidden_layer(masked if number else self.sites["top_input"](masked))
        logit: Tensor = self.mask_net.get_submodule("fc")(hidden)
        return logit

    def _parallel_logit(self, z: Tensor, hidden: Tensor) -> Tensor:
        parts = [block.hidden_layer(block.mask_layer(z) * hidden) for block in self._blocks()]
        together = self.sites["top_input"](torch.cat(parts, dim=1))
        logit: Tensor = self.mask_net.get_submodule("dnn")(together)
        return logit

    def _blocks(self) -> list[MaskBlock]:
        blocks = self.mask_net.get_submodule("mask_blocks").children()
        return [block for block in blocks if isinstance(block, MaskBlock)]

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The table and the numeric fields' weights."""
        return list(self.embedding.parameters())
