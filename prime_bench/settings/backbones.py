"""Settings of the thirteen backbones: keys, defaults, and the formulas of their parameters and
multiply-accumulates.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

import pydantic

from prime_bench.settings.interface import (
    BackboneSettings,
    HiddenLayer,
    TableShape,
    Widths,
    mlp_layers,
    mlp_macs,
    mlp_parameters,
)


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
        """Modules of the Top-NN: the MLP with its output layer."""
        return ("dnn",)

    def top_width(self, shape: TableShape) -> int:
        """Width of the MLP's input: d, unless a backbone overrides it."""
        return self.input_width(shape)

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Hidden Linears of the MLP, in order."""
        return mlp_layers(self.top_width(shape), self.hidden_units)

    def top_parameters(self, width: int) -> int:
        """Trainable parameters of the MLP with its output layer, M(width, h, 1)."""
        return mlp_parameters(width, self.hidden_units, batch_norm=self.batch_norm, width_out=1)

    def top_macs(self, width: int) -> int:
        """Multiply-accumulates of a row in the MLP with its output layer."""
        return mlp_macs(width, self.hidden_units, width_out=1)


class DNNSettings(TopSettings):
    """Keys of FuxiCTR's DNN."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Modules of the Top-NN: the whole MLP."""
        return ("mlp",)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V plus M(d, h, 1)."""
        tables = self.embedding_dim * shape.embedding_rows
        return tables + self.top_parameters(self.input_width(shape))

    def macs(self, shape: TableShape) -> int:
        """The MLP's products. A numeric field's x * w is element-wise and not counted."""
        return self.top_macs(self.input_width(shape))


class AutoIntSettings(BackboneSettings):
    """Keys of FuxiCTR's AutoInt, which is called AutoInt+ with an MLP (fidelity 8)."""

    dnn_hidden_units: Widths = (400, 400, 400)
    """Widths of the hidden layers of the MLP on z; empty: no MLP, and so no Top-NN."""
    attention_layers: int = pydantic.Field(2, ge=1)
    """Number L of attention layers."""
    num_heads: int = pydantic.Field(1, ge=1)
    """Heads of each attention layer."""
    attention_dim: int = pydantic.Field(8, ge=1)
    """Width a of all heads of a layer together."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout of the attention weights, and after each hidden layer of the MLP."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear of the MLP and its ReLU."""
    layer_norm: bool = False
    """Whether each attention layer's output goes through LayerNorm."""
    use_scale: bool = False
    """Whether attention scores are divided by sqrt(a / heads)."""
    use_wide: bool = False
    """Whether the logit has a linear term."""
    use_residual: bool = True
    """Whether each attention layer adds its input, projected if the widths differ."""

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
        """Modules of the Top-NN: the MLP with its output layer. `fc` belongs to the attention."""
        return ("dnn",) if self.dnn_hidden_units else ()

    @property
    def layer_inputs(self) -> list[int]:
        """Width of each attention layer's input: k, then a."""
        return [self.embedding_dim, *[self.attention_dim] * (self.attention_layers - 1)]

    def projections(self, width_in: int) -> int:
        """Number of matrices (width_in, a) in a layer: queries, keys, values, and the residual's
        projection.
        """
        return 4 if self.use_residual and width_in != self.attention_dim else 3

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Hidden Linears of the MLP, in order; none without an MLP."""
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


class DCNSettings(BackboneSettings):
    """Keys of FuxiCTR's DCN."""

    dnn_hidden_units: Widths = (400, 400, 400)
    """Widths of the hidden layers of the MLP beside the cross layers; empty: no MLP."""
    num_cross_layers: int = pydantic.Field(3, ge=1)
    """Number L of cross layers."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer of the MLP."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear and its ReLU."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Modules of the Top-NN: the MLP. Its output layer `fc` is shared with the cross layers."""
        return ("dnn",) if self.dnn_hidden_units else ()

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """Sites at the outputs of the cross layers."""
        return tuple(f"cross_{layer + 1}" for layer in range(self.num_cross_layers))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Hidden Linears of the MLP, in order; none without an MLP."""
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
        """Width of the last Linear's input: x_L and the MLP's output."""
        return d + (self.dnn_hidden_units[-1] if self.dnn_hidden_units else 0)


class FiBiNETSettings(TopSettings):
    """Keys of FuxiCTR's FiBiNET."""

    bilinear_type: Literal["field_all", "field_each", "field_interaction"] = "field_interaction"
    """Number of k x k matrices: one for all pairs of fields, one for each left field, or one for
    each pair."""
    reduction_ratio: int | float = pydantic.Field(3, gt=0)
    """F divided by the width of SENET's hidden layer; below 1 the layer is wider than F."""

    @pydantic.field_validator("reduction_ratio")
    @classmethod
    def _one_spelling(cls, value: float) -> int | float:
        """A whole number is an int, so that 3 and 3.0 are one job."""
        return int(value) if float(value).is_integer() else value

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """The site at the products of both bilinears, (B, 2 P, k)."""
        return ("bilinear",)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V, SENET 2 F r, two bilinears, and M(2 P k, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        matrices = {
            "field_all": 1,
            "field_each": shape.n_fields,
            "field_interaction": shape.n_pairs,
        }
        bilinears = 2 * matrices[self.bilinear_type] * self.embedding_dim**2
        return tables + self._senet(shape) + bilinears + self.top_parameters(self.top_width(shape))

    def macs(self, shape: TableShape) -> int:
        """SENET, both bilinears' k x k products, and the MLP."""
        # If pairs share a left field's matrix, each of the F - 1 left fields is multiplied once.
        left = shape.n_fields - 1
        products = shape.n_pairs if self.bilinear_type == "field_interaction" else left
        bilinears = 2 * products * self.embedding_dim**2
        return self._senet(shape) + bilinears + self.top_macs(self.top_width(shape))

    def top_width(self, shape: TableShape) -> int:
        """2 P k, the width of the MLP's input."""
        return 2 * shape.n_pairs * self.embedding_dim

    def site_width(self, site: str, shape: TableShape) -> int:
        """Width of a site; that of `bilinear` is the width of the MLP's input."""
        return super().site_width("top_input" if site == "bilinear" else site, shape)

    def _senet(self, shape: TableShape) -> int:
        """2 F r with r = max(1, int(F / ratio)): parameters, and products, of two Linears."""
        return 2 * shape.n_fields * max(1, int(shape.n_fields / self.reduction_ratio))


class GDCNSettings(BackboneSettings):
    """Keys of FuxiCTR's GDCN."""

    dnn_hidden_units: Widths = pydantic.Field((400, 400, 400), min_length=1)
    """Widths of the hidden layers of the MLP on the last cross layer's output."""
    num_cross_layers: int = pydantic.Field(3, ge=1)
    """Number L of cross layers."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer of the MLP."""
    batch_norm: bool = False
    """BatchNorm1d between each hidden Linear and its ReLU."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Modules of the Top-NN: the MLP with its output layer."""
        return ("dnn",)

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """Sites at the outputs of the cross layers; the last one is `cross_out`."""
        return (*(f"cross_{layer}" for layer in range(1, self.num_cross_layers)), "cross_out")

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Hidden Linears of the MLP, in order."""
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


class MaskNetSettings(BackboneSettings):
    """Keys of FuxiCTR's MaskNet."""

    dnn_hidden_units: Widths = pydantic.Field((400, 400, 400), min_length=1)
    """Serial: widths of the blocks' outputs. Parallel: widths of the hidden layers of the MLP on
    all blocks."""
    model_type: Literal["SerialMaskNet", "ParallelMaskNet"] = "SerialMaskNet"
    """Whether blocks follow one another, or stand side by side below an MLP."""
    parallel_num_blocks: int = pydantic.Field(1, ge=1)
    """Parallel: number of blocks."""
    parallel_block_dim: int = pydantic.Field(64, ge=1)
    """Parallel: width of a block's output."""
    reduction_ratio: float = pydantic.Field(1.0, gt=0)
    """Width of a mask's hidden layer divided by that of the mask; the product is rounded down."""
    emb_layernorm: bool = True
    """Whether each field's embedding goes through LayerNorm before the first mask."""
    net_layernorm: bool = True
    """Whether each block has a LayerNorm."""
    net_dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    """Dropout after each block and each hidden layer of the MLP."""

    @property
    def serial(self) -> bool:
        """Whether the blocks follow one another."""
        return self.model_type == "SerialMaskNet"

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Modules of the Top-NN. Serial: the blocks without their masks, and the last Linear.
        Parallel: the MLP with its output layer.
        """
        if not self.serial:
            return ("mask_net.dnn",)
        blocks = range(len(self.dnn_hidden_units))
        return (*(f"mask_net.mask_blocks.{i}.hidden_layer" for i in blocks), "mask_net.fc")

    def blocks(self, d: int) -> list[tuple[int, int]]:
        """Input and output width of each block."""
        if not self.serial:
            return [(d, self.parallel_block_dim)] * self.parallel_num_blocks
        return list(zip((d, *self.dnn_hidden_units), self.dnn_hidden_units, strict=False))

    def mask_width(self, width: int) -> int:
        """Width of the hidden layer of a mask of `width`; at least 1, while FuxiCTR's can be 0."""
        return max(1, int(width * self.reduction_ratio))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Hidden Linears. Serial: those of the blocks, without bias. Parallel: those of the MLP."""
        d = self.input_width(shape)
        if not self.serial:
            return mlp_layers(*self.head(d))
        return tuple(HiddenLayer(width_in=a, width_out=b, bias=False) for a, b in self.blocks(d))

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, LayerNorms, masks, blocks, and the layers after them."""
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
        """Products of the masks, of the blocks, and of the layers after them."""
        d = self.input_width(shape)
        masks = sum(
            mlp_macs(d, [self.mask_width(width)], width_out=width) for width, _ in self.blocks(d)
        )
        width_in, widths = self.head(d)
        hidden = sum(a * b for a, b in self.blocks(d))
        return masks + hidden + mlp_macs(width_in, widths, width_out=1)

    def head(self, d: int) -> tuple[int, Sequence[int]]:
        """Input width and hidden widths of the layers that end in the logit."""
        if self.serial:
            return self.blocks(d)[-1][1], ()
        return self.parallel_num_blocks * self.parallel_block_dim, self.dnn_hidden_units


Rate = Annotated[float, pydantic.Field(ge=0, lt=1, strict=True)]


class AFMSettings(BackboneSettings):
    """Keys of FuxiCTR's AFM."""

    attention_dim: int = pydantic.Field(10, ge=1)
    """Width a of the attention's hidden layer."""
    attention_dropout: Annotated[tuple[Rate, Rate], pydantic.Strict(False)] = (0.0, 0.0)
    """Dropout of the pairs' weights, and of the weighted sum."""
    use_attention: bool = True
    """Whether pairs are weighted; if not, all products are summed as in a factorization machine."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V and their bias, and k a + 2 a + k with attention."""
        k, a = self.embedding_dim, self.attention_dim
        attention = k * a + 2 * a + k if self.use_attention else 0
        return (k + 1) * shape.embedding_rows + 1 + attention

    def macs(self, shape: TableShape) -> int:
        """With attention: k a + a a pair, k F^2 in the weighted sum, and k in the output layer."""
        if not self.use_attention:
            return 0
        k, a = self.embedding_dim, self.attention_dim
        return shape.n_pairs * (k * a + a) + k * shape.n_fields**2 + k


class DeepFMSettings(TopSettings):
    """Keys of FuxiCTR's DeepFM."""

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Modules of the Top-NN: the MLP with its output layer."""
        return ("mlp",)

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V and their bias, and M(d, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        return tables + 1 + self.top_parameters(self.input_width(shape))

    def macs(self, shape: TableShape) -> int:
        """The MLP's products. The sum over pairs is element-wise and not counted."""
        return self.top_macs(self.input_width(shape))


class FwFMSettings(BackboneSettings):
    """Keys of FuxiCTR's FwFM, whose single `regularizer` corresponds to both L2 keys."""

    linear_type: Literal["LW", "FeLV", "FiLV"] = "FiLV"
    """Linear part: a weight for each id (LW), or the product of the embedding with a vector for
    each id (FeLV) or for each field (FiLV)."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, P pair weights and a bias; LW: V, FeLV: k V, FiLV: d more."""
        k, v = self.embedding_dim, shape.embedding_rows
        linear = {"LW": v, "FeLV": k * v, "FiLV": self.input_width(shape)}
        return k * v + shape.n_pairs + 1 + linear[self.linear_type]

    def macs(self, shape: TableShape) -> int:
        """k F^2 of the pair weights' matrix with the embeddings, and d of FiLV."""
        d = self.input_width(shape)
        return d * shape.n_fields + (d if self.linear_type == "FiLV" else 0)


class NFMSettings(TopSettings):
    """Keys of FuxiCTR's NFM."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V, and M(k, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        return tables + self.top_parameters(self.embedding_dim)

    def macs(self, shape: TableShape) -> int:  # noqa: ARG002
        """The MLP's products. Pooling is element-wise and not counted."""
        return self.top_macs(self.embedding_dim)

    def top_width(self, shape: TableShape) -> int:  # noqa: ARG002
        """k, because pairs are pooled."""
        return self.embedding_dim


class PNNSettings(TopSettings):
    """Keys of FuxiCTR's PNN, which has inner products only."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, and M(d + P, h, 1)."""
        tables = self.embedding_dim * shape.embedding_rows
        return tables + self.top_parameters(self.top_width(shape))

    def macs(self, shape: TableShape) -> int:
        """k for each of the F^2 ordered pairs, and the MLP's products."""
        products = shape.n_fields**2 * self.embedding_dim
        return products + self.top_macs(self.top_width(shape))

    def top_width(self, shape: TableShape) -> int:
        """d + P, the width of the MLP's input."""
        return self.input_width(shape) + shape.n_pairs


class WideDeepSettings(TopSettings):
    """Keys of FuxiCTR's WideDeep."""

    def parameters(self, shape: TableShape) -> int:
        """Embeddings k V, linear weights V, and M(d, h, 1)."""
        tables = (self.embedding_dim + 1) * shape.embedding_rows
        return tables + self.top_parameters(self.input_width(shape))

    def macs(self, shape: TableShape) -> int:
        """The MLP's products. The linear term is a sum of looked-up weights and not counted."""
        return self.top_macs(self.input_width(shape))


class DCNv2Settings(BackboneSettings):
    """Keys of FuxiCTR's DCNv2, without its low-rank mixture of experts."""

    model_structure: Literal["crossnet_only", "stacked", "parallel", "stacked_parallel"] = (
        "parallel"
    )
    """Which MLPs there are: none, one on the cross layers' output (stacked), one on z (parallel),
    or both."""
    num_cross_layers: int = pydantic.Field(3, ge=1)
    """Number L of cross layers."""
    stacked_dnn_hidden_units: Widths = ()
    """Widths of the hidden layers of the MLP on the cross layers' output; (400, 400, 400) if the
    structure has this MLP and no widths are given."""
    parallel_dnn_hidden_units: Widths = ()
    """Widths of the hidden layers of the MLP on z; (400, 400, 400) if the structure has this MLP
    and no widths are given."""
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
        """Modules of the Top-NN: the parallel MLP if there is one, else the stacked MLP and `fc`,
        which only this MLP reaches.
        """
        tops = {"crossnet_only": (), "stacked": ("stacked_dnn", "fc")}
        return tops.get(self.model_structure, ("parallel_dnn",))

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """Sites at the outputs of the cross layers."""
        return tuple(f"cross_{layer + 1}" for layer in range(self.num_cross_layers))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:
        """Hidden Linears of the Top-NN's MLP, in order."""
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
        """Width of the last Linear's input: the output of the cross layers or of the stacked MLP,
        and that of the parallel MLP.
        """
        stacked = self.stacked_dnn_hidden_units[-1] if self.stacked_dnn_hidden_units else d
        return stacked + (
            self.parallel_dnn_hidden_units[-1] if self.parallel_dnn_hidden_units else 0
        )


def _mlps(structure: str) -> dict[str, bool]:
    """Whether a DCNv2 of this structure has each MLP, by the key of the MLP's widths."""
    return {
        "stacked_dnn_hidden_units": structure.startswith("stacked"),
        "parallel_dnn_hidden_units": structure.endswith("parallel"),
    }
