"""AFM: a linear term and a sum of the pairs' products, weighted by attention."""

from typing import Annotated

import pydantic

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.shape import TableShape

Rate = Annotated[float, pydantic.Field(ge=0, lt=1, strict=True)]


class AFMSettings(BackboneSettings):
    """Keys of FuxiCTR's AFM."""

    attention_dim: int = pydantic.Field(10, ge=1)
    """Width a of the attention's hidden layer."""
    attention_dropout: Annotated[tuple[Rate, Rate], pydantic.Strict(False)] = (0.0, 0.0)
    """Dropout on the pairs' weights, and on the weighted sum."""
    use_attention: bool = True
    """Without: the plain sum of all products, as in a factorization machine."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V and their bias, and k a + 2 a + k with attention."""
        k, a = self.embedding_dim, self.attention_dim
        attention = k * a + 2 * a + k if self.use_attention else 0
        return (k + 1) * shape.embedding_rows + 1 + attention

    def macs(self, shape: TableShape) -> int:
        """With attention: k a + a a pair, k F^2 in the weighted sum, and k in the head."""
        if not self.use_attention:
            return 0
        k, a = self.embedding_dim, self.attention_dim
        return shape.n_pairs * (k * a + a) + k * shape.n_fields**2 + k
