"""DCN: cross layers with weight vectors beside an MLP."""

import pydantic

from prime_bench.settings.backbone import (
    BackboneSettings,
    HiddenLayer,
    Widths,
    mlp_layers,
    mlp_macs,
    mlp_parameters,
)
from prime_bench.settings.shape import TableShape


class DCNSettings(BackboneSettings):
    """Keys of FuxiCTR's DCN."""

    dnn_hidden_units: Widths = (400, 400, 400)
    """Widths of the MLP beside the cross layers; empty: cross layers alone."""
    num_cross_layers: int = pydantic.Field(3, ge=1)
    """L."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer of the MLP."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear and its ReLU."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The MLP; `fc` is shared with the cross path."""
        return ("dnn",) if self.dnn_hidden_units else ()

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """The outputs of the cross layers."""
        return tuple(f"cross_{layer + 1}" for layer in range(self.num_cross_layers))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Those of the MLP, if it has one."""
        return mlp_layers(self.input_width(shape), self.dnn_hidden_units)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, 2 d L, the MLP, and the last Linear."""
        d = self.input_width(shape)
        mlp = mlp_parameters(d, self.dnn_hidden_units, batch_norm=self.batch_norm)
        tables = self.embedding_dim * shape.embedding_rows
        return tables + 2 * d * self.num_cross_layers + mlp + self.head_width(d) + 1

    def macs(self, shape: TableShape) -> int:
        """L d, the MLP, and the last Linear."""
        d = self.input_width(shape)
        return self.num_cross_layers * d + mlp_macs(d, self.dnn_hidden_units) + self.head_width(d)

    def head_width(self, d: int) -> int:
        """Width of the last Linear's input: x_L beside the MLP's output."""
        return d + (self.dnn_hidden_units[-1] if self.dnn_hidden_units else 0)
