"""Base classes of the settings of backbones and arms, and the formulas of parameters and
multiply-accumulates that they share.
"""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import pydantic

from prime_bench.base.frozen import Frozen


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """The sizes of a table that the number of parameters depends on."""

    vocabulary_sizes: tuple[int, ...]
    """Number of ids of each categorical field, PAD and out-of-vocabulary included."""
    n_numeric: int
    """Number of numeric fields."""

    @property
    def n_fields(self) -> int:
        """F, the number of all fields."""
        return len(self.vocabulary_sizes) + self.n_numeric

    @property
    def n_pairs(self) -> int:
        """P = F (F - 1) / 2, the number of pairs of different fields."""
        return self.n_fields * (self.n_fields - 1) // 2

    @property
    def embedding_rows(self) -> int:
        """V, the rows of all embedding tables. A numeric field has one, its weight vector."""
        return sum(self.vocabulary_sizes) + self.n_numeric


Widths = Annotated[
    tuple[Annotated[int, pydantic.Field(ge=1, strict=True)], ...], pydantic.Strict(False)
]
"""Widths of an MLP's hidden layers. A list is accepted, but no text in place of a number."""


@dataclass(frozen=True, kw_only=True)
class HiddenLayer:
    """A hidden Linear of the Top-NN, which an arm may replace (`backbones.interface.replace`)."""

    width_in: int
    width_out: int
    bias: bool = True


class BackboneSettings(Frozen):
    """Keys that every backbone has. Multiply-accumulates are counted per row."""

    embedding_dim: int = pydantic.Field(10, ge=1)
    """Width k of a field's embedding."""
    embedding_l2: float = pydantic.Field(0.0, ge=0)
    """L2 of embeddings: each step's loss contains (l2/2) ||W||^2 of every embedding table.
    FuxiCTR's `embedding_regularizer`."""
    network_l2: float = pydantic.Field(0.0, ge=0)
    """L2 of all other parameters, those of a plug-in included (fidelity 35). FuxiCTR's
    `net_regularizer`."""

    def input_width(self, shape: TableShape) -> int:
        """Width d = F k of the flattened embeddings z."""
        return shape.n_fields * self.embedding_dim

    @property
    def top_nn(self) -> tuple[str, ...]:
        """Paths of the modules that make up the shared Top-NN (fidelity 36); may be empty."""
        return ()

    @property
    def inner_sites(self) -> tuple[str, ...]:
        """Sites between the embeddings and the Top-NN's input."""
        return ()

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all activations that a plug-in may read or replace."""
        return ("embedding", *self.inner_sites, *(("top_input",) if self.top_nn else ()))

    def hidden_layers(self, shape: TableShape) -> tuple[HiddenLayer, ...]:  # noqa: ARG002
        """Hidden Linears of the Top-NN, in order; none without a Top-NN."""
        return ()

    def site_width(self, site: str, shape: TableShape) -> int:
        """Width of the flattened activation at a site: that of the Top-NN's input at `top_input`,
        else d, which cross layers keep.
        """
        if site == "top_input":
            return self.hidden_layers(shape)[0].width_in
        return self.input_width(shape)

    @abstractmethod
    def parameters(self, shape: TableShape) -> int:
        """Number of trainable parameters, by a formula of `shape` and the keys. Rows of PAD are
        included, as FuxiCTR counts them.
        """

    @abstractmethod
    def macs(self, shape: TableShape) -> int:
        """Multiply-accumulates of the matrix products in the forward pass of one row, by a formula
        of `shape` and the keys. Element-wise work is not counted.
        """


def mlp_parameters(
    width_in: int, widths: Sequence[int], *, batch_norm: bool, width_out: int | None = None
) -> int:
    """M(in, h, out), the parameters of an MLP: weights, biases, and two more a unit with batch
    norm. There is no output layer if `width_out` is None.
    """
    count, width = 0, width_in
    for units in widths:
        count += width * units + units + (2 * units if batch_norm else 0)
        width = units
    return count if width_out is None else count + width * width_out + width_out


def mlp_layers(width_in: int, widths: Sequence[int]) -> tuple[HiddenLayer, ...]:
    """Hidden Linears of an MLP, in order."""
    sizes = itertools.pairwise([width_in, *widths])
    return tuple(HiddenLayer(width_in=a, width_out=b) for a, b in sizes)


def mlp_macs(width_in: int, widths: Sequence[int], *, width_out: int | None = None) -> int:
    """Multiply-accumulates of a row in an MLP, which has no output layer if `width_out` is None."""
    sizes = [width_in, *widths, *([] if width_out is None else [width_out])]
    return sum(a * b for a, b in itertools.pairwise(sizes))


class ArmSettings(Frozen):
    """Base of the settings of arms: what an arm adds to a backbone, and whether it fits."""

    def misfit(self, backbone: BackboneSettings) -> str | None:  # noqa: ARG002
        """The reason for which the arm does not fit this backbone, or None if it fits."""
        return None

    @abstractmethod
    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Trainable parameters of the arm on `backbone` less those of the backbone alone, on a
        table of this shape; negative if the arm replaces layers by smaller ones. Asked of an arm
        that fits the backbone.
        """

    @abstractmethod
    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Multiply-accumulates of one row in the arm less those in the backbone, as
        `added_parameters`.
        """


class PluginSettings(ArmSettings):
    """Base of the settings of plug-ins that leave the backbone as it is: they read its logit and
    one site, or two with a router. The site is `embedding`, the flattened embeddings z, unless a
    subclass names another.
    """

    @property
    def input_site(self) -> str:
        """Site whose flattened activation the plug-in reads."""
        return "embedding"

    @property
    def router_site(self) -> str | None:
        """Site that the router reads; None if it is the same, or if there is no router."""
        return None

    def misfit(self, backbone: BackboneSettings) -> str | None:
        """None if the backbone has the sites that the plug-in reads, else which one it lacks."""
        for site in (self.input_site, self.router_site):
            if site is not None and site not in backbone.sites:
                return f"there is no site `{site}`, only {', '.join(backbone.sites)}"
        return None

    @abstractmethod
    def parameters(self, input_width: int) -> int:
        """Trainable parameters of the plug-in for inputs of width d = `input_width`."""

    @abstractmethod
    def macs(self, input_width: int) -> int:
        """Multiply-accumulates of a row in the plug-in; scalar activations are not counted (Eq.
        24).
        """

    def added_parameters(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Parameters of the plug-in at the width of its site; those of the backbone stay."""
        return self.parameters(backbone.site_width(self.input_site, shape))

    def added_macs(self, backbone: BackboneSettings, shape: TableShape) -> int:
        """Multiply-accumulates of the plug-in at the width of its site."""
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
    """Settings of `dense`, the backbone alone; there are no keys."""

    def parameters(self, input_width: int) -> int:  # noqa: ARG002
        """0: the arm is the backbone, without a parameter more."""
        return 0

    def macs(self, input_width: int) -> int:  # noqa: ARG002
        """0: a row takes no multiply-accumulate more than in the backbone."""
        return 0
