"""What a table shows and how it is printed: `reports/<name>.toml`, a class a kind."""

import string
from typing import Annotated, Literal, Self

import pydantic

from prime_bench.base.errors import did_you_mean
from prime_bench.base.files import bundled_folder
from prime_bench.base.frozen import Frozen
from prime_bench.findings import Metric
from prime_bench.report.quantities.statistics import STATISTICS
from prime_bench.report.quantities.values import Better
from prime_bench.report.tables.model import ComparedBy
from prime_bench.settings.probes import ProbedSplit


class TableDefinition(Frozen):
    """Keys of every table."""

    report_schema: Literal[1] = pydantic.Field(alias="schema")
    kind: str
    """How the table is built: a name in `tables.kinds.KINDS`."""
    title: str
    caption: str
    """A Jinja2 text."""
    decimals: int = pydantic.Field(ge=1, le=17)
    """Digits after the point; CSV and JSON have all digits beside them."""
    latex_label: str
    recipe: str | None = None
    """Bundled recipe that the paper's table is made from; None: any recipe's."""
    baseline: str = "dense"
    """Name of the arm that others are compared with."""
    compared_by: ComparedBy = "block"
    columns_side_by_side: int = pydantic.Field(0, ge=0)
    """Number columns up to which LaTeX sets data sets side by side."""


def _known_statistic(name: str) -> str:
    if name != SETTING and name not in STATISTICS:
        raise ValueError(f"no statistic `{name}`{did_you_mean(name, STATISTICS)}")
    return name


SETTING = "setting"
"""What a column shows that has the value of a plug-in's setting in words."""
RowKind = Literal[
    "backbone",
    "backbone.arm",
    "arm",
    "seed",
    "dataset",
    "comparison",
    "best_of",
    "mean",
    "all_seeds",
    "paired_median",
    "pairs_won",
    "backbones_won",
]
"""Rows of a pivot: one a backbone, a backbone and arm, ...; the last five sum up the others."""
Axis = Literal["backbone", "arm", "metric", "seed"]


class PivotColumn(Frozen):
    """One column, or a column for each item of one or several axes.

    `key`, `label` and `group` may name an item: `{metric}` is its key, `{metric.label}` its name.
    """

    each: tuple[Axis, ...] = ()
    """Axes that the column is repeated over; neighbours that have the same alternate."""
    key: str
    label: str
    group: str = ""
    """Head above neighbouring columns."""
    aside: str = ""
    """What the brackets in the cells contain; shown in the header where there is room."""
    shows: Annotated[str, pydantic.AfterValidator(_known_statistic)]
    """A name in `quantities.statistics.STATISTICS`, or `setting`."""
    setting: str = ""
    """Key of the plug-in that `setting` shows."""
    metric: Metric | None = None
    """Where no axis tells it; None: the first that the report shows, which is AUC by default."""
    seed: int | None = None
    """One seed alone; None: all."""
    split: ProbedSplit | None = None
    """Split of a column of `average_level`; None: that of the table."""
    spread: bool = True
    """Whether a level is printed with its sample standard deviation."""
    ties: bool = True
    """Whether tied pairs are printed after the pairs won."""
    better: Better | None = None
    """Which direction is an improvement; None: as the metric of a level says, else neither."""
    decimals: int | None = None
    """None: those of the table."""

    @pydantic.model_validator(mode="after")
    def _check_items(self) -> Self:
        """Texts may only name an item of an axis that the column is repeated over."""
        for text in (self.key, self.label, self.group):
            for _, name, _, _ in string.Formatter().parse(text):
                if name and name.removesuffix(".label") not in self.each:
                    raise ValueError(f"`{{{name}}}` is not an item of `each`")
        return self


class NamedComparison(Frozen):
    """Two arms that a row compares, under a key and a label."""

    key: str
    label: str
    arm: str
    versus: str
    """Its difference is `arm` less `versus` for AUC, the other way for LogLoss."""


class PivotDefinition(TableDefinition):
    """Rows and columns that select runs, and a statistic of them in each cell."""

    kind: Literal["pivot"]
    rows: list[RowKind]
    head: str = ""
    """Head above the rows' names; empty: what the rows are."""
    blocks: Literal["dataset", "backbone"] = "dataset"
    """What has a block of its own."""
    split: ProbedSplit = "test"
    arms: list[str] | None = None
    """Names of the arms in their order; None: all there are."""
    labels: dict[str, str] = {}
    """What the table calls an arm that it does not call by its own label."""
    values: dict[str, str] = {}
    """What the table calls a value of a setting."""
    comparisons: list[NamedComparison] = []
    """The rows `comparison`."""
    best_of: dict[str, list[str]] = {}
    """The rows `best_of`, by label: the best of these arms by mean validation AUC, whatever `split`
    is, over the backbones of the block."""
    columns: list[PivotColumn]

    @pydantic.model_validator(mode="after")
    def _check_arms(self) -> Self:
        """Each cell is about one arm, which its row or its column tells."""
        if set(self.rows) & {"arm", "backbone.arm", "comparison"}:
            return self
        for column in self.columns:
            if "arm" not in column.each:
                raise ValueError(f"column `{column.key}`: neither `rows` nor `each` has an arm")
        return self


MethodColumn = Literal["auc", "logloss", "parameters", "latency"]


class MethodsDefinition(TableDefinition):
    """A row a method below its backbone, and what the first of `delta` changes on the second."""

    kind: Literal["methods"]
    arms: list[str]
    delta: tuple[str, str]
    """Δ is the first arm less the second, in every column."""
    directions: dict[MethodColumn, Better]
    """The columns with numbers, in their order, and which way each is better."""


class CostDefinition(TableDefinition):
    """What arms cost in parameters, time and memory, a block a data set and device."""

    kind: Literal["cost"]
    arms: list[str]
    compared: list[str]
    """The lowest cost among these arms is bold."""


class RoutingDefinition(TableDefinition):
    """What routers do on rows that were not trained on, a row a backbone."""

    kind: Literal["routing"]


class GradientsDefinition(TableDefinition):
    """The competition gap of every arm, a row a backbone."""

    kind: Literal["gradients"]
    arms: list[str]


class SubgroupsDefinition(TableDefinition):
    """Scores and calibration of every semantic group, a block a backbone and field."""

    kind: Literal["subgroups"]
    arm: str
    """The arm that is compared with the baseline."""


class SensitivityDefinition(TableDefinition):
    """Every point of a recipe's grids, a block an arm and backbone."""

    kind: Literal["sensitivity"]
    metrics: list[Metric]


class FamilyDefinition(TableDefinition):
    """Statistics over architectures, a row a comparison of the recipe's family and a metric."""

    kind: Literal["family"]
    margin: float = pydantic.Field(gt=0)
    """Difference that is small enough to call two arms equivalent."""


_OF_NO_METRIC = (SETTING, "both_won", "entropy", "largest_load")
"""What a column shows whatever the metric is."""


def shows_any_metric(definition: TableDefinition) -> bool:
    """Whether a table shows the metrics that a report is asked for, and not some of its own."""
    if isinstance(definition, PivotDefinition):
        return any(
            "metric" in column.each or (column.metric is None and column.shows not in _OF_NO_METRIC)
            for column in definition.columns
        )
    return isinstance(definition, FamilyDefinition)


def shipped_tables() -> list[str]:
    """Names of the bundled definitions."""
    return sorted(path.stem for path in bundled_folder("reports").glob("*.toml"))
