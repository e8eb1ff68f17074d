"""WideDeep: a linear term beside a multi-layer perceptron."""

from prime_bench.settings.shape import TableShape
from prime_bench.settings.top import TopSettings


class WideDeepSettings(TopSettings):
    """Keys of FuxiCTR's WideDeep."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V, and M(d, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        return tables + self.top_parameters(self.input_width(shape))

    def macs(self, shape: TableShape) -> int:
        """The MLP's products; the linear term only adds."""
        return self.top_macs(self.input_width(shape))
