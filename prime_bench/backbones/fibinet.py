"""FiBiNET: an MLP on bilinear products of all pairs of fields, with and without excitation.

    bilinear(E)_p = (E_i W) * E_j,    p = (i, j), i < j
    l = LR(x) + MLP(vec([bilinear_1(E), bilinear_2(SENET(E))]); h; 1),    LR without bias

W is one matrix (`field_all`), one for each left field i (`field_each`; that of the last field is
never used, but FuxiCTR has it), or one for each pair (`field_interaction`).

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width,
P = F (F - 1) / 2 pairs in the order (0, 1), (0, 2), ... Huang, Zhang and Zhang, FiBiNET: Combining
Feature Importance and Bilinear Feature Interaction for Click-Through Rate Prediction, RecSys 2019;
as FuxiCTR 2.3.10's FiBiNET, whose parameter names these are. The Top-NN is the MLP.
"""

import torch
from torch import Tensor, nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import LinearTerm, mlp_with_head, reset_linears, top_mlp
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import FiBiNETSettings


class Bilinear(nn.Module):
    """The products of all pairs, (B, F, k) -> (B, P, k).

    The weight `bilinear_W` is (k, k), (F, k, k) or (P, k, k), by `bilinear_type`.
    """

    def __init__(self, n_fields: int, width: int, bilinear_type: str) -> None:
        super().__init__()
        pairs = n_fields * (n_fields - 1) // 2
        leading = {"field_all": (), "field_each": (n_fields,), "field_interaction": (pairs,)}
        self.bilinear_type = bilinear_type
        self.bilinear_W = nn.Parameter(torch.empty(*leading[bilinear_type], width, width))
        # With three axes, torch takes the first for the outputs (fan_in = k k, fan_out = n k), as
        # in FuxiCTR.
        nn.init.xavier_normal_(self.bilinear_W)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Multiply one left field at a time with all fields to its right."""
        rights, blocks = embeddings, []
        for left in self._lefts(embeddings):  # (B, 1, k); field_interaction: (B, F - 1 - i, k)
            # A slice of the preceding slice: backward adds gradients of P fields in all, where
            # slices of `embeddings` would need F F.
            rights = rights[:, 1:]
            blocks.append(left * rights)
        return torch.cat(blocks, dim=1)

    def _lefts(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """E_i W for each field i but the last."""
        if self.bilinear_type == "field_interaction":
            n_rows, n_fields, width = embeddings.shape
            matrices = torch.split(self.bilinear_W, list(range(n_fields - 1, 0, -1)))
            # (n, k, k) -> (k, n k): one matrix product for the n = F - 1 - i pairs of a left field.
            return tuple(
                (field @ of_pairs.transpose(0, 1).flatten(1)).view(n_rows, -1, width)
                for field, of_pairs in zip(embeddings.unbind(1), matrices, strict=False)
            )
        fields = embeddings[:, :-1]  # (B, F - 1, k)
        if self.bilinear_type == "field_all":
            return torch.split(fields @ self.bilinear_W, 1, dim=1)
        products = torch.bmm(fields.transpose(0, 1), self.bilinear_W[:-1])  # (F - 1, B, k)
        return tuple(product.unsqueeze(1) for product in products)


class FiBiNET(Backbone):
    """FiBiNET. Sites: `embedding` (B, F, k), `bilinear` (B, 2 P, k), `top_input` (B, 2 P k)."""

    def __init__(self, schema: Schema, settings: FiBiNETSettings) -> None:
        super().__init__()
        n_fields, width = schema.shape.n_fields, settings.embedding_dim
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, width)
        self.senet_layer = fuxi.squeeze_excitation(n_fields, settings.reduction_ratio)
        self.bilinear_interaction1, self.bilinear_interaction2 = (
            Bilinear(n_fields, width, settings.bilinear_type) for _ in range(2)
        )
        self.lr_layer = LinearTerm(schema)
        self.dnn = top_mlp(settings.top_width(schema.shape), settings)
        reset_linears(self)
        self.top_layers, self.top_parameters = mlp_with_head(self, "dnn")

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        plain = self.bilinear_interaction1(embeddings)
        excited = self.bilinear_interaction2(self.senet_layer(embeddings))
        pairs = self.sites["bilinear"](torch.cat([plain, excited], dim=1))  # (B, 2 P, k)
        deep: Tensor = self.dnn(self.sites["top_input"](pairs.flatten(1)))  # (B, 2 P k) -> (B, 1)
        linear: Tensor = self.lr_layer(ids, numerics)
        return deep.squeeze(-1) + linear

    def embedding_parameters(self) -> list[nn.Parameter]:
        """Both tables and the numeric fields' weights."""
        return [*self.embedding.parameters(), *self.lr_layer.embedding_parameters()]
