"""GDCN: gated cross layers under an MLP (the stacked form, fidelity 9)."""

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


class GDCNSettings(BackboneSettings):
    """Keys of FuxiCTR's GDCN."""

    dnn_hidden_units: Widths = pydantic.Field((400, 400, 400), min_length=1)
    """Widths of the MLP on the last cross layer's output."""
    num_cross_layers: int = pydantic.Field(3, ge=1)
    """L."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer of the MLP."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear and its ReLU."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The MLP with its output layer."""
        return ("dnn",)

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """The outputs of the cross layers; the last one's is `cross_out`."""
        return (*(f"cross_{layer}" for layer in range(1, self.num_cross_layers)), "cross_out")

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Those of the MLP."""
        return mlp_layers(self.input_width(shape), self.dnn_hidden_units)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, L (2 d^2 + d), and M(d, h, 1)."""
        d = self.input_width(shape)
        cross = self.num_cross_layers * (2 * d * d + d)
        mlp = mlp_parameters(d, self.dnn_hidden_units, batch_norm=self.batch_norm, width_out=1)
        return self.embedding_dim * shape.embedding_rows + cross + mlp

    def macs(self, shape: TableShape) -> int:
        """2 L d^2 and the MLP."""
        d = self.input_width(shape)
        cross = 2 * self.num_cross_layers * d * d
        return cross + mlp_macs(d, self.dnn_hidden_units, width_out=1)
