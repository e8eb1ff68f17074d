"""A row a comparison of two arms: the numbers of the paper's Figure 4."""

from collections.abc import Iterator, Sequence
from statistics import mean

from prime_bench.report.quantities.grid import Comparison, Grid, Panel
from prime_bench.report.quantities.records import Evidence
from prime_bench.report.quantities.stats import METRIC_LABELS, METRICS, error_of_mean, tally
from prime_bench.report.tables.cells import change, tallied, words
from prime_bench.report.tables.content import Content, grid_content, keyed_panels
from prime_bench.report.tables.definition import Compared, DifferencesDefinition
from prime_bench.report.tables.model import Block, Cell, Column, Row
from prime_bench.report.tables.names import absent_note


def build(evidence: Evidence, definition: DifferencesDefinition) -> Content:
    """Each comparison over all pairs of all backbones, and its AUC on each backbone."""
    names = [pair.versus for pair in definition.comparisons]
    grids = {name: evidence.grid(baseline=name) for name in dict.fromkeys(names)}
    first = evidence.grid(baseline=definition.baseline)
    blocks = [
        Block(
            key=key,
            label=panel.design.label,
            columns=tuple(_columns(panel)),
            rows=tuple(
                _row(grids[pair.versus], number, pair, decimals=definition.decimals)
                for pair in definition.comparisons
                if _known(grids[pair.versus], pair)
            ),
        )
        for number, (key, panel) in enumerate(keyed_panels(first))
    ]
    asked = [name for pair in definition.comparisons for name in (pair.arm, pair.versus)]
    notes = absent_note(first, list(dict.fromkeys(asked)))
    return grid_content(evidence, first, blocks=blocks, definition=definition, notes=notes)


def _known(grid: Grid, pair: Compared) -> bool:
    return grid.baseline is not None and pair.arm in {arm.name for arm in grid.others}


def _columns(panel: Panel) -> Iterator[Column]:
    yield Column(key="comparison", label="Comparison", kind="words")
    for metric in METRICS:
        label = METRIC_LABELS[metric]
        yield Column(key=metric, label=f"Δ {label}", kind="change", group="All", better="higher")
        yield Column(key=f"{metric}.won", label="Won", kind="count", group="All", better="higher")
    for row in panel.design.rows:
        yield Column(
            key=f"auc.{row.key}", label=row.label, kind="change", group="Δ AUC", better="higher"
        )


def _row(grid: Grid, number: int, pair: Compared, *, decimals: int) -> Row:
    panel = grid.panels[number]
    cells = [words(pair.label)]
    for metric in METRICS:
        own = [panel.comparisons[row.label, pair.arm, metric] for row in panel.design.rows]
        cells += _over(own, n_seeds=len(panel.design.seeds), decimals=decimals)
    for row in panel.design.rows:
        own = [panel.comparisons[row.label, pair.arm, "auc"]]
        cells.append(_over(own, n_seeds=len(panel.design.seeds), decimals=decimals)[0])
    return Row(key=pair.key, cells=tuple(cells))


def _over(comparisons: Sequence[Comparison], *, n_seeds: int, decimals: int) -> list[Cell]:
    """Mean difference over all pairs, and how many are won."""
    values = [value for item in comparisons for value in item.differences]
    jobs = [job for item in comparisons for job in item.jobs]
    complete = len(values) == n_seeds * len(comparisons)
    return [
        change(
            mean(values) if values else None,
            noise=error_of_mean([item.error for item in comparisons if item.seeds]),
            decimals=decimals,
            remark="" if complete else f"n={len(values)}",
            flagged=any(item.degenerate_seeds for item in comparisons),
            jobs=jobs,
        ),
        tallied(tally(values), jobs=jobs),
    ]
