"""APG: weights generated for each row, in the two places where the paper compares with it."""

import itertools
from dataclasses import dataclass
from typing import Self

import pydantic

from prime_bench.base.errors import UsageError
from prime_bench.settings.backbone import BackboneSettings, Widths, mlp_macs, mlp_parameters
from prime_bench.settings.dcnv2 import DCNv2Settings
from prime_bench.settings.fibinet import FiBiNETSettings
from prime_bench.settings.plugin import ArmSettings
from prime_bench.settings.shape import TableShape


@dataclass(frozen=True, kw_only=True)
class APGShape:
    """Widths of one APG linear."""

    width_in: int
    width_out: int
    condition: int
    """Width of what its weights are generated from."""
    vectors: int
    """Vectors of a row that the same generated weights act on."""
    replaced: bool
    """Whether it takes the place of a Linear of the same widths."""


class APGSettings(ArmSettings):
    """Keys of FuxiCTR's APG with low rank, over-parameterisation and a generated bias, conditioned
    on the layer's own input. The values of FuxiCTR's template are the defaults.
    """

    rank_k: int = pydantic.Field(8, ge=1)
    """k': the generated matrix S is k' x k'."""
    overparam_p: int = pydantic.Field(64, ge=1)
    """p: inner width of U = U_l U_r and V = V_l V_r; at least k'."""
    hypernet_hidden_units: Widths = (512, 256)
    """Widths of the hidden layers of the network that generates S and the bias."""

    @pydantic.model_validator(mode="after")
    def _over_parameterised(self) -> Self:
        if self.overparam_p < self.rank_k:
            raise ValueError(
                f"overparam_p = {self.overparam_p} is less than rank_k = {self.rank_k}"
            )
        return self

    def misfit(self, backbone: BackboneSettings) -> str | None:
        """APG stands on FiBiNET and DCNv2 alone, between widths of at least k'."""
        if isinstance(backbone, FiBiNETSettings):
            return self._too_narrow(backbone.embedding_dim)
        if isinstance(backbone, DCNv2Settings) and backbone.model_structure == "parallel":
            return self._too_narrow(min(backbone.parallel_dnn_hidden_units))
        return (
            "APG is defined on FiBiNET, before its bilinears, and on DCNv2 with "
            'model_structure = "parallel", in its MLP (docs/fidelity.md, 24 and 25)'
        )

    def layers(self, backbone: BackboneSettings, shape: TableShape) -> list[APGShape]:
        """What it adds: on DCNv2 each hidden Linear of the parallel MLP is replaced, on FiBiNET
        one layer k -> k, conditioned on z, acts on all F embeddings.

        Raises UsageError where it does not fit.
        """
        d, k = backbone.input_width(shape), backbone.embedding_dim
        fault = self.misfit(backbone) or self._too_narrow(d)
        if fault is not None:
            raise UsageError(f"arm apg: {fault}")
        if isinstance(backbone, DCNv2Settings):
            return [
                APGShape(width_in=a, width_out=b, condition=a, vectors=1, replaced=True)
                for a, b in itertools.pairwise([d, *backbone.parallel_dnn_hidden_units])
            ]
        of_fields = APGShape(
            width_in=k, width_out=k, condition=d, vectors=shape.n_fields, replaced=False
        )
        return [of_fields]

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """A layer: in p + 2 p k' + p out + M(condition, h, k'^2 + out), less a replaced Linear."""
        count = 0
        for layer in self.layers(backbone, shape):
            a, b = layer.width_in, layer.width_out
            count += (a + 2 * self.rank_k + b) * self.overparam_p
            count += mlp_parameters(
                layer.condition, self.hypernet_hidden_units, batch_norm=False, width_out=self.out(b)
            )
            count -= a * b + b if layer.replaced else 0
        return count

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """A layer: the hypernetwork and (in + k' + out) k' a vector, less a replaced Linear; U_l
        U_r and V_l V_r, once a batch, are not counted.
        """
        count = 0
        for layer in self.layers(backbone, shape):
            a, b, rank = layer.width_in, layer.width_out, self.rank_k
            count += mlp_macs(layer.condition, self.hypernet_hidden_units, width_out=self.out(b))
            count += (a + rank + b) * rank * layer.vectors
            count -= a * b if layer.replaced else 0
        return count

    def out(self, width_out: int) -> int:
        """Width of what the hypernetwork generates: the bias and S."""
        return width_out + self.rank_k**2

    def _too_narrow(self, width: int) -> str | None:
        if self.rank_k <= width:
            return None
        return f"rank_k = {self.rank_k} is more than {width}, a width that it stands between"
