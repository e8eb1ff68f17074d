"""PRIME: routed low-rank residual experts around a Dense anchor (paper, section 3)."""

import pydantic

from prime_bench.settings.plugin import PluginSettings


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
    layer_norm: bool = True
    """LayerNorm without affine on the router's and the experts' input (Eq. 9, fidelity 33)."""

    @property
    def experts(self) -> int:
        """E = G M."""
        return self.bags * self.experts_per_bag

    def parameters(self, input_width: int) -> int:
        """E (q + 1) (d + 1), Eq. 25."""
        return self.experts * (self.rank + 1) * (input_width + 1)

    def macs(self, input_width: int) -> int:
        """E d + E q (d + 1), Eq. 24."""
        return self.experts * input_width + self.experts * self.rank * (input_width + 1)
