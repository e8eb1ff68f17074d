"""The catalogue of backbones and plug-ins that a recipe can name. `assemble` loads their classes.

A recipe can also name a class that is not in the catalogue: as `module:Class`, or by an entry point
of the group `prime_bench.backbones` or `prime_bench.plugins`.
"""

import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, TypedDict

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.sources import load_class, sources_digest
from prime_bench.settings.backbones import (
    AFMSettings,
    AutoIntSettings,
    DCNSettings,
    DCNv2Settings,
    DeepFMSettings,
    DNNSettings,
    FiBiNETSettings,
    FwFMSettings,
    GDCNSettings,
    MaskNetSettings,
    NFMSettings,
    PNNSettings,
    WideDeepSettings,
)
from prime_bench.settings.interface import ArmSettings, BackboneSettings, DenseSettings
from prime_bench.settings.plugins import (
    APGSettings,
    AuxiliaryLoss,
    DenseLayerNormSettings,
    HiddenSubspaceSettings,
    MultilayerBaggedSettings,
    NoAnchor,
    PermutedRouting,
    PrimeConfig,
    ResidualMacsSettings,
    ResidualNoLayerNorm,
    ResidualParametersSettings,
    SingleBag,
    UniformRouting,
)


@dataclass(frozen=True, kw_only=True)
class BackboneEntry:
    """A backbone: its class, the class of its settings, its name in reports, and its source."""

    target: str
    """The class, as `module:Class`."""
    settings: type[BackboneSettings]
    label: str
    """Name in reports."""
    cite: str
    """Where the backbone was published."""
    code: str | None = None
    """Digest of the class's source files. None for the catalogue's own, whose changes are counted
    by `base.identity.NUMERICS`."""


@dataclass(frozen=True, kw_only=True)
class PluginEntry:
    """A plug-in: its class, the class of its settings, its name in reports, and its source."""

    target: str | None
    """The class, as `module:Class`; None for `dense`, the backbone alone."""
    settings: type[ArmSettings]
    label: str
    """Name in reports."""
    cite: str
    """Where the plug-in was published, or is described."""
    code: str | None = None
    """Digest of the class's source files, as in `BackboneEntry`."""


class Description(TypedDict):
    """The part of an entry that describes a class which is not in the catalogue."""

    label: str
    cite: str
    code: str


BACKBONES: dict[str, BackboneEntry] = {
    "DNN": BackboneEntry(
        target="prime_bench.backbones.dnn:DNN",
        settings=DNNSettings,
        label="DNN",
        cite="Zhang, Du and Wang, Deep Learning over Multi-field Categorical Data, ECIR 2016",
    ),
    "AutoInt": BackboneEntry(
        target="prime_bench.backbones.autoint:AutoInt",
        settings=AutoIntSettings,
        label="AutoInt",
        cite="Song et al., AutoInt: Automatic Feature Interaction Learning, CIKM 2019",
    ),
    "DCN": BackboneEntry(
        target="prime_bench.backbones.dcn:DCN",
        settings=DCNSettings,
        label="DCN",
        cite="Wang et al., Deep & Cross Network for Ad Click Predictions, ADKDD 2017",
    ),
    "FiBiNET": BackboneEntry(
        target="prime_bench.backbones.fibinet:FiBiNET",
        settings=FiBiNETSettings,
        label="FiBiNET",
        cite="Huang et al., FiBiNET: Feature Importance and Bilinear Interaction, RecSys 2019",
    ),
    "GDCN": BackboneEntry(
        target="prime_bench.backbones.gdcn:GDCN",
        settings=GDCNSettings,
        label="GDCN",
        cite="Wang et al., Towards Deeper, Lighter and Interpretable Cross Network, CIKM 2023",
    ),
    "MaskNet": BackboneEntry(
        target="prime_bench.backbones.masknet:MaskNet",
        settings=MaskNetSettings,
        label="MaskNet",
        cite="Wang, She and Zhang, MaskNet: Instance-Guided Mask, DLP-KDD 2021",
    ),
    "AFM": BackboneEntry(
        target="prime_bench.backbones.afm:AFM",
        settings=AFMSettings,
        label="AFM",
        cite="Xiao et al., Attentional Factorization Machines, IJCAI 2017",
    ),
    "DeepFM": BackboneEntry(
        target="prime_bench.backbones.deepfm:DeepFM",
        settings=DeepFMSettings,
        label="DeepFM",
        cite="Guo et al., DeepFM: A Factorization-Machine based Neural Network, IJCAI 2017",
    ),
    "FwFM": BackboneEntry(
        target="prime_bench.backbones.fwfm:FwFM",
        settings=FwFMSettings,
        label="FwFM",
        cite="Pan et al., Field-weighted Factorization Machines, WWW 2018",
    ),
    "NFM": BackboneEntry(
        target="prime_bench.backbones.nfm:NFM",
        settings=NFMSettings,
        label="NFM",
        cite="He and Chua, Neural Factorization Machines, SIGIR 2017",
    ),
    "PNN": BackboneEntry(
        target="prime_bench.backbones.pnn:PNN",
        settings=PNNSettings,
        label="PNN",
        cite="Qu et al., Product-based Neural Networks, ICDM 2016",
    ),
    "WideDeep": BackboneEntry(
        target="prime_bench.backbones.widedeep:WideDeep",
        settings=WideDeepSettings,
        label="Wide&Deep",
        cite="Cheng et al., Wide & Deep Learning for Recommender Systems, DLRS 2016",
    ),
    "DCNv2": BackboneEntry(
        target="prime_bench.backbones.dcnv2:DCNv2",
        settings=DCNv2Settings,
        label="DCNv2",
        cite="Wang et al., DCN V2: Improved Deep & Cross Network, WWW 2021",
    ),
}

DENSE = "dense"
"""Name of the arm without a plug-in, the backbone alone."""

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
    "residual_macs": PluginEntry(
        target="prime_bench.plugins.residual:MacMatchedResidual",
        settings=ResidualMacsSettings,
        label="Residual (MACs)",
        cite="PRIME, section 4.3; exact form: docs/fidelity.md, 23",
    ),
    "uniform_routing": PluginEntry(
        target="prime_bench.plugins.prime:Prime",
        settings=UniformRouting,
        label="Uniform routing",
        cite="PRIME, section 4.3; exact form: docs/fidelity.md, 17",
    ),
    "permuted_routing": PluginEntry(
        target="prime_bench.plugins.prime:Prime",
        settings=PermutedRouting,
        label="Permuted routing",
        cite="PRIME, section 4.3; exact form: docs/fidelity.md, 18",
    ),
    "no_anchor": PluginEntry(
        target="prime_bench.plugins.prime:Prime",
        settings=NoAnchor,
        label="No anchor",
        cite="PRIME, section 4.3; exact form: docs/fidelity.md, 19",
    ),
    "single_bag": PluginEntry(
        target="prime_bench.plugins.prime:Prime",
        settings=SingleBag,
        label="Single bag",
        cite="PRIME, section 4.3; exact form: docs/fidelity.md, 20",
    ),
    "auxiliary_loss": PluginEntry(
        target="prime_bench.plugins.prime:Prime",
        settings=AuxiliaryLoss,
        label="Auxiliary loss",
        cite="PRIME, section 4.3; exact form: docs/fidelity.md, 21",
    ),
    "residual_no_layernorm": PluginEntry(
        target="prime_bench.plugins.residual:ParameterMatchedResidual",
        settings=ResidualNoLayerNorm,
        label="Residual, no LN",
        cite="a control of this suite; docs/fidelity.md, 38",
    ),
    "dense_layernorm": PluginEntry(
        target="prime_bench.plugins.structural:DenseLayerNorm",
        settings=DenseLayerNormSettings,
        label="Dense on LN(z)",
        cite="a control of this suite; docs/fidelity.md, 38",
    ),
    "hidden_subspace": PluginEntry(
        target="prime_bench.plugins.structural:HiddenSubspace",
        settings=HiddenSubspaceSettings,
        label="Hidden subspace",
        cite="PRIME, section 5.1; our reading: docs/fidelity.md, 27",
    ),
    "multilayer_bagged": PluginEntry(
        target="prime_bench.plugins.structural:MultilayerBagged",
        settings=MultilayerBaggedSettings,
        label="Multi-layer bagged",
        cite="PRIME, section 5.1; our reading: docs/fidelity.md, 28",
    ),
    "apg": PluginEntry(
        target="prime_bench.plugins.apg:APG",
        settings=APGSettings,
        label="APG",
        cite="Yan et al., APG: Adaptive Parameter Generation Network, NeurIPS 2022",
    ),
}


def find_backbone(name: str) -> BackboneEntry:
    """The entry of a backbone of the catalogue, or one made for `module:Class` or an entry point.

    Raises UsageError for an unknown name, or a class that is no backbone.
    """
    if name in BACKBONES:
        return BACKBONES[name]
    target = _target(name, "backbone", list(BACKBONES))
    return BackboneEntry(
        target=target, settings=_settings(target, BackboneSettings), **_description(target)
    )


def find_plugin(name: str) -> PluginEntry:
    """The entry of a plug-in of the catalogue, or one made for `module:Class` or an entry point.

    Raises UsageError for an unknown name, or a class that is no plug-in.
    """
    if name in PLUGINS:
        return PLUGINS[name]
    target = _target(name, "plug-in", list(PLUGINS))
    return PluginEntry(
        target=target, settings=_settings(target, ArmSettings), **_description(target)
    )


def entry_point_targets(noun: str) -> dict[str, str]:
    """`module:Class` by name of the entry points for a `backbone` or `plug-in`; none is loaded."""
    group = "prime_bench.backbones" if noun == "backbone" else "prime_bench.plugins"
    return {point.name: point.value for point in entry_points(group=group)}


def is_foreign(name: str) -> bool:
    """Whether a name has the form `module:Class`."""
    return re.fullmatch(r"[\w.]+:\w+", name) is not None


def _target(name: str, noun: str, ours: list[str]) -> str:
    """`module:Class` of a name that is not in the catalogue."""
    points = entry_point_targets(noun)
    if not is_foreign(name) and name not in points:
        known = [*ours, *points]
        raise UsageError(
            f"unknown {noun} `{name}`{did_you_mean(name, known)}",
            hint=f"known: {', '.join(sorted(known))}; one of your own is `module:Class`",
        )
    return points.get(name, name)


def _settings(target: str, base: Any) -> Any:
    """The class's attribute `Settings`, a class derived from `base`."""
    settings = getattr(load_class(target), "Settings", None)
    if not isinstance(settings, type) or not issubclass(settings, base):
        raise UsageError(f"`{target}` has no `Settings`, a class derived from {base.__name__}")
    return settings


def _description(target: str) -> Description:
    found = load_class(target)
    # The module that is named may be another than that in which the class is defined: it may make
    # the class by a call.
    modules = dict.fromkeys((found.__module__, target.partition(":")[0]))
    return {
        "label": str(getattr(found, "label", found.__name__)),
        "cite": str(getattr(found, "cite", target)),
        "code": sources_digest(*modules),
    }
