"""DCNv2: cross layers with full matrices, beside, under or without an MLP."""

from typing import Literal, Self

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


class DCNv2Settings(BackboneSettings):
    """Keys of FuxiCTR's DCNv2 (its low-rank mixture is another model and not here)."""

    model_structure: Literal["crossnet_only", "stacked", "parallel", "stacked_parallel"] = (
        "parallel"
    )
    """Where the MLPs stand: none, on the cross layers' output, on z beside them, or both."""
    num_cross_layers: int = pydantic.Field(3, ge=1)
    """L."""
    stacked_dnn_hidden_units: Widths = ()
    """Widths of the MLP on the cross layers' output."""
    parallel_dnn_hidden_units: Widths = ()
    """Widths of the MLP on z; (400, 400, 400) where the structure has one and nothing is given."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer of the MLPs."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear of the MLPs and its ReLU."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _give_each_mlp_its_widths(cls, table: object) -> object:
        if not isinstance(table, dict):
            return table
        filled = dict(table)
        for name, present in _mlps(str(filled.get("model_structure", "parallel"))).items():
            if present:
                filled.setdefault(name, (400, 400, 400))
        return filled

    @pydantic.model_validator(mode="after")
    def _widths_belong_to_the_structure(self) -> Self:
        for name, present in _mlps(self.model_structure).items():
            if bool(getattr(self, name)) != present:
                verb = "needs" if present else "has no place for"
                raise ValueError(f'model_structure = "{self.model_structure}" {verb} {name}')
        return self

    @property
    def top_nn(self) -> tuple[str, ...]:
        """The parallel MLP; stacked: that MLP and `fc`, which nothing else reaches."""
        tops = {"crossnet_only": (), "stacked": ("stacked_dnn", "fc")}
        return tops.get(self.model_structure, ("parallel_dnn",))

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """The outputs of the cross layers."""
        return tuple(f"cross_{layer + 1}" for layer in range(self.num_cross_layers))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Those of the Top-NN's MLP."""
        widths = self.parallel_dnn_hidden_units or self.stacked_dnn_hidden_units
        return mlp_layers(self.input_width(shape), widths)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, L (d^2 + d), the MLPs, and the last Linear."""
        d = self.input_width(shape)
        mlps = sum(
            mlp_parameters(d, widths, batch_norm=self.batch_norm)
            for widths in (self.stacked_dnn_hidden_units, self.parallel_dnn_hidden_units)
        )
        cross = self.num_cross_layers * (d * d + d)
        return self.embedding_dim * shape.embedding_rows + cross + mlps + self.head_width(d) + 1

    def macs(self, shape: TableShape) -> int:
        """L d^2, the MLPs, and the last Linear."""
        d = self.input_width(shape)
        mlps = mlp_macs(d, self.stacked_dnn_hidden_units) + mlp_macs(
            d, self.parallel_dnn_hidden_units
        )
        return self.num_cross_layers * d * d + mlps + self.head_width(d)

    def head_width(self, d: int) -> int:
        """Width of the last Linear's input: the stacked path's output beside the parallel MLP's."""
        stacked = self.stacked_dnn_hidden_units[-1] if self.stacked_dnn_hidden_units else d
        return stacked + (
            self.parallel_dnn_hidden_units[-1] if self.parallel_dnn_hidden_units else 0
        )


def _mlps(structure: str) -> dict[str, bool]:
    return {
        "stacked_dnn_hidden_units": structure.startswith("stacked"),
        "parallel_dnn_hidden_units": structure.endswith("parallel"),
    }
