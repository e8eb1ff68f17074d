"""The parameter-matched residual: PRIME's budget without experts or routing (fidelity 22)."""

import pydantic

from prime_bench.settings.plugin import PluginSettings
from prime_bench.settings.prime import PrimeConfig


class ResidualParametersSettings(PluginSettings):
    """One hidden layer of width h = E (q + 1): matched to PRIME's E experts of rank q at any d."""

    width: int = pydantic.Field(PrimeConfig().experts * (PrimeConfig().rank + 1), ge=1)
    """h; the default matches the paper's PRIME."""
    dense_weight: float = pydantic.Field(0.5, ge=0, le=1)
    """alpha, as in PRIME: p = p_d + (1 - alpha) (sigmoid(l_d + delta) - p_d)."""
    layer_norm: bool = True
    """LayerNorm without affine on the input, as PRIME's."""

    def parameters(self, input_width: int) -> int:
        """Weights V (h, d), u (h), b."""
        return self.width * (input_width + 1) + 1

    def macs(self, input_width: int) -> int:
        """Products of V and u: h (d + 1)."""
        return self.width * (input_width + 1)
