"""What all backbones are configured by, and the counts that their formulas share."""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import pydantic

from prime_bench.settings.model import Settings
from prime_bench.settings.shape import TableShape

Widths = Annotated[
    tuple[Annotated[int, pydantic.Field(ge=1, strict=True)], ...], pydantic.Strict(False)
]
"""Widths of an MLP's hidden layers; a list is taken for a tuple, but no text for a number."""


@dataclass(frozen=True, kw_only=True)
class HiddenLayer:
    """A hidden Linear of the Top-NN, which `backbones.interface.replace` may swap."""

    width_in: int
    width_out: int
    bias: bool = True


class BackboneSettings(Settings):
    """Keys that every backbone has. Counts are per row where they are multiply-accumulates."""

    embedding_dim: int = pydantic.Field(10, ge=1)
    """Width k of a field's embedding."""
    embedding_l2: float = pydantic.Field(0.0, ge=0)
    """FuxiCTR's `embedding_regularizer`: (l2/2) * ||W||^2 of every table is in each step's loss."""
    network_l2: float = pydantic.Field(0.0, ge=0)
    """FuxiCTR's `net_regularizer`: the same for all others, plug-ins' too (fidelity 35)."""

    def input_width(self, shape: TableShape) -> int:
        """d = F * k, the width of the flattened embeddings z."""
        return shape.n_fields * self.embedding_dim

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Paths of the modules whose parameters the shared Top-NN has (fidelity 36); may be
        empty.
        """
        return ()

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """Sites between the embeddings and what the Top-NN reads."""
        return ()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all places where a plug-in may read or replace an activation."""
        return ("embedding", *self.inner_sites, *(("top_input",) if self.top_nn else ()))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:  # noqa: ARG002
        """The Top-NN's hidden Linears, in order; none without a Top-NN."""
        return ()

    def site_width(self, site: str, shape: TableShape) -> int:
        """Width of the flattened activation at one of `sites`: d, as cross layers keep it, but for
        what the Top-NN reads.
        """
        if site == "top_input":
            return self.hidden_layers(shape)[0].width_in
        return self.input_width(shape)

    @abstractmethod
    def parameters(self, shape: TableShape) -> int:
        """Trainable parameters, PAD rows included, as FuxiCTR counts them."""

    @abstractmethod
    def macs(self, shape: TableShape) -> int:
        """Multiply-accumulates of matrix products a row, forward; element-wise work not counted."""


def mlp_parameters(
    width_in: int, widths: Sequence[int], *, batch_norm: bool, width_out: int | None = None
) -> int:
    """M(in, h, out): weights, biases, two more a unit with batch norm; None: no output layer."""
    count, width = 0, width_in
    for units in widths:
        count += width * units + units + (2 * units if batch_norm else 0)
        width = units
    return count if width_out is None else count + width * width_out + width_out


def mlp_layers(width_in: int, widths: Sequence[int]) -> tuple[HiddenLayer, ...]:
    """The hidden Linears of the same MLP."""
    sizes = itertools.pairwise([width_in, *widths])
    return tuple(HiddenLayer(width_in=a, width_out=b) for a, b in sizes)


def mlp_macs(width_in: int, widths: Sequence[int], *, width_out: int | None = None) -> int:
    """Multiply-accumulates a row of the same MLP."""
    sizes = [width_in, *widths, *([] if width_out is None else [width_out])]
    return sum(a * b for a, b in itertools.pairwise(sizes))
