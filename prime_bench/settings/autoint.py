"""AutoInt: self-attention over fields, and beside it an MLP (AutoInt+) and a linear term."""

from typing import Self

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


class AutoIntSettings(BackboneSettings):
    """Keys of FuxiCTR's AutoInt; with an MLP it is AutoInt+ (fidelity 8)."""

    dnn_hidden_units: Widths = (400, 400, 400)
    """Widths of the MLP on z; empty: plain AutoInt, which has no Top-NN."""
    attention_layers: int = pydantic.Field(2, ge=1)
    """L."""
    num_heads: int = pydantic.Field(1, ge=1)
    """Heads of each layer."""
    attention_dim: int = pydantic.Field(8, ge=1)
    """a: width of all heads together."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout of the attention weights, and after each hidden layer of the MLP."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear of the MLP and its ReLU."""
    layer_norm: bool = False
    """LayerNorm of each attention layer's output."""
    use_scale: bool = False
    """Attention scores over sqrt(a / heads)."""
    use_wide: bool = False
    """A linear term."""
    use_residual: bool = True
    """Each attention layer adds its input, projected where the width changes."""

    @pydantic.model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        if self.attention_dim % self.num_heads:
            raise ValueError(
                f"attention_dim = {self.attention_dim} is no multiple of "
                f"num_heads = {self.num_heads}"
            )
        return self

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The MLP with its output layer; `fc` belongs to the attention."""
        return ("dnn",) if self.dnn_hidden_units else ()

    @property
    def layer_inputs(self) -> list[int]:
        """Width of each attention layer's input: k, then a."""
        return [self.embedding_dim, *[self.attention_dim] * (self.attention_layers - 1)]

    def projections(self, width_in: int) -> int:
        """Matrices (width_in, a) of a layer: queries, keys, values, and a projected residual."""
        return 4 if self.use_residual and width_in != self.attention_dim else 3

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Those of the MLP, if it has one."""
        return mlp_layers(self.input_width(shape), self.dnn_hidden_units)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, the attention layers, their Linear F a + 1, the MLP, linear weights."""
        a, d = self.attention_dim, self.input_width(shape)
        norms = 2 * a * self.attention_layers if self.layer_norm else 0
        mlp = mlp_parameters(d, self.dnn_hidden_units, batch_norm=self.batch_norm, width_out=1)
        tables = (self.embedding_dim + self.use_wide) * shape.embedding_rows
        attention = self._projected(shape) // shape.n_fields + norms + shape.n_fields * a + 1
        return tables + attention + (mlp if self.dnn_hidden_units else 0)

    def macs(self, shape: TableShape) -> int:
        """Projections of F fields, scores and weighted sums 2 F^2 a a layer, `fc`, the MLP."""
        a, d = self.attention_dim, self.input_width(shape)
        attention = 2 * shape.n_fields**2 * a * self.attention_layers
        mlp = mlp_macs(d, self.dnn_hidden_units, width_out=1) if self.dnn_hidden_units else 0
        return self._projected(shape) + attention + shape.n_fields * a + mlp

    def _projected(self, shape: TableShape) -> int:
        """Multiply-accumulates of all projections of all fields."""
        matrices = sum(self.projections(width) * width for width in self.layer_inputs)
        return shape.n_fields * matrices * self.attention_dim
