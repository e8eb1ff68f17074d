"""Every point of the grids of a recipe: scores of validation and test side by side."""

from collections.abc import Iterator
from dataclasses import replace

from prime_bench.findings import METRIC_LABELS, Metric
from prime_bench.recipe.sweep import value_name
from prime_bench.report.quantities import formulas
from prime_bench.report.quantities.choice import Choice, Tried
from prime_bench.report.quantities.grid import score_of
from prime_bench.report.quantities.records import ReportRecords
from prime_bench.report.quantities.values import BETTER, MISSING, Level
from prime_bench.report.tables.body import TableBody, grid_body, keyed_blocks
from prime_bench.report.tables.choices import left_out
from prime_bench.report.tables.definition import SensitivityDefinition
from prime_bench.report.tables.model import Block, Column, Row, TableNote, note, shown, words
from prime_bench.settings.probes import ProbedSplit

_SPLITS: dict[ProbedSplit, str] = {"valid": "Validation", "test": "Test"}


def build(records: ReportRecords, definition: SensitivityDefinition) -> TableBody:
    """A block an arm and backbone with a grid, a row a point."""
    every = records.unchosen or records
    grid = every.grid(baseline="")  # nothing is compared with a baseline here
    keys = {id(block.layout): key for key, block in keyed_blocks(grid)}
    choices = [choice for choice in every.every_choice if len(choice.tried) > 1]
    body = grid_body(
        every,
        grid,
        blocks=[_block(keys[id(choice.block)], choice, definition) for choice in choices],
        definition=definition,
        notes=list(_notes(choices)),
    )
    if every.recipe is not None and every.recipe.arms:
        # Points that no budget drew are not missing; those that are have a note of the choice.
        return replace(body, notes=[item for item in body.notes if item.kind != "missing"])
    return body


def _block(key: str, choice: Choice, definition: SensitivityDefinition) -> Block:
    names = list(choice.tried[0].values)
    return Block(
        key=f"{key}.{choice.backbone.key}.{choice.arm.name}",
        label=f"{choice.block.label}, {choice.backbone.label}, {choice.arm.label}",
        columns=(
            *(Column(key=name, label=name, kind="words") for name in names),
            *(
                Column(
                    key=f"{split}.{metric}",
                    label=METRIC_LABELS[metric],
                    kind="number",
                    group=label,
                    better=BETTER[metric],
                )
                for split, label in _SPLITS.items()
                for metric in definition.metrics
            ),
            Column(key="chosen", label="Chosen", kind="words"),
        ),
        rows=tuple(
            Row(
                key=",".join(f"{name}={value_name(value)}" for name, value in item.values.items()),
                cells=(
                    *(words(value_name(item.values[name])) for name in names),
                    *(
                        shown(_level(item, choice, metric, split), definition.decimals)
                        for split in _SPLITS
                        for metric in definition.metrics
                    ),
                    words("yes" if item is choice.chosen else ""),
                ),
            )
            for item in choice.tried
        ),
    )


def _level(item: Tried, choice: Choice, metric: Metric, split: ProbedSplit) -> Level:
    runs = item.runs.values()
    scores = [score for run in runs if (score := score_of(run, metric, split)) is not None]
    if not scores:
        return MISSING
    moments = formulas.moments(scores)
    return Level(
        value=moments.mean,
        sd=moments.sd,
        noise=moments.noise,
        n=moments.n,
        planned=len(choice.block.seeds),
        degenerate=any(run.degenerate for run in runs),
        jobs=tuple(run.job_id for run in runs),
    )


def _notes(choices: list[Choice]) -> Iterator[TableNote]:
    if not choices:
        yield note("absent", "None of these jobs is a point of a grid of the recipe")
    for choice in choices:
        place = f"{choice.block.label}, {choice.backbone.label}, {choice.arm.label}"
        yield from left_out(place, choice.tried)
    if choices:
        yield note(
            "choice",
            "Chosen: the highest mean validation AUC of the points that have every seed, whatever "
            "their test scores",
        )
