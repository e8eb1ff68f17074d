"""What all arms are configured by."""

from abc import abstractmethod

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.model import Settings
from prime_bench.settings.shape import TableShape


class ArmSettings(Settings):
    """What an arm adds to a backbone."""

    def misfit(self, backbone: BackboneSettings) -> str | None:  # noqa: ARG002
        """Why the arm cannot stand on this backbone; None: it can."""
        return None

    @abstractmethod
    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Trainable parameters of the arm less the backbone's."""

    @abstractmethod
    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Multiply-accumulates a row of the arm less the backbone's."""


class PluginSettings(ArmSettings):
    """A plug-in reads the flattened embeddings z of width d and the backbone's logit."""

    @abstractmethod
    def parameters(self, input_width: int) -> int:
        """Trainable parameters that the plug-in adds at d = `input_width`."""

    @abstractmethod
    def macs(self, input_width: int) -> int:
        """Multiply-accumulates a row that it adds, scalar activations not counted (Eq. 24)."""

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """The plug-in's: the backbone stays whole."""
        return self.parameters(backbone.input_width(shape))

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """The plug-in's."""
        return self.macs(backbone.input_width(shape))


class DenseSettings(PluginSettings):
    """The backbone as it is: no plug-in, no keys."""

    def parameters(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0

    def macs(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0
