"""The matched residuals: PRIME's budget without experts or routing (fidelity 22, 23)."""

import math

import pydantic

from prime_bench.settings.plugin import PluginSettings
from prime_bench.settings.prime import PrimeConfig


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
