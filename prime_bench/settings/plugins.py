"""Settings of PRIME, its controls and its rivals: keys, defaults, and the formulas of
what they add.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal, Self

import pydantic

from prime_bench.base.errors import UsageError
from prime_bench.settings.backbones import DCNv2Settings, FiBiNETSettings
from prime_bench.settings.interface import (
    ArmSettings,
    BackboneSettings,
    PluginSettings,
    TableShape,
    Widths,
    mlp_macs,
    mlp_parameters,
)


class PrimeConfig(PluginSettings):
    """The paper's frozen configuration is the default."""

    bags: int = pydantic.Field(4, ge=1)
    """G: independent routers; the final expert prediction is the bags' mean (Eq. 15)."""
    experts_per_bag: int = pydantic.Field(8, ge=1)
    """M: experts that one router chooses among (Eq. 12)."""
    rank: int = pydantic.Field(16, ge=1)
    """q: width of an expert's hidden response (Eq. 10)."""
    dense_weight: float = pydantic.Field(0.5, ge=0, le=1)
    """alpha: share of the Dense probability in the mixture (Eq. 17)."""
    temperature: float = pydantic.Field(1.0, gt=0)
    """T of the router's softmax (Eq. 12)."""
    load_ema: float = pydantic.Field(0.99, ge=0, le=1)
    """mu of the moving average of the load (Eq. 21)."""
    load_bias_step: float = pydantic.Field(1e-3, ge=0)
    """eta_b: step of the load bias (Eq. 22)."""
    load_bias_bound: float = pydantic.Field(2.0, ge=0)
    """c_max: bound of the load bias (Eq. 22)."""
    auxiliary_weight: float = pydantic.Field(0.0, ge=0)
    """lambda of a loss on the batch's load; 0: no such loss (fidelity 21)."""
    layer_norm: bool = True
    """LayerNorm without affine on the router's and the experts' input (Eq. 9, fidelity 33)."""
    routing: Literal["learned", "uniform", "permuted"] = "learned"
    """Weights of a bag's experts: the router's, 1/M (fidelity 17), or the router's for another row
    of the batch (fidelity 18)."""
    output: Literal["probability", "logit"] = "probability"
    """What the experts' mean corrects: the probability (Eq. 13-17) or the logit, without alpha
    (fidelity 32)."""
    expert_input: str = "embedding"
    """Site whose flattened activation the experts read in place of z."""
    router_input: str = "embedding"
    """Site that the routers read."""
    detach_router: bool = False
    """Whether the routers' input is cut from the gradient (fidelity 34)."""

    @property
    def experts(self) -> int:
        """E = G M."""
        return self.bags * self.experts_per_bag

    @property
    def input_site(self) -> str:
        """The experts'."""
        return self.expert_input

    @property
    def router_site(self) -> str | None:
        """None where it is the experts' as well."""
        return None if self.router_input == self.expert_input else self.router_input

    def parameters(self, input_width: int, router_width: int | None = None) -> int:
        """E (q + 1) (d + 1), Eq. 25, with d the width of both inputs unless the router's is
        given.
        """
        experts = self.rank * input_width + self.rank + 1
        return self.experts * (experts + self._routed(router_width or input_width))

    def macs(self, input_width: int, router_width: int | None = None) -> int:
        """E d + E q (d + 1), Eq. 24."""
        experts = self.rank * (input_width + 1)
        return self.experts * (experts + self._routed(router_width or input_width))

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """At the widths of the two sites."""
        return self.parameters(*self._widths(backbone, shape))

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """At the widths of the two sites."""
        return self.macs(*self._widths(backbone, shape))

    def _widths(self, backbone: BackboneSettings, shape: TableShape) -> tuple[int, int]:
        sites = (self.expert_input, self.router_input)
        of_experts, of_router = (backbone.site_width(site, shape) for site in sites)
        return of_experts, of_router

    def _routed(self, router_width: int) -> int:
        """Weights of one expert in its router; uniform routing has none."""
        return 0 if self.routing == "uniform" else router_width


class UniformRouting(PrimeConfig):
    """Every expert of a bag has the weight 1/M (fidelity 17)."""

    routing: Literal["uniform"] = "uniform"


class PermutedRouting(PrimeConfig):
    """Each row gets the routing of another row of its batch (fidelity 18)."""

    routing: Literal["permuted"] = "permuted"


class NoAnchor(PrimeConfig):
    """p = p_s (fidelity 19)."""

    dense_weight: float = pydantic.Field(0.0, ge=0, le=1)


class SingleBag(PrimeConfig):
    """The same 32 experts in one bag (fidelity 20)."""

    bags: int = pydantic.Field(1, ge=1)
    experts_per_bag: int = pydantic.Field(32, ge=1)


class AuxiliaryLoss(PrimeConfig):
    """A loss on the load in place of the load bias (fidelity 21)."""

    load_bias_step: float = pydantic.Field(0.0, ge=0)
    auxiliary_weight: float = pydantic.Field(1e-2, ge=0)


class ResidualSettings(PluginSettings):
    """Keys of both."""

    dense_weight: float = pydantic.Field(0.5, ge=0, le=1)
    """alpha, as in PRIME: p = p_d + (1 - alpha) (sigmoid(l_d + delta) - p_d)."""
    layer_norm: bool = True
    """LayerNorm without affine on the input, as PRIME's."""


class ResidualParametersSettings(ResidualSettings):
    """One hidden layer of width h = E (q + 1): matched to PRIME's E experts of rank q at any d."""

    width: int = pydantic.Field(PrimeConfig().experts * (PrimeConfig().rank + 1), ge=1)
    """h; the default matches the paper's PRIME."""

    def parameters(self, input_width: int) -> int:
        """Weights V (h, d), u (h), b."""
        return self.width * (input_width + 1) + 1

    def macs(self, input_width: int) -> int:
        """Products of V and u: h (d + 1)."""
        return self.width * (input_width + 1)


class ResidualNoLayerNorm(ResidualParametersSettings):
    """The same without LayerNorm (fidelity 38)."""

    layer_norm: bool = False


class ResidualMacsSettings(ResidualSettings):
    """Two hidden layers of one width w, the widest within PRIME's multiply-accumulates at d."""

    experts: int = pydantic.Field(PrimeConfig().experts, ge=1)
    """E of the PRIME that is matched."""
    rank: int = pydantic.Field(PrimeConfig().rank, ge=1)
    """q of the PRIME that is matched."""

    def target(self, input_width: int) -> int:
        """PRIME's multiply-accumulates, Eq. 24."""
        prime = PrimeConfig(bags=1, experts_per_bag=self.experts, rank=self.rank)
        return prime.macs(input_width)

    def width(self, input_width: int) -> int:
        """w: the largest with w (d + w + 1) <= the target, and at least 1."""
        d = input_width + 1
        return max(1, (math.isqrt(d * d + 4 * self.target(input_width)) - d) // 2)

    def parameters(self, input_width: int) -> int:
        """d -> w -> w -> 1 with biases."""
        w = self.width(input_width)
        return input_width * w + w + w * w + w + w + 1

    def macs(self, input_width: int) -> int:
        """w (d + w + 1)."""
        w = self.width(input_width)
        return w * (input_width + w + 1)


class DenseLayerNormSettings(ArmSettings):
    """The backbone reads LN(z), without affine; no keys, nothing added."""

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:  # noqa: ARG002
        """LayerNorm without affine has none."""
        return 0

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:  # noqa: ARG002
        """Element-wise work is not counted."""
        return 0


class HiddenExpertsSettings(ArmSettings):
    """Keys of both rivals: routed low-rank experts at every hidden Linear of the Top-NN."""

    bags: int = pydantic.Field(4, ge=1)
    """G: independent routers a layer, whose outputs are averaged."""
    experts_per_bag: int = pydantic.Field(8, ge=1)
    """M: experts that one router weighs."""
    rank: int = pydantic.Field(4, ge=1)
    """q: width of an expert's inside."""

    @property
    def experts(self) -> int:
        """E = G M."""
        return self.bags * self.experts_per_bag

    def misfit(self, backbone: BackboneSettings) -> str | None:
        """They stand in the hidden layers of a Top-NN."""
        return None if backbone.top_nn else "it has no Top-NN whose hidden layers could be replaced"

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Routers E in, V E q in, U E q out a layer, and what becomes of its own Linear."""
        return self._routed(backbone, shape) + self._own(backbone, shape, biases=False)

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """The same matrices and the biases."""
        return self._routed(backbone, shape) + self._own(backbone, shape, biases=True)

    def _routed(self, backbone: BackboneSettings, shape: TableShape) -> int:
        return self.experts * sum(
            layer.width_in + self.rank * (layer.width_in + layer.width_out)
            for layer in backbone.hidden_layers(shape)
        )

    def _own(self, backbone: BackboneSettings, shape: TableShape, *, biases: bool) -> int:  # noqa: ARG002
        """Change of what a layer has beside its experts."""
        return 0


class HiddenSubspaceSettings(HiddenExpertsSettings):
    """W x + mean over bags of sum over experts of r U V x: W x stays (fidelity 27)."""


class MultilayerBaggedSettings(HiddenExpertsSettings):
    """Mean over bags of sum over experts of r U SiLU(V LN(x)), plus b: W is gone (fidelity 28)."""

    def _own(self, backbone: BackboneSettings, shape: TableShape, *, biases: bool) -> int:
        return sum(
            (layer.width_out * (not layer.bias) if biases else 0) - layer.width_in * layer.width_out
            for layer in backbone.hidden_layers(shape)
        )


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
