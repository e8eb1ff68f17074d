"""What all backbones and all arms are configured by, and the counts that their formulas share."""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import pydantic

from prime_bench.base.frozen import Frozen


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """Sizes of the categorical fields and the number of numeric ones."""

    vocabulary_sizes: tuple[int, ...]
    """Ids of each categorical field, PAD and out-of-vocabulary included."""
    n_numeric: int

    @property
    def n_fields(self) -> int:
        """F: categorical and numeric fields."""
        return len(self.vocabulary_sizes) + self.n_numeric

    @property
    def n_pairs(self) -> int:
        """P = F (F - 1) / 2: pairs of different fields."""
        return self.n_fields * (self.n_fields - 1) // 2

    @property
    def embedding_rows(self) -> int:
        """V: rows of all embedding tables; a numeric field has one (its weight vector)."""
        return sum(self.vocabulary_sizes) + self.n_numeric


Widths = Annotated[
    tuple[Annotated[int, pydantic.Field(ge=1, strict=True)], ...], pydantic.Strict(False)
]
"""Widths of an MLP's hidden layers; a list is taken for a tuple, but no text for a number."""


@dataclass(frozen=True, kw_only=True)
class HiddenLayer:
    """A hidden Linear of the Top-NN, which `backbones.interface.replace` may swap."""

    width_in: int
    width_out: int
    bias: bool = True


class BackboneSettings(Frozen):
    """Keys that every backbone has. Counts are per row where they are multiply-accumulates."""

    embedding_dim: int = pydantic.Field(10, ge=1)
    """Width k of a field's embedding."""
    embedding_l2: float = pydantic.Field(0.0, ge=0)
    """FuxiCTR's `embedding_regularizer`: (l2/2) * ||W||^2 of every table is in each step's loss."""
    network_l2: float = pydantic.Field(0.0, ge=0)
    """FuxiCTR's `net_regularizer`: the same for all others, plug-ins' too (fidelity 35)."""

    def input_width(self, shape: TableShape) -> int:
        """d = F * k, the width of the flattened embeddings z."""
        return shape.n_fields * self.embedding_dim

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Paths of the modules whose parameters the shared Top-NN has (fidelity 36); may be
        empty.
        """
        return ()

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """Sites between the embeddings and what the Top-NN reads."""
        return ()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all places where a plug-in may read or replace an activation."""
        return ("embedding", *self.inner_sites, *(("top_input",) if self.top_nn else ()))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:  # noqa: ARG002
        """The Top-NN's hidden Linears, in order; none without a Top-NN."""
        return ()

    def site_width(self, site: str, shape: TableShape) -> int:
        """Width of the flattened activation at one of `sites`: d, as cross layers keep it, but for
        what the Top-NN reads.
        """
        if site == "top_input":
            return self.hidden_layers(shape)[0].width_in
        return self.input_width(shape)

    @abstractmethod
    def parameters(self, shape: TableShape) -> int:
        """Trainable parameters, PAD rows included, as FuxiCTR counts them."""

    @abstractmethod
    def macs(self, shape: TableShape) -> int:
        """Multiply-accumulates of matrix products a row, forward; element-wise work not counted."""


def mlp_parameters(
    width_in: int, widths: Sequence[int], *, batch_norm: bool, width_out: int | None = None
) -> int:
    """M(in, h, out): weights, biases, two more a unit with batch norm; None: no output layer."""
    count, width = 0, width_in
    for units in widths:
        count += width * units + units + (2 * units if batch_norm else 0)
        width = units
    return count if width_out is None else count + width * width_out + width_out


def mlp_layers(width_in: int, widths: Sequence[int]) -> tuple[HiddenLayer, ...]:
    """The hidden Linears of the same MLP."""
    sizes = itertools.pairwise([width_in, *widths])
    return tuple(HiddenLayer(width_in=a, width_out=b) for a, b in sizes)


def mlp_macs(width_in: int, widths: Sequence[int], *, width_out: int | None = None) -> int:
    """Multiply-accumulates a row of the same MLP."""
    sizes = [width_in, *widths, *([] if width_out is None else [width_out])]
    return sum(a * b for a, b in itertools.pairwise(sizes))


class ArmSettings(Frozen):
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


class Budget(Frozen):
    """Parameters, and multiply-accumulates a row, of a backbone and of what an arm adds to it."""

    backbone_parameters: int
    """Trainable parameters of the backbone."""
    plugin_parameters: int
    """Trainable parameters of the arm less the backbone's; negative if an arm replaces layers by
    smaller ones."""
    backbone_macs: int
    """Multiply-accumulates of a row's forward pass in the backbone."""
    plugin_macs: int
    """Multiply-accumulates of the arm less the backbone's."""


def budget_of(backbone: BackboneSettings, arm: ArmSettings, *, shape: TableShape) -> Budget:
    """The budget of an arm on data of that shape, by the formulas of its settings."""
    return Budget(
        backbone_parameters=backbone.parameters(shape),
        plugin_parameters=arm.added_parameters(backbone, shape),
        backbone_macs=backbone.macs(shape),
        plugin_macs=arm.added_macs(backbone, shape),
    )


def added_text(budgets: Sequence[Budget]) -> str:
    """What an arm adds: `120,224 and 120,192`, with a range where budgets differ."""
    parameters = [budget.plugin_parameters for budget in budgets]
    macs = [budget.plugin_macs for budget in budgets]
    return " and ".join(_extent(values) for values in (parameters, macs))


def _extent(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


class DenseSettings(PluginSettings):
    """The backbone as it is: no plug-in, no keys."""

    def parameters(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0

    def macs(self, input_width: int) -> int:  # noqa: ARG002
        """Nothing is added."""
        return 0
