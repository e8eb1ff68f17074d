"""Arms that change the backbone's own path: the structural rivals (fidelity 27, 28) and LayerNorm
in front of it (fidelity 38).
"""

import pydantic

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.plugin import ArmSettings
from prime_bench.settings.shape import TableShape


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
