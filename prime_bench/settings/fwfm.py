"""FwFM: inner products of all pairs of embeddings, one weight a pair, and a linear part."""

from typing import Literal

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.shape import TableShape


class FwFMSettings(BackboneSettings):
    """Keys of FuxiCTR's FwFM, whose one `regularizer` is both L2 keys here."""

    linear_type: Literal["LW", "FeLV", "FiLV"] = "FiLV"
    """The linear part: a weight an id (LW), a vector an id that meets the embedding (FeLV), or a
    vector a field that does (FiLV)."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, P pair weights and a bias; LW: V, FeLV: k V, FiLV: d more."""
        k, v = self.embedding_dim, shape.embedding_rows
        linear = {"LW": v, "FeLV": k * v, "FiLV": self.input_width(shape)}
        return k * v + shape.n_pairs + 1 + linear[self.linear_type]

    def macs(self, shape: TableShape) -> int:
        """k F^2 of the pair weights' matrix with the embeddings, and d of FiLV."""
        d = self.input_width(shape)
        return d * shape.n_fields + (d if self.linear_type == "FiLV" else 0)
