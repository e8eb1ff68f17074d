"""PNN: a multi-layer perceptron on the embeddings and all their inner products."""

from prime_bench.settings.shape import TableShape
from prime_bench.settings.top import TopSettings


class PNNSettings(TopSettings):
    """Keys of FuxiCTR's PNN (inner products, the only kind that it has)."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, and M(d + P, h, 1)."""
        tables = self.embedding_dim * shape.embedding_rows
        return tables + self.top_parameters(self.top_width(shape))

    def macs(self, shape: TableShape) -> int:
        """The products of all F^2 ordered pairs, k each, and the MLP's."""
        products = shape.n_fields**2 * self.embedding_dim
        return products + self.top_macs(self.top_width(shape))

    def top_width(self, shape: TableShape) -> int:
        """d + P, the width of the MLP's input."""
        return self.input_width(shape) + shape.n_pairs
