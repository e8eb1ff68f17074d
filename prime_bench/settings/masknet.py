"""MaskNet: hidden layers on inputs that a mask made from the embeddings weighs."""

from collections.abc import Sequence
from typing import Literal

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


class MaskNetSettings(BackboneSettings):
    """Keys of FuxiCTR's MaskNet."""

    dnn_hidden_units: Widths = pydantic.Field((400, 400, 400), min_length=1)
    """Serial: widths of the blocks' outputs; parallel: widths of the MLP on all blocks."""
    model_type: Literal["SerialMaskNet", "ParallelMaskNet"] = "SerialMaskNet"
    """Blocks one after another, or side by side under an MLP."""
    parallel_num_blocks: int = pydantic.Field(1, ge=1)
    """Parallel: number of blocks."""
    parallel_block_dim: int = pydantic.Field(64, ge=1)
    """Parallel: width of a block's output."""
    reduction_ratio: float = pydantic.Field(1.0, gt=0)
    """Width of a mask's hidden layer over that of the mask; the product is rounded down."""
    emb_layernorm: bool = True
    """LayerNorm of each field's embedding, before the first mask."""
    net_layernorm: bool = True
    """LayerNorm in each block."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each block and each hidden layer of the MLP."""

    @property
    def serial(self) -> bool:
        """Whether the blocks stand one after another."""
        return self.model_type == "SerialMaskNet"

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Serial: the blocks without their masks, and the last Linear; parallel: the MLP."""
        if not self.serial:
            return ("mask_net.dnn",)
        blocks = range(len(self.dnn_hidden_units))
        return (*(f"mask_net.mask_blocks.{i}.hidden_layer" for i in blocks), "mask_net.fc")

    def blocks(self, d: int) -> list[tuple[int, int]]:
        """Widths in and out of each block."""
        if not self.serial:
            return [(d, self.parallel_block_dim)] * self.parallel_num_blocks
        return list(zip((d, *self.dnn_hidden_units), self.dnn_hidden_units, strict=False))

    def mask_width(self, width: int) -> int:
        """Width of the hidden layer that makes a mask of `width`; FuxiCTR's can round down to 0."""
        return max(1, int(width * self.reduction_ratio))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Serial: the blocks', which have no bias; parallel: the MLP's."""
        d = self.input_width(shape)
        if not self.serial:
            return mlp_layers(*self.head(d))
        return tuple(HiddenLayer(width_in=a, width_out=b, bias=False) for a, b in self.blocks(d))

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, LayerNorms 2 k F, the blocks, and what stands on them."""
        d = self.input_width(shape)
        norms = (2 * d if self.emb_layernorm else 0) + (
            sum(2 * width_out for _, width_out in self.blocks(d)) if self.net_layernorm else 0
        )
        masks = sum(
            mlp_parameters(d, [self.mask_width(width)], batch_norm=False, width_out=width)
            for width, _ in self.blocks(d)
        )
        width_in, widths = self.head(d)
        head = mlp_parameters(width_in, widths, batch_norm=False, width_out=1)
        hidden = sum(a * b for a, b in self.blocks(d))
        return self.embedding_dim * shape.embedding_rows + norms + masks + hidden + head

    def macs(self, shape: TableShape) -> int:
        """The masks, the blocks, and what stands on them."""
        d = self.input_width(shape)
        masks = sum(
            mlp_macs(d, [self.mask_width(width)], width_out=width) for width, _ in self.blocks(d)
        )
        width_in, widths = self.head(d)
        hidden = sum(a * b for a, b in self.blocks(d))
        return masks + hidden + mlp_macs(width_in, widths, width_out=1)

    def head(self, d: int) -> tuple[int, Sequence[int]]:
        """Width in and hidden widths of what ends in the logit."""
        if self.serial:
            return self.blocks(d)[-1][1], ()
        return self.parallel_num_blocks * self.parallel_block_dim, self.dnn_hidden_units
