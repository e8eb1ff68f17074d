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
    """A plug-in reads the backbone's logit and one site, or two if it has a router of its own: the
    flattened embeddings z of width d, unless its keys name another.
    """

    @property
    def input_site(self) -> str:
        """Site whose flattened activation the plug-in reads."""
        return "embedding"

    @property
    def router_site(self) -> str | None:
        """Site that its router reads; None: the same, or no router."""
        return None

    def misfit(self, backbone: BackboneSettings) -> str | None:
        """A plug-in stands wherever the sites are that it reads."""
        for site in (self.input_site, self.router_site):
            if site is not None and site not in backbone.sites:
                return f"there is no site `{site}`, only {', '.join(backbone.sites)}"
        return None

    @abstractmethod
    def parameters(self, input_width: int) -> int:
        """Trainable parameters that the plug-in adds at d = `input_width`."""

    @abstractmethod
    def macs(self, input_width: int) -> int:
        """Multiply-accumulates a row that it adds, scalar activations not counted (Eq. 24)."""

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """The plug-in's: the backbone stays whole."""
        return self.parameters(backbone.site_width(self.input_site, shape))

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """The plug-in's."""
        return self.macs(backbone.site_width(self.input_site, shape))


class DenseSettings(PluginSettings):
    """The backbone as it is: no plug-in, no keys."""

    def parameters(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0

    def macs(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0
