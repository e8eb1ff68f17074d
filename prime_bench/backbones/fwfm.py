"""FwFM: inner products of all pairs of fields, each with a weight, and a linear part.

    l = sum_{i<j} r_ij <E_i, E_j> + b + linear
    LW: linear = sum_f w_f[id_f]    FeLV: linear = sum_f <E_f, L_f>    FiLV: linear = <z, v>

For a numeric field, LW has the summand x_f w_f, and FeLV has L_f = x_f l_f.

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, d = F k,
P = F (F - 1) / 2 pairs. Pan et al., Field-weighted Factorization Machines for Click-Through Rate
Prediction in Display Advertising, WWW 2018; as FuxiCTR 2.3.10's FwFM, whose parameter names these
are. There is no Top-NN.
"""

from torch import Tensor, nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.interface import Backbone, identity_sites
from prime_bench.backbones.layers import pair_matrix, reset_linears, upper_triangle
from prime_bench.data.schema import Schema
from prime_bench.settings.backbones import FwFMSettings


class FwFM(Backbone):
    """FwFM. Site: `embedding` (B, F, k)."""

    upper: Tensor

    def __init__(self, schema: Schema, settings: FwFMSettings) -> None:
        super().__init__()
        self.sites = identity_sites(settings.sites)
        self.embedding = FieldEmbedding(schema, settings.embedding_dim)
        self.register_buffer("upper", upper_triangle(schema.shape.n_fields), persistent=False)
        # This layer only holds r and b under FuxiCTR's names; `_pairs` uses them.
        self.interaction_weight = nn.Linear(schema.shape.n_pairs, 1)
        self._linear_type = settings.linear_type
        if settings.linear_type == "FiLV":
            d = settings.input_width(schema.shape)
            self.linear_weight_layer: nn.Module = nn.Linear(d, 1, bias=False)
        else:
            width = 1 if settings.linear_type == "LW" else settings.embedding_dim
            self.linear_weight_layer = FieldEmbedding(schema, width)
        reset_linears(self)

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Ids (B, C) and values (B, K) -> logits (B,)."""
        embeddings = self.sites["embedding"](self.embedding(ids, numerics))  # (B, F, k)
        return self._pairs(embeddings) + self._linear(embeddings, ids, numerics)

    def _pairs(self, embeddings: Tensor) -> Tensor:
        """(B, F, k) -> (B,): sum_{i<j} r_ij <E_i, E_j> + b = sum_j <E_j, sum_i r_ij E_i> + b."""
        matrix = pair_matrix(self.interaction_weight.weight, self.upper, embeddings.shape[1])[0]
        # One matrix product for all rows and coordinates avoids a tensor of (B, P).
        by_coordinate = embeddings.transpose(1, 2).contiguous()  # (B, F, k) -> (B, k, F)
        weighted = by_coordinate @ matrix  # (B, k, F)
        return (by_coordinate * weighted).sum(dim=(1, 2)) + self.interaction_weight.bias

    def _linear(self, embeddings: Tensor, ids: Tensor, numerics: Tensor) -> Tensor:
        if self._linear_type == "FiLV":
            linear: Tensor = self.linear_weight_layer(embeddings.flatten(1)).squeeze(-1)
            return linear  # (B, F, k) -> (B, d) -> (B,)
        weights: Tensor = self.linear_weight_layer(ids, numerics)  # (B, F, 1) or (B, F, k)
        terms = weights if self._linear_type == "LW" else weights * embeddings
        return terms.sum(dim=(1, 2))

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The tables, that of the linear part included, and the numeric fields' weights."""
        tables = [m for m in self.children() if isinstance(m, FieldEmbedding)]
        return [parameter for table in tables for parameter in table.parameters()]
