"""PRIME: routed low-rank residual experts around a Dense anchor (paper, section 3), and the
controls that change a key of it.
"""

from typing import Literal

import pydantic

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.plugin import PluginSettings
from prime_bench.settings.shape import TableShape


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
