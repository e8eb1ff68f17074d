"""DeepFM: a factorization machine beside a multi-layer perceptron."""

from prime_bench.settings.shape import TableShape
from prime_bench.settings.top import TopSettings


class DeepFMSettings(TopSettings):
    """Keys of FuxiCTR's DeepFM."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The MLP with its output layer."""
        return ("mlp",)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V and their bias, and M(d, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        return tables + 1 + self.top_parameters(self.input_width(shape))

    def macs(self, shape: TableShape) -> int:
        """The MLP's products; the pairs' sum is taken element by element from sums over fields."""
        return self.top_macs(self.input_width(shape))
