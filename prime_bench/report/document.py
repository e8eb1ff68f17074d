"""A report: a table with its title, caption and notes, ready for any format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.recipe.expand import ONLY_KEYS, Trial
from prime_bench.report.definition import ReportDefinition
from prime_bench.report.design import Design, design_from_records, design_from_trials
from prime_bench.report.notes import collect_notes
from prime_bench.report.numbers import series
from prime_bench.report.tables import MainTable, build_main_table, without_degenerate
from prime_bench.store.frame import Shelf, shelve
from prime_bench.store.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class RecipeCells:
    """The cells of a recipe, and where its data's records are found."""

    trials: Sequence[Trial]
    variants: Mapping[str, str]
    """Data set -> digest of its settings."""
    title: str
    notes: Sequence[str] = ()
    """The recipe's own notes."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything but the format."""

    definition: ReportDefinition
    title: str
    caption: str
    table: MainTable
    notes: tuple[str, ...]


def make_report(
    records: Sequence[RunRecord],
    *,
    definition: ReportDefinition,
    cells: RecipeCells | None = None,
) -> Report:
    """The main table of a recipe's cells, or of everything that has records.

    Raises UsageError for a caption that the definition gets wrong.
    """
    shelf, outdated = shelve(records)
    design = _design(shelf, definition=definition, cells=cells)
    table = build_main_table(shelf, design=design, baseline=definition.baseline)
    sound = build_main_table(without_degenerate(shelf), design=design, baseline=definition.baseline)
    places = {(record.dataset, record.job.fingerprint) for record in table.records}
    return Report(
        definition=definition,
        title=cells.title if cells else definition.title,
        caption=_caption(table, definition),
        table=table,
        notes=collect_notes(
            table,
            sound=sound,
            outdated=[
                record for record in outdated if (record.dataset, record.job.fingerprint) in places
            ],
            recipe_notes=cells.notes if cells else (),
            decimals=definition.decimals,
        ),
    )


def narrowed(records: Sequence[RunRecord], only: Sequence[str]) -> list[RunRecord]:
    """The records that `key=value` texts let through; values of one key are alternatives.

    Raises UsageError for a key or value that no record has.
    """
    wanted: dict[str, list[str]] = {}
    for item in only:
        key, equals, value = item.partition("=")
        if not equals or key not in ONLY_KEYS:
            raise UsageError(
                f"--only {item}: expected KEY=VALUE with KEY one of {', '.join(ONLY_KEYS)}"
            )
        known = sorted({_facts(record)[key] for record in records})
        if value not in known:
            raise UsageError(
                f"--only {item}: no record has such a {key}{did_you_mean(value, known)}",
                hint=f"the records have: {', '.join(known)}",
            )
        wanted.setdefault(key, []).append(value)
    return [
        record
        for record in records
        if all(_facts(record)[key] in values for key, values in wanted.items())
    ]


def _facts(record: RunRecord) -> dict[str, str]:
    values = (record.dataset, record.job.backbone, record.arm, str(record.job.seed))
    return dict(zip(ONLY_KEYS, values, strict=True))


def _design(shelf: Shelf, *, definition: ReportDefinition, cells: RecipeCells | None) -> Design:
    if cells is None:
        return design_from_records(
            shelf, baseline=definition.baseline, dataset_labels=definition.dataset_labels
        )
    return design_from_trials(
        cells.trials,
        shelf,
        variants=cells.variants,
        dataset_labels=definition.dataset_labels,
    )


def _caption(table: MainTable, definition: ReportDefinition) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    try:
        text = environment.from_string(definition.caption).render(
            datasets=series([panel.design.label for panel in table.panels]),
            baseline=table.baseline.label if table.baseline else "",
            arms=series([arm.label for arm in table.arms]),
            seeds=_counted([len(panel.design.seeds) for panel in table.panels], "seed"),
            backbones=_counted([len(panel.mean_rows) for panel in table.panels], "backbone"),
        )
    except jinja2.TemplateError as error:
        raise UsageError(f"the report definition's caption: {error}") from error
    return " ".join(text.split())


def _counted(numbers: Sequence[int], noun: str) -> str:
    low, high = min(numbers), max(numbers)
    count = str(low) if low == high else f"{low} to {high}"
    return f"{count} {noun}" if high == 1 else f"{count} {noun}s"
