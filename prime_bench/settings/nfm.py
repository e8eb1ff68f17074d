"""NFM: a linear term beside a multi-layer perceptron on the pooled products of embeddings."""

from prime_bench.settings.shape import TableShape
from prime_bench.settings.top import TopSettings


class NFMSettings(TopSettings):
    """Keys of FuxiCTR's NFM."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V, and M(k, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        return tables + self.top_parameters(self.embedding_dim)

    def macs(self, shape: TableShape) -> int:  # noqa: ARG002
        """The MLP's products, whatever the table; pooling is element-wise."""
        return self.top_macs(self.embedding_dim)

    def top_width(self, shape: TableShape) -> int:  # noqa: ARG002
        """k: the pairs are pooled."""
        return self.embedding_dim
