"""What a recipe can name: a literal row a backbone and plug-in. `assemble` loads the targets."""

from dataclasses import dataclass

from prime_bench.settings.backbone import BackboneSettings
from prime_bench.settings.dcnv2 import DCNv2Settings
from prime_bench.settings.dnn import DNNSettings
from prime_bench.settings.plugin import DenseSettings, PluginSettings
from prime_bench.settings.prime import PrimeConfig
from prime_bench.settings.residual import ResidualParametersSettings


@dataclass(frozen=True, kw_only=True)
class BackboneEntry:
    """A backbone: where its class is, what configures it, how a report calls and cites it."""

    target: str
    """`module:Class`."""
    settings: type[BackboneSettings]
    label: str
    cite: str


@dataclass(frozen=True, kw_only=True)
class PluginEntry:
    """A plug-in: as a backbone's row; `target` is None for the backbone alone."""

    target: str | None
    settings: type[PluginSettings]
    label: str
    cite: str


BACKBONES: dict[str, BackboneEntry] = {
    "DNN": BackboneEntry(
        target="prime_bench.backbones.dnn:DNN",
        settings=DNNSettings,
        label="DNN",
        cite="Zhang, Du and Wang, Deep Learning over Multi-field Categorical Data, ECIR 2016",
    ),
    "DCNv2": BackboneEntry(
        target="prime_bench.backbones.dcnv2:DCNv2",
        settings=DCNv2Settings,
        label="DCNv2",
        cite="Wang et al., DCN V2: Improved Deep & Cross Network, WWW 2021",
    ),
}

PLANNED_BACKBONES = (
    *("AFM", "AutoInt", "DCN", "DeepFM", "FiBiNET", "FwFM", "GDCN"),
    *("MaskNet", "NFM", "PNN", "WideDeep"),
)
"""The paper's other backbones. A recipe may name them; plans list them as not built."""

PLUGINS: dict[str, PluginEntry] = {
    "dense": PluginEntry(
        target=None,
        settings=DenseSettings,
        label="Dense",
        cite="the backbone as published",
    ),
    "prime": PluginEntry(
        target="prime_bench.plugins.prime:Prime",
        settings=PrimeConfig,
        label="PRIME",
        cite="PRIME, section 3, Eq. 9-25",
    ),
    "residual_parameters": PluginEntry(
        target="prime_bench.plugins.residual:ParameterMatchedResidual",
        settings=ResidualParametersSettings,
        label="Residual (params)",
        cite="PRIME, section 4.3; exact form: docs/fidelity.md, 22",
    ),
}
