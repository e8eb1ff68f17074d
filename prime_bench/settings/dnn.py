"""DNN: a multi-layer perceptron on the flattened embeddings."""

from prime_bench.settings.shape import TableShape
from prime_bench.settings.top import TopSettings


class DNNSettings(TopSettings):
    """Keys of FuxiCTR's DNN."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The whole MLP."""
        return ("mlp",)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V plus M(d, h, 1)."""
        tables = self.embedding_dim * shape.embedding_rows
        return tables + self.top_parameters(self.input_width(shape))

    def macs(self, shape: TableShape) -> int:
        """The MLP's products; a numeric field's x * w is element-wise."""
        return self.top_macs(self.input_width(shape))
