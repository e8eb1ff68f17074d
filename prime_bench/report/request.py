"""A request for a report: reads a folder or a bundle, selects, and makes tables."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prime_bench.base.errors import DataError, UsageError, did_you_mean
from prime_bench.base.files import write_whole
from prime_bench.data.manifest import TableSpec, read_cards, resolve
from prime_bench.findings import ALL_METRICS, Metric
from prime_bench.recipe.file import find_recipe, load_recipe, recipe_content
from prime_bench.recipe.recipe import Recipe
from prime_bench.report.bundle import bundle_of
from prime_bench.report.document import make_report
from prime_bench.report.quantities.formulas import METRICS
from prime_bench.report.quantities.layout import dataset_labels
from prime_bench.report.quantities.records import (
    RecipeJobs,
    ReportRecords,
    as_asked,
    gather,
    jobs_of,
    narrowed,
)
from prime_bench.report.sources import (
    RecordSource,
    conflict_text,
    read_sources,
    source_notes,
)
from prime_bench.report.tables.definition import (
    TableDefinition,
    shipped_tables,
    shows_any_metric,
)
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Report
from prime_bench.store.record import ProbeRecord, Record, RunRecord
from prime_bench.store.runs import Runs
from prime_bench.store.source_versions import (
    counted_by_class,
    exist_text,
    latest_codes,
    other_versions,
)

FULL_LEVEL_TABLES = ("family", "cells", "pairs")
"""Tables that the level `full` adds to those of a recipe that trains."""


def read_source(recipe: str | Path | None, runs_dir: Path | Sequence[Path]) -> RecordSource:
    """Read the bundle where `recipe` names one (`*.zip`), else every record of the folders and
    bundles.

    Raises DataError for a file that is not a bundle.
    """
    if recipe is not None and names_a_bundle(recipe):
        return read_sources([Path(recipe)])
    return read_sources([runs_dir] if isinstance(runs_dir, Path) else runs_dir)


def names_a_bundle(text: str | Path) -> bool:
    """Whether it is the name of a bundle, and neither of a recipe nor of a folder."""
    return Path(text).suffix == ".zip"


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """What a report is to show."""

    recipe: str | Path | None = None
    """A recipe's file or name; None, or the name of a bundle: the recipe of the bundles that are
    read, or everything that has records."""
    tables: Sequence[str] = ()
    """Names of report tables in place of the recipe's own."""
    level: str = "simple"
    """`full` adds the tables in `FULL_LEVEL_TABLES`."""
    only: Sequence[str] = ()
    changes: Sequence[str] = ()
    mixed: bool = False
    """Whether runs that differ in more than the arm are compared too."""
    accept_source: bool = False
    """Whether records of another version of a user's own class count: of the recipe's classes, or
    without a recipe of what was started last."""
    metrics: Sequence[Metric] = METRICS
    """What tables show, the first where they show one alone."""

    def report(self, source: RecordSource) -> tuple[Report, ReportRecords]:
        """Make the tables of the recipe, or of everything. Raises DataError without a record."""
        selected, tables = self.select(source)
        definitions = {name: load_definition(name) for name in tables}
        self._check_metrics(definitions)
        selected = replace(selected, metrics=self.metrics)
        made = make_report(selected, definitions=definitions)
        if not made.records:
            raise self._nothing(source, selected)
        return _with_digests(made, source), selected

    def _check_metrics(self, definitions: Mapping[str, TableDefinition]) -> None:
        """Raise UsageError where no table shows the metrics that were asked for."""
        if self.metrics == METRICS or any(map(shows_any_metric, definitions.values())):
            return
        raise UsageError(
            f"--metric {self.metrics[0]}: {', '.join(definitions)} "
            f"{'show' if len(definitions) > 1 else 'shows'} metrics of its own",
            hint="`--table main`, cells, pairs and family show any metric",
        )

    def runs(self, source: RecordSource) -> tuple[list[RunRecord], Mapping[str, int]]:
        """The training runs that are selected, in the order of the recipe or of their ids, and
        `ReportRecords.earlier`.
        """
        if self.jobs(source) is None:
            every = list(source.records)
            return (narrowed(every, self.only) if self.only else every), {}
        selected, _ = self.select(source)
        runs = [record for record in selected.all_records() if isinstance(record, RunRecord)]
        return runs, selected.earlier

    def paper_report(self, source: RecordSource) -> Report:
        """Make each of the paper's tables from its own bundled recipe. Raises DataError."""
        by_recipe: dict[str, dict[str, TableDefinition]] = {}
        for name in shipped_tables():
            definition = load_definition(name)
            if definition.recipe and (not self.tables or name in self.tables):
                by_recipe.setdefault(definition.recipe, {})[name] = definition
        made = []
        for recipe, definitions in by_recipe.items():
            selected, _ = replace(self, recipe=recipe).select(source)
            made.append(make_report(selected, definitions=definitions))
        records = {record.job_id: record for report in made for record in report.records}
        if not records:
            raise DataError(
                f"{source.name}: no record of the paper's recipes here",
                hint=no_record_hint(
                    "main13" if "main13" in by_recipe or not by_recipe else next(iter(by_recipe)),
                    changes=self.changes,
                    others=0,
                ),
            )
        report = Report(
            title="The paper's tables",
            tables=tuple(table for report in made for table in report.tables),
            blocks=tuple(block for report in made for block in report.blocks),
            records=tuple(records.values()),
            degenerate=frozenset().union(*(report.degenerate for report in made)),
        )
        return _with_digests(report, source)

    def jobs(self, source: RecordSource) -> RecipeJobs | None:
        """The jobs of the recipe, or of the bundles; None where everything is shown.

        Raises UsageError for a faulty recipe, and for changes without one.
        """
        if self.recipe is not None and not names_a_bundle(self.recipe):
            return recipe_jobs(self.recipe, source, changes=self.changes)
        if not self.changes:
            return source.packed
        if source.packed is None:
            raise UsageError("changes (--set) go with a recipe: name one, or leave them out")
        raise UsageError(
            f"--set {self.changes[0]}: a bundle has the settings under which it was packed",
            hint="select with --only and --table, or give --set to `prime-bench pack`",
        )

    def select(self, source: RecordSource) -> tuple[ReportRecords, list[str]]:
        """Select the records, and the names of the tables to make of them."""
        jobs = self.jobs(source)
        if jobs is None:
            kinds = dict.fromkeys(record.job.kind for record in source.probes)
            own = ["main"] if source.records or not kinds else []
            own += kinds
            trains = bool(source.records)
        else:
            jobs = jobs.narrowed(self.only)
            own = list(jobs.tables) or ["main" if jobs.kind == "train" else jobs.kind]
            trains = jobs.kind == "train"
        return self._gathered(source, jobs), self._tables(own, trains=trains)

    def _gathered(self, source: RecordSource, jobs: RecipeJobs | None) -> ReportRecords:
        """The records of the jobs, or all, with those of other versions of a user's own class."""
        every = source.every
        if jobs is None:
            codes = latest_codes(every)
        else:
            codes = {name: code for asked in jobs.jobs for name, code in asked.job.code.items()}
        others = other_versions(every, codes)

        def made(records: Iterable[Record]) -> ReportRecords:
            runs = [record for record in records if isinstance(record, RunRecord)]
            return gather(
                narrowed(runs, self.only) if jobs is None and self.only else runs,
                recipe=jobs,
                probes=[record for record in records if isinstance(record, ProbeRecord)],
                unreadable=source.unreadable,
                mixed=self.mixed,
            )

        replaced = {other.record.job_id for other in others}
        # What could not stand in for any job, a version before the last, is an arm of its own.
        rest = [record for record in every if record.job_id not in replaced]
        as_asked_for = made([*rest, *(other.counted for other in others)]) if others else None
        used = {record.job_id for record in as_asked_for.all_records()} if as_asked_for else ()
        shown = [other for other in others if other.record.job_id in used]
        if as_asked_for is not None and self.accept_source:
            return replace(as_asked_for, accepted=shown)
        # Without a recipe each version is an arm of its own.
        hidden = shown if jobs is not None else ()
        return replace(made(every), earlier=counted_by_class(hidden))

    def _tables(self, own: Sequence[str], *, trains: bool) -> list[str]:
        tables = list(self.tables or own)
        added = FULL_LEVEL_TABLES if self.level == "full" and trains else ()
        return list(dict.fromkeys((*tables, *added)))

    def _nothing(self, source: RecordSource, selected: ReportRecords) -> DataError:
        others = len(source.records) + len(source.probes)
        shown = f" that {', '.join(self.tables)} shows" if self.tables else ""
        there = f", though {others} of other jobs" if others else ""
        broken = "".join(f"\n{fault}" for fault in source.unreadable)
        if self.recipe is None:
            what = f"no record{shown} here" if shown else "no records here"
            hint = "make some: prime-bench run RECIPE"
        else:
            what = f"no record of {self.recipe}{shown} here"
            hint = no_record_hint(self.recipe, changes=self.changes, others=others)
        if selected.earlier:
            hint = "; ".join(exist_text(selected.earlier, then="shows them"))
        return DataError(f"{source.name}: {what}{there}{broken}", hint=hint)


def _with_digests(report: Report, source: RecordSource) -> Report:
    """Add the digests of the records behind the tables, while their files are there, and notes on
    where they are from.
    """
    tables = tuple(
        replace(table, notes=(*source_notes(source, table.jobs), *table.notes))
        for table in report.tables
    )
    jobs = {job_id for table in tables for job_id in table.jobs}
    digests = {job_id: source.digest(job_id) for job_id in sorted(jobs)}
    return replace(report, tables=tables, record_digests=digests)


def metrics_named(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of these names, `METRICS` without any. Raises UsageError for another name."""
    for name in names:
        if name not in ALL_METRICS:
            raise UsageError(
                f"--metric {name}: no such metric{did_you_mean(name, ALL_METRICS)}",
                hint=f"there are: {', '.join(ALL_METRICS)}",
            )
    found = tuple(metric for metric in dict.fromkeys(names) if metric in ALL_METRICS)
    return found or METRICS


def no_record_hint(recipe: str | Path, *, changes: Sequence[str], others: int) -> str:
    """What to do where a recipe has no record among `others`: a run with --set is other jobs."""
    command = "run"
    with contextlib.suppress(UsageError):  # a bundle is no recipe
        if load_recipe(recipe, changes=changes).kind == "cost":
            command = "profile"
    run = " ".join(
        ["prime-bench", command, str(recipe), *(f"--set {change}" for change in changes)]
    )
    if not others:
        return f"make some: {run}"
    return (
        f"its records may be under other settings: give the same --set as for `{command}`; or make "
        f"some: {run}"
    )


def pack(
    recipe: str | Path | None,
    output: Path,
    *,
    changes: Sequence[str],
    runs: Runs | RecordSource,
    only: Sequence[str] = (),
    accept_source: bool = False,
) -> tuple[list[str], list[str]]:
    """Write the records of a recipe into a bundle, as they are; also those of another version of a
    user's own class where `accept_source` says so.

    Args:
        recipe: The recipe; None for that of the bundles among `runs`.
        output: The bundle to write.
        changes: Keys that `--set` changes.
        runs: Where the records are.
        only: Which of the recipe's jobs; the bundle is then of these alone.
        accept_source: Whether records of another version of the source are packed, too.

    Returns the ids of the packed jobs, and a message for each record that is left out since it
    cannot be read, or since another one of its job is packed. Raises UsageError for a name that
    does not end in `.zip`, DataError without a record.
    """
    if output.suffix != ".zip":
        raise UsageError(f"--output {output}: a bundle's name ends in .zip")
    source = read_source(None, runs.folder) if isinstance(runs, Runs) else runs
    request = ReportRequest(recipe=recipe, changes=changes, only=only, accept_source=accept_source)
    text = source.packed_recipe if recipe is None else recipe_content(find_recipe(recipe))
    jobs = request.jobs(source)
    if jobs is None or text is None:
        raise UsageError(
            "; ".join(source.remarks) or f"{source.name}: no bundle, so its recipe is not known",
            hint="name the recipe: prime-bench pack RECIPE SOURCES -o FILE",
        )
    request.report(source)  # raises, with what to do, where there is no record
    if recipe is not None:
        jobs = jobs.model_copy(update={"name": as_asked(find_recipe(recipe).stem, changes)})
    if only:
        name = " ".join([jobs.name, *(f"--only {item}" for item in only)])
        jobs = jobs.narrowed(only).model_copy(update={"name": name})
    seeds = {asked.job.seed for asked in jobs.jobs}
    found = request.select(source)[0].all_records()
    job_ids = sorted({record.job_id for record in found if record.job.seed in seeds})
    files = {job_id: source.files(job_id) for job_id in job_ids}
    _, content = bundle_of(files, recipe=text, jobs=jobs, where=source.path)
    write_whole(output, content)
    left_out = [conflict_text(conflict) for conflict in source.conflicts]
    return job_ids, [*source.unreadable, *left_out]


def recipe_jobs(recipe: str | Path, source: RecordSource, *, changes: Sequence[str]) -> RecipeJobs:
    """The jobs of the recipe. Raises UsageError for a faulty recipe."""
    loaded = load_recipe(recipe, changes=changes)
    return jobs_of_recipe(loaded, source, name=as_asked(str(recipe), changes))


def jobs_of_recipe(loaded: Recipe, source: RecordSource, *, name: str) -> RecipeJobs:
    """The jobs of a recipe that was read, which provenance calls `name`. Raises UsageError."""
    specs = {
        name: resolve(
            name,
            keys,
            where=f"{loaded.name}: dataset.{name}",
            folder=loaded.folder,
            carried=lambda: read_cards(record.data_card for record in source.every),
        )
        for name, keys in loaded.datasets.items()
    }
    return jobs_of(
        loaded,
        name=name,
        variants={dataset: spec.digest for dataset, spec in specs.items()},
        titles={
            **{spec.name: spec.card.title for spec in specs.values() if spec.file is not None},
            **_generated_titles(specs),
        },
    )


def _generated_titles(specs: Mapping[str, TableSpec]) -> dict[str, str]:
    """Names for generated logs that a recipe calls as a real one, so that no report says it is."""
    labels = dataset_labels()
    return {
        dataset: f"Synthetic {labels[dataset]}"
        for dataset, spec in specs.items()
        if spec.card.kind == "generated" and dataset in labels
    }
