"""Settings of PRIME, its controls and the plug-ins that it is compared with: keys, defaults, and
the formulas of the parameters and multiply-accumulates that they add.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal, Self

import pydantic

from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import JsonTable
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


class AnchoredSettings(PluginSettings):
    """Keys of plug-ins whose prediction contains the backbone's own probability p_d: PRIME, its
    controls and the residuals.
    """

    dense_weight: float = pydantic.Field(0.5, ge=0, le=1)
    """Weight alpha of the anchor, the backbone's own probability, in the prediction (Eq. 17)."""
    anchor: Literal["logit", "probability"] = "logit"
    """What stands for logit(p_d) in Eq. 13: the backbone's logit, or the logit of its probability
    clamped to [eps, 1 - eps] (fidelity 40)."""
    anchor_epsilon: float = pydantic.Field(1e-7, ge=6e-8, lt=0.5)
    """The eps of `anchor = "probability"`. Next to 1, float32 probabilities are 6e-8 apart."""

    @pydantic.model_validator(mode="after")
    def _epsilon_is_used(self) -> Self:
        if self.anchor == "logit" and "anchor_epsilon" in self.model_fields_set:
            raise ValueError('anchor_epsilon needs anchor = "probability"')
        return self

    def plain(self) -> JsonTable:
        """The settings as JSON values. With `anchor = "logit"` both keys of the anchor are left
        out, so that jobs with it keep the ids that they had before these keys existed.
        """
        absent = ("anchor", "anchor_epsilon") if self.anchor == "logit" else ()
        return {key: value for key, value in super().plain().items() if key not in absent}


class PrimeConfig(AnchoredSettings):
    """Keys of PRIME. The defaults are the paper's configuration."""

    bags: int = pydantic.Field(4, ge=1)
    """Number G of bags, each with its own router; their predictions are averaged (Eq. 15)."""
    experts_per_bag: int = pydantic.Field(8, ge=1)
    """Number M of experts in a bag, which its router weighs (Eq. 12)."""
    rank: int = pydantic.Field(16, ge=1)
    """Rank q, the width of an expert's hidden response (Eq. 10)."""
    temperature: float = pydantic.Field(1.0, gt=0)
    """Temperature T of the router's softmax (Eq. 12)."""
    load_ema: float = pydantic.Field(0.99, ge=0, le=1)
    """Decay mu of the moving average of the load (Eq. 21)."""
    load_bias_step: float = pydantic.Field(1e-3, ge=0)
    """Step eta_b of the load bias (Eq. 22)."""
    load_bias_bound: float = pydantic.Field(2.0, ge=0)
    """Bound c_max of the load bias (Eq. 22)."""
    auxiliary_weight: float = pydantic.Field(0.0, ge=0)
    """Weight lambda of a loss on the batch's load; 0: no such loss (fidelity 21)."""
    layer_norm: bool = True
    """Whether the input of routers and experts goes through LayerNorm without affine (Eq. 9,
    fidelity 33)."""
    routing: Literal["learned", "uniform", "permuted"] = "learned"
    """Weights of a bag's experts: those of the router, 1/M (fidelity 17), or those of the router
    for another row of the batch (fidelity 18)."""
    output: Literal["probability", "logit"] = "probability"
    """What the experts correct: the probability (Eq. 13-17), or the logit, without alpha
    (fidelity 32)."""
    expert_input: str = "embedding"
    """Site whose flattened activation the experts read."""
    router_input: str = "embedding"
    """Site whose flattened activation the routers read."""
    detach_router: bool = False
    """Whether no gradient flows back through the routers' input (fidelity 34)."""

    @property
    def experts(self) -> int:
        """E = G M, the number of all experts."""
        return self.bags * self.experts_per_bag

    @property
    def input_site(self) -> str:
        """Site that the experts read."""
        return self.expert_input

    @property
    def router_site(self) -> str | None:
        """Site that the routers read; None if it is that of the experts."""
        return None if self.router_input == self.expert_input else self.router_input

    def parameters(self, input_width: int, router_width: int | None = None) -> int:
        """E (q + 1) (d + 1), Eq. 25, where d is the width of the experts' input, and also of the
        routers' unless `router_width` is given.
        """
        experts = self.rank * input_width + self.rank + 1
        return self.experts * (experts + self._routed(router_width or input_width))

    def macs(self, input_width: int, router_width: int | None = None) -> int:
        """E d + E q (d + 1), Eq. 24, with widths as in `parameters`."""
        experts = self.rank * (input_width + 1)
        return self.experts * (experts + self._routed(router_width or input_width))

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Parameters for the widths of the two sites."""
        return self.parameters(*self._widths(backbone, shape))

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Multiply-accumulates for the widths of the two sites."""
        return self.macs(*self._widths(backbone, shape))

    def _widths(self, backbone: BackboneSettings, shape: TableShape) -> tuple[int, int]:
        sites = (self.expert_input, self.router_input)
        of_experts, of_router = (backbone.site_width(site, shape) for site in sites)
        return of_experts, of_router

    def _routed(self, router_width: int) -> int:
        """Weights of one expert in its router; none with uniform routing."""
        return 0 if self.routing == "uniform" else router_width


class UniformRouting(PrimeConfig):
    """PRIME whose experts all have the weight 1/M (fidelity 17)."""

    routing: Literal["uniform"] = "uniform"


class PermutedRouting(PrimeConfig):
    """PRIME in which each row gets the routing of another row of its batch (fidelity 18)."""

    routing: Literal["permuted"] = "permuted"


class NoAnchor(PrimeConfig):
    """PRIME without its anchor: p = p_s (fidelity 19)."""

    dense_weight: float = pydantic.Field(0.0, ge=0, le=1)


class SingleBag(PrimeConfig):
    """PRIME with its 32 experts in one bag (fidelity 20)."""

    bags: int = pydantic.Field(1, ge=1)
    experts_per_bag: int = pydantic.Field(32, ge=1)


class AuxiliaryLoss(PrimeConfig):
    """PRIME with a loss on the load in place of the load bias (fidelity 21)."""

    load_bias_step: float = pydantic.Field(0.0, ge=0)
    auxiliary_weight: float = pydantic.Field(1e-2, ge=0)


class ResidualSettings(AnchoredSettings):
    """Keys of both residual controls, which have PRIME's size but no routing."""

    layer_norm: bool = True
    """Whether the input goes through LayerNorm without affine, as in PRIME."""


class ResidualParametersSettings(ResidualSettings):
    """A residual with one hidden layer of width h = E (q + 1), which has the parameters of PRIME
    with E experts of rank q, plus one, at any d.
    """

    width: int = pydantic.Field(PrimeConfig().experts * (PrimeConfig().rank + 1), ge=1)
    """Width h of the hidden layer; the default matches the paper's PRIME."""

    def parameters(self, input_width: int) -> int:
        """h (d + 1) + 1: weights V (h, d) and u (h), bias b."""
        return self.width * (input_width + 1) + 1

    def macs(self, input_width: int) -> int:
        """h (d + 1), the products with V and u."""
        return self.width * (input_width + 1)


class ResidualNoLayerNorm(ResidualParametersSettings):
    """The residual with PRIME's parameters, without LayerNorm (fidelity 38)."""

    layer_norm: bool = False


class ResidualMacsSettings(ResidualSettings):
    """A residual with two hidden layers of width w, the largest for which it does no more
    multiply-accumulates than PRIME.
    """

    experts: int = pydantic.Field(PrimeConfig().experts, ge=1)
    """Number E of experts of the PRIME that is matched."""
    rank: int = pydantic.Field(PrimeConfig().rank, ge=1)
    """Rank q of the PRIME that is matched."""

    def target(self, input_width: int) -> int:
        """Multiply-accumulates of PRIME, Eq. 24."""
        prime = PrimeConfig(bags=1, experts_per_bag=self.experts, rank=self.rank)
        return prime.macs(input_width)

    def width(self, input_width: int) -> int:
        """The largest w with w (d + w + 1) <= the target, and at least 1."""
        d = input_width + 1
        return max(1, (math.isqrt(d * d + 4 * self.target(input_width)) - d) // 2)

    def parameters(self, input_width: int) -> int:
        """Parameters of the layers d -> w -> w -> 1 with biases."""
        w = self.width(input_width)
        return input_width * w + w + w * w + w + w + 1

    def macs(self, input_width: int) -> int:
        """w (d + w + 1)."""
        w = self.width(input_width)
        return w * (input_width + w + 1)


class DenseLayerNormSettings(ArmSettings):
    """Settings of a backbone that reads LayerNorm(z) without affine; there are no keys."""

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:  # noqa: ARG002
        """0, because LayerNorm without affine has no parameters."""
        return 0

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:  # noqa: ARG002
        """0, because element-wise work is not counted."""
        return 0


class HiddenExpertsSettings(ArmSettings):
    """Keys of both structural arms, which have routed low-rank experts at every hidden Linear of
    the Top-NN.
    """

    bags: int = pydantic.Field(4, ge=1)
    """Number G of bags a layer, each with its own router; their outputs are averaged."""
    experts_per_bag: int = pydantic.Field(8, ge=1)
    """Number M of experts in a bag, which its router weighs."""
    rank: int = pydantic.Field(4, ge=1)
    """Rank q, the width between the two matrices of an expert."""

    @property
    def experts(self) -> int:
        """E = G M, the number of all experts."""
        return self.bags * self.experts_per_bag

    def misfit(self, backbone: BackboneSettings) -> str | None:
        """None if the backbone has a Top-NN, else why the arm does not fit it."""
        return None if backbone.top_nn else "it has no Top-NN whose hidden layers could be replaced"

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Sum over the hidden layers of E in (routers) + E q in (V) + E q out (U), and the change
        of the layer's own Linear.
        """
        return self._routed(backbone, shape) + self._own(backbone, shape, biases=False)

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """The numbers in the same matrices, and the change of biases."""
        return self._routed(backbone, shape) + self._own(backbone, shape, biases=True)

    def _routed(self, backbone: BackboneSettings, shape: TableShape) -> int:
        return self.experts * sum(
            layer.width_in + self.rank * (layer.width_in + layer.width_out)
            for layer in backbone.hidden_layers(shape)
        )

    def _own(self, backbone: BackboneSettings, shape: TableShape, *, biases: bool) -> int:  # noqa: ARG002
        """Change of the layers' own Linears."""
        return 0


class HiddenSubspaceSettings(HiddenExpertsSettings):
    """Settings of an arm that adds experts to each hidden Linear W x of the Top-NN: the mean over
    bags of the sum over experts of r U V x (fidelity 27).
    """


class MultilayerBaggedSettings(HiddenExpertsSettings):
    """Settings of an arm that replaces each hidden Linear of the Top-NN by experts: the mean over
    bags of the sum over experts of r U SiLU(V LN(x)), plus b (fidelity 28).
    """

    def _own(self, backbone: BackboneSettings, shape: TableShape, *, biases: bool) -> int:
        return sum(
            (layer.width_out * (not layer.bias) if biases else 0) - layer.width_in * layer.width_out
            for layer in backbone.hidden_layers(shape)
        )


@dataclass(frozen=True, kw_only=True)
class APGShape:
    """Sizes of one APG layer."""

    width_in: int
    width_out: int
    condition: int
    """Width of the input from which its weights are generated."""
    vectors: int
    """Number of vectors of a row to which the same generated weights are applied."""
    replaced: bool
    """Whether the layer replaces a Linear of the same widths."""


class APGSettings(ArmSettings):
    """Keys of FuxiCTR's APG with low rank, over-parameterisation and a generated bias, conditioned
    on the layer's own input. The defaults are the values of FuxiCTR's template.
    """

    rank_k: int = pydantic.Field(8, ge=1)
    """Width k' of the generated matrix S (k', k')."""
    overparam_p: int = pydantic.Field(64, ge=1)
    """Inner width p of U = U_l U_r and V = V_l V_r, at least k'."""
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
        """None for FiBiNET, and for DCNv2 with a parallel MLP, between widths of at least k'; else
        why the arm does not fit.
        """
        if isinstance(backbone, FiBiNETSettings):
            return self._too_narrow(backbone.embedding_dim)
        if isinstance(backbone, DCNv2Settings) and backbone.model_structure == "parallel":
            return self._too_narrow(min(backbone.parallel_dnn_hidden_units))
        return (
            "APG is defined on FiBiNET, before its bilinears, and on DCNv2 with "
            'model_structure = "parallel", in its MLP (docs/fidelity.md, 24 and 25)'
        )

    def layers(self, backbone: BackboneSettings, shape: TableShape) -> list[APGShape]:
        """The APG layers of the arm. On DCNv2 they replace each hidden Linear of the parallel MLP;
        on FiBiNET one layer k -> k, conditioned on z, is applied to all F embeddings.

        Raises UsageError if the arm does not fit the backbone.
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
        """Sum over the layers of p in + 2 p k' + p out (U and V) and the hypernetwork's MLP from
        `condition` to k'^2 + out, less the Linear that a layer replaces.
        """
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
        """Sum over the layers of the hypernetwork's MLP and, for each of the layer's vectors,
        (in + k' + out) k', less the Linear that a layer replaces.

        U_l U_r and V_l V_r are computed once a batch and not counted.
        """
        count = 0
        for layer in self.layers(backbone, shape):
            a, b, rank = layer.width_in, layer.width_out, self.rank_k
            count += mlp_macs(layer.condition, self.hypernet_hidden_units, width_out=self.out(b))
            count += (a + rank + b) * rank * layer.vectors
            count -= a * b if layer.replaced else 0
        return count

    def out(self, width_out: int) -> int:
        """Width of the hypernetwork's output, the bias and S."""
        return width_out + self.rank_k**2

    def _too_narrow(self, width: int) -> str | None:
        if self.rank_k <= width:
            return None
        return f"rank_k = {self.rank_k} is more than {width}, a width that it stands between"
