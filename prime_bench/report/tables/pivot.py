"""Tables of trained runs: rows and columns select runs, and each cell shows a statistic of them."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prime_bench.findings import METRIC_LABELS, Metric
from prime_bench.report.quantities.choice import Tried, best, tried
from prime_bench.report.quantities.formulas import SPLIT_LABELS
from prime_bench.report.quantities.grid import Grid, GridBlock
from prime_bench.report.quantities.layout import ArmColumn, BackboneRow
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.statistics import (
    LEVELS,
    STATISTICS,
    Selection,
)
from prime_bench.report.quantities.values import BETTER, MISSING, Count
from prime_bench.report.tables.body import (
    TableBody,
    absent_note,
    arms_named,
    covering,
    grid_body,
    keyed_blocks,
)
from prime_bench.report.tables.choices import left_out
from prime_bench.report.tables.definition import SETTING, Axis, PivotColumn, PivotDefinition
from prime_bench.report.tables.model import (
    Block,
    Cell,
    Column,
    ColumnKind,
    Row,
    TableNote,
    note,
    series,
    shown,
    words,
)

_HEADS: dict[str, tuple[tuple[str, str], ...]] = {
    "backbone": (("backbone", "Backbone"),),
    "backbone.arm": (("backbone", "Backbone"), ("arm", "Arm")),
    "arm": (("arm", "Arm"),),
    "seed": (("seed", "Seed"),),
    "dataset": (("data", "Data"),),
    "comparison": (("comparison", "Comparison"),),
}
"""Keys and labels of the columns that name the rows."""
_MEAN = {"level": "mean_level", "difference": "mean_difference"}
_SUMMARIES: dict[str, tuple[str, dict[str, str]]] = {
    "mean": ("Mean", _MEAN),
    "paired_median": ("Paired median Δ", {"difference": "paired_median"}),
    "pairs_won": ("Pairs won", {"difference": "pairs_won"}),
    "backbones_won": ("Backbones won", {"difference": "backbones_won"}),
}
"""Label of a row that sums up the others, and what it shows in place of a column's statistic."""
_KINDS: dict[str, ColumnKind] = {
    SETTING: "words",
    "range_of_differences": "words",
    **dict.fromkeys(("difference", "pooled_difference", "median_difference"), "change"),
    **dict.fromkeys(("n_pairs", "won", "both_won"), "count"),
}
"""What a column of a statistic holds; all others are numbers."""
_UNPAIRED = {SETTING, *(statistic.__name__ for statistic in LEVELS)}


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item of an axis: what a column is repeated for."""

    key: str
    label: str
    arm: ArmColumn | None = None
    backbone: BackboneRow | None = None
    metric: Metric | None = None
    seed: int | None = None

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, kw_only=True)
class SelectedColumn:
    """A column of a block, and which runs it selects."""

    column: Column
    definition: PivotColumn
    items: Mapping[Axis, Item]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A data set, or a backbone on it, before its block is built."""

    number: int
    """Which of the grid's blocks it is of."""
    block: GridBlock
    key: str
    label: str
    backbones: Sequence[BackboneRow]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of a block before its cells are computed, and which runs it selects."""

    key: str
    words: tuple[str, ...]
    """Texts of the columns that name the row."""
    block: GridBlock
    backbones: Sequence[BackboneRow]
    arm: ArmColumn | None = None
    seed: int | None = None
    instead: Mapping[str, str] | None = None
    """Statistics that the row shows in place of the columns' own; others are missing."""
    ruled: bool = False


def build(records: ReportRecords, definition: PivotDefinition) -> TableBody:
    """A block a data set, or a backbone of it, with the rows and columns of the definition."""
    pivot = _Pivot(records, definition)
    return grid_body(
        records,
        pivot.grid,
        blocks=list(pivot.blocks()),
        definition=definition,
        notes=list(pivot.notes()),
        means=pivot.means,
    )


@dataclass
class _Pivot:
    records: ReportRecords
    definition: PivotDefinition
    grid: Grid = field(init=False)
    arms: Sequence[ArmColumn] = field(init=False)

    def __post_init__(self) -> None:
        asked = self.definition
        self.grid = self.records.grid(baseline=asked.baseline, split=asked.split)
        self.arms = self.grid.arms if asked.arms is None else arms_named(self.grid, asked.arms)

    def blocks(self) -> Iterator[Block]:
        """The blocks with their cells."""
        if self.definition.rows == ["dataset"]:
            lines = [
                Line(key=key, words=(p.layout.label,), block=p, backbones=(), instead=_MEAN)
                for key, p in keyed_blocks(self.grid)
            ]
            yield self._block("means", "", lines, columns=self._columns((), seeds=()))
            return
        for group in self._groups():
            lines = list(self._lines(group.number, group.block, group.backbones))
            columns = self._columns(group.backbones, seeds=group.block.layout.seeds)
            yield self._block(group.key, group.label, lines, columns=columns)

    def _groups(self) -> Iterator[Group]:
        """What has a block of its own: each data set, or each backbone on it."""
        for number, (key, block) in enumerate(keyed_blocks(self.grid)):
            layout = block.layout
            whole = Group(
                number=number, block=block, key=key, label=layout.label, backbones=layout.rows
            )
            if self.definition.blocks == "dataset":
                yield whole
                continue
            for row in layout.rows:
                yield replace(
                    whole,
                    key=f"{key}.{row.key}",
                    label=f"{row.label}, {layout.label}",
                    backbones=(row,),
                )

    @property
    def means(self) -> str:
        """What the table says of backbones `{}` that its means leave out; empty without means."""
        rows = self.definition.rows
        if rows == ["dataset"]:
            return "the means leave out {}, where an arm has no pair"
        if "mean" not in rows:
            return ""
        others = series([_SUMMARIES[row][0] for row in rows if row in _SUMMARIES and row != "mean"])
        rest = f"; {others} cover every pair there is" if others and self.grid.baseline else ""
        return "the Mean row leaves out {}, where an arm has no pair" + rest

    def notes(self) -> Iterator[TableNote]:
        """Notes that the definition asks for, beside those of the records."""
        asked = self.definition
        names = [*(asked.arms or ()), *itertools.chain(*asked.best_of.values())]
        names += [name for pair in asked.comparisons for name in (pair.arm, pair.versus)]
        yield from absent_note(self.grid, list(dict.fromkeys(names)))
        for place, (best_label, own) in itertools.product(self._groups(), asked.best_of.items()):
            candidates = self._tried(place.block, place.backbones, own)
            if best(candidates) is not None:
                yield from left_out(f"{place.label}, {best_label}", candidates)
        if {column.shows for column in asked.columns} & {"entropy", "largest_load"}:
            yield note(
                "measurement",
                "Entropy (in nats, mean over bags) and largest load (over bags) are those of the "
                f"routing probe on {SPLIT_LABELS[asked.split]} rows where it was made, else of the "
                "training batches of the best epoch",
            )

    def _block(
        self, key: str, label: str, lines: Sequence[Line], *, columns: Sequence[SelectedColumn]
    ) -> Block:
        heads = list(_HEADS[self.definition.rows[0]])
        if self.definition.head:
            heads[-1] = (heads[-1][0], self.definition.head)
        return Block(
            key=key,
            label=label,
            columns=(
                *(Column(key=name, label=head, kind="words") for name, head in heads),
                *(selected.column for selected in columns),
            ),
            rows=tuple(
                Row(
                    key=line.key,
                    cells=(
                        *(words(text) for text in self._head(line)),
                        *(self._cell(line, selected) for selected in columns),
                    ),
                    ruled=line.ruled,
                )
                for line in lines
            ),
        )

    def _head(self, line: Line) -> tuple[str, ...]:
        """The texts that name a row; it says so where it covers fewer backbones than others may."""
        *first, last = line.words
        block, arm, metric = line.block, line.arm, self.grid.metrics[0]
        if line.instead is _MEAN:
            return (*first, covering(last, len(block.mean_rows), len(block.layout.rows)))
        if arm is None:
            return line.words
        if all(column.shows in _UNPAIRED for column in self.definition.columns):
            own = [block.scores[row.label, arm.name, metric].moments for row in line.backbones]
            found = sum(moments is not None for moments in own)
        else:
            pairs = [block.comparisons[row.label, arm.name, metric] for row in line.backbones]
            found = sum(bool(comparison.seeds) for comparison in pairs)
        return (*first, covering(last, found, len(line.backbones)))

    def _columns(
        self, backbones: Sequence[BackboneRow], *, seeds: Sequence[int]
    ) -> list[SelectedColumn]:
        axes: dict[Axis, list[Item]] = {
            "arm": [Item(key=arm.name, label=self._label(arm), arm=arm) for arm in self.arms],
            "backbone": [Item(key=row.key, label=row.label, backbone=row) for row in backbones],
            "metric": [Item(key=m, label=METRIC_LABELS[m], metric=m) for m in self.grid.metrics],
            "seed": [Item(key=str(seed), label=str(seed), seed=seed) for seed in seeds],
        }
        found = []
        for each, group in itertools.groupby(self.definition.columns, key=lambda c: c.each):
            alternating = list(group)
            for combination in itertools.product(*(axes[axis] for axis in each)):
                items = dict(zip(each, combination, strict=True))
                found += [self._column(column, items) for column in alternating]
        return [selected for selected in found if self._shown(selected)]

    def _shown(self, selected: SelectedColumn) -> bool:
        """Whether a column has something to show: the baseline is not compared with itself."""
        if "arm" not in selected.items or selected.definition.shows in _UNPAIRED:
            return True
        return (
            self.grid.baseline is not None and selected.items["arm"].arm is not self.grid.baseline
        )

    def _column(self, column: PivotColumn, items: Mapping[Axis, Item]) -> SelectedColumn:
        named = {str(axis): item for axis, item in items.items()}
        metric = items["metric"].metric if "metric" in items else self._own(column)
        level_of = metric if column.shows in ("level", "average_level") else None
        return SelectedColumn(
            column=Column(
                key=column.key.format(**named),
                label=column.label.format(**named),
                kind=_KINDS.get(column.shows, "number"),
                group=column.group.format(**named),
                aside=column.aside,
                better=column.better or (BETTER[level_of] if level_of else None),
            ),
            definition=column,
            items=items,
        )

    def _own(self, column: PivotColumn) -> Metric:
        """The metric of a column that is not repeated over metrics."""
        return column.metric or self.grid.metrics[0]

    def _lines(
        self, number: int, block: GridBlock, backbones: Sequence[BackboneRow]
    ) -> Iterator[Line]:
        for rows in self.definition.rows:
            whole = Line(key=rows, words=(), block=block, backbones=backbones)
            if rows == "backbone":
                for row in backbones:
                    yield replace(whole, key=row.key, words=(row.label,), backbones=(row,))
            elif rows == "backbone.arm":
                yield from self._backbones_and_arms(whole)
            elif rows == "arm":
                for arm in self._compared(self.arms):
                    yield replace(whole, key=arm.name, words=(self._label(arm),), arm=arm)
            elif rows == "best_of":
                for label, names in self.definition.best_of.items():
                    found = best(self._tried(block, backbones, names))
                    if self.grid.baseline and found:
                        text = f"{label} ({found.arm.label})"
                        key = f"best.{label}"
                        yield replace(whole, key=key, words=(text,), arm=found.arm, ruled=True)
            elif rows == "seed":
                for seed in block.layout.seeds:
                    yield replace(whole, key=str(seed), words=(str(seed),), seed=seed)
            elif rows == "all_seeds":
                yield replace(whole, key="mean", words=("Mean",), ruled=True)
            elif rows == "comparison":
                yield from self._comparisons(whole, number)
            elif rows == "mean" or self.grid.baseline:
                label, instead = _SUMMARIES[rows]
                yield replace(whole, words=(label,), instead=instead, ruled=rows == "mean")

    def _tried(
        self, block: GridBlock, backbones: Sequence[BackboneRow], names: Sequence[str]
    ) -> list[Tried]:
        """The arms of a row `best_of` with their validation AUC over these backbones."""
        seeds = block.layout.seeds
        return [
            tried(self.records.grouped, arm=arm, rows=backbones, seeds=seeds)
            for arm in arms_named(self.grid, names)
        ]

    def _backbones_and_arms(self, whole: Line) -> Iterator[Line]:
        several = len(self.grid.others) > 1
        for row in whole.backbones:
            for number, arm in enumerate(self._compared(self.grid.others)):
                yield replace(
                    whole,
                    key=f"{row.key}.{arm.name}",
                    words=("" if number else row.label, arm.label),
                    backbones=(row,),
                    arm=arm,
                    ruled=number == 0 and row is not whole.backbones[0] and several,
                )

    def _comparisons(self, whole: Line, number: int) -> Iterator[Line]:
        for pair in self.definition.comparisons:
            grid = self.records.grid(baseline=pair.versus, split=self.definition.split)
            arm = next((arm for arm in grid.others if arm.name == pair.arm), None)
            if grid.baseline and arm:
                block = grid.blocks[number]
                yield replace(whole, key=pair.key, words=(pair.label,), block=block, arm=arm)

    def _compared(self, arms: Sequence[ArmColumn]) -> Sequence[ArmColumn]:
        """The arms that have a row: without the baseline where columns compare with it."""
        if all(column.shows in _UNPAIRED for column in self.definition.columns):
            return arms
        return [arm for arm in arms if self.grid.baseline and arm is not self.grid.baseline]

    def _cell(self, line: Line, selected: SelectedColumn) -> Cell:
        column, items = selected.definition, selected.items
        arm = items["arm"].arm if "arm" in items else line.arm
        assert arm, f"{column.key}: neither row nor column tells the arm"  # noqa: S101
        if column.shows == SETTING:
            return self._setting(arm, column.setting)
        name = column.shows if line.instead is None else line.instead.get(column.shows)
        if name is None:
            return shown(MISSING, self.definition.decimals)
        backbone = items["backbone"].backbone if "backbone" in items else None
        seed = items["seed"].seed if "seed" in items else None
        metric = items["metric"].metric if "metric" in items else None
        quantity = STATISTICS[name](
            Selection(
                records=self.records,
                block=line.block,
                backbones=(backbone,) if backbone else line.backbones,
                arm=arm,
                metric=metric or self._own(column),
                split=column.split or self.definition.split,
                seed=next((s for s in (line.seed, seed, column.seed) if s is not None), None),
            )
        )
        if not column.spread:
            quantity = replace(quantity, sd=None)
        if isinstance(quantity, Count) and not column.ties:
            quantity = replace(quantity, ties=0)
        return shown(quantity, column.decimals or self.definition.decimals)

    def _setting(self, arm: ArmColumn, key: str) -> Cell:
        settings = json.loads(arm.key.settings)
        value = str(settings[key]) if key in settings else ""
        text = self.definition.values.get(value, value)
        return words(text) if text else shown(MISSING, self.definition.decimals)

    def _label(self, arm: ArmColumn) -> str:
        return self.definition.labels.get(arm.name, arm.label)
