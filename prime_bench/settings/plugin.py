"""What all plug-ins are configured by."""

from abc import abstractmethod

from prime_bench.settings.model import Settings


class PluginSettings(Settings):
    """A plug-in reads the flattened embeddings z of width d and the backbone's logit."""

    @abstractmethod
    def parameters(self, input_width: int) -> int:
        """Trainable parameters that the plug-in adds at d = `input_width`."""

    @abstractmethod
    def macs(self, input_width: int) -> int:
        """Multiply-accumulates a row that it adds, scalar activations not counted (Eq. 24)."""


class DenseSettings(PluginSettings):
    """The backbone as it is: no plug-in, no keys."""

    def parameters(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0

    def macs(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0
