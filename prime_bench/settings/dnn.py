"""DNN: a multi-layer perceptron on the flattened embeddings."""

import pydantic

from prime_bench.settings.backbone import BackboneSettings, Widths, mlp_macs, mlp_parameters
from prime_bench.settings.shape import TableShape


class DNNSettings(BackboneSettings):
    """Keys of FuxiCTR's DNN."""

    hidden_units: Widths = pydantic.Field((400, 400, 400), min_length=1)
    """Widths of the hidden layers."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear and its ReLU."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The whole MLP."""
        return ("mlp",)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V plus M(d, h, 1)."""
        top = mlp_parameters(
            self.input_width(shape), self.hidden_units, batch_norm=self.batch_norm, width_out=1
        )
        return self.embedding_dim * shape.embedding_rows + top

    def macs(self, shape: TableShape) -> int:
        """The MLP's products; a numeric field's x * w is element-wise."""
        return mlp_macs(self.input_width(shape), self.hidden_units, width_out=1)
