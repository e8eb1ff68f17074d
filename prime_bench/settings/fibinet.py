"""FiBiNET: bilinear products of field pairs, of the embeddings and of their SENET, under an MLP."""

from typing import Literal

import pydantic

from prime_bench.settings.shape import TableShape
from prime_bench.settings.top import TopSettings


class FiBiNETSettings(TopSettings):
    """Keys of FuxiCTR's FiBiNET."""

    bilinear_type: Literal["field_all", "field_each", "field_interaction"] = "field_interaction"
    """One k x k matrix for all pairs, one for each left field, or one for each pair."""
    reduction_ratio: int = pydantic.Field(3, ge=1)
    """F over the width of SENET's hidden layer."""

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """The products of both bilinears, (B, 2 P, k)."""
        return ("bilinear",)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V, SENET 2 F r, two bilinears, and M(2 P k, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        matrices = {
            "field_all": 1,
            "field_each": shape.n_fields,
            "field_interaction": shape.n_pairs,
        }
        bilinears = 2 * matrices[self.bilinear_type] * self.embedding_dim**2
        return tables + self._senet(shape) + bilinears + self.top_parameters(self.top_width(shape))

    def macs(self, shape: TableShape) -> int:
        """SENET, both bilinears' k x k products, and the MLP."""
        # With one matrix a left field, each of the F - 1 left fields is multiplied once.
        left = shape.n_fields - 1
        products = shape.n_pairs if self.bilinear_type == "field_interaction" else left
        bilinears = 2 * products * self.embedding_dim**2
        return self._senet(shape) + bilinears + self.top_macs(self.top_width(shape))

    def top_width(self, shape: TableShape) -> int:
        """2 P k: what the MLP reads."""
        return 2 * shape.n_pairs * self.embedding_dim

    def site_width(self, site: str, shape: TableShape) -> int:
        """The bilinears' products are what the MLP reads."""
        return super().site_width("top_input" if site == "bilinear" else site, shape)

    def _senet(self, shape: TableShape) -> int:
        """2 F r, r = max(1, F // ratio): parameters and products of SENET's two Linears."""
        return 2 * shape.n_fields * max(1, shape.n_fields // self.reduction_ratio)
