"""The MLP that ends in the logit, as most backbones have one: its keys and counts."""

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


class TopSettings(BackboneSettings):
    """Keys of a backbone whose Top-NN is one MLP with its output layer."""

    hidden_units: Widths = pydantic.Field((400, 400, 400), min_length=1)
    """Widths of the hidden layers."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear and its ReLU."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The MLP with its output layer."""
        return ("dnn",)

    def top_width(self, shape: TableShape) -> int:
        """Width of the MLP's input: d, where nothing stands between."""
        return self.input_width(shape)

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Those of the MLP."""
        return mlp_layers(self.top_width(shape), self.hidden_units)

    def top_parameters(self, width: int) -> int:
        """M(width, h, 1)."""
        return mlp_parameters(width, self.hidden_units, batch_norm=self.batch_norm, width_out=1)

    def top_macs(self, width: int) -> int:
        """Multiply-accumulates a row of the same MLP."""
        return mlp_macs(width, self.hidden_units, width_out=1)
