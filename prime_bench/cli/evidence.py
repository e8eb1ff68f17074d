"""Which records a report is made from: those of a folder or a bundle, under a recipe or none."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prime_bench.base.errors import DataError, UsageError
from prime_bench.data.manifest import resolve
from prime_bench.recipe.expand import Recipe
from prime_bench.recipe.file import load_recipe
from prime_bench.report.bundle import Bundle, open_bundle
from prime_bench.report.document import make_report
from prime_bench.report.quantities.records import Evidence, RecipeCells, gather, narrowed
from prime_bench.report.tables.definition import TableDefinition, load_definition, shipped_tables
from prime_bench.report.tables.model import Report
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

STATISTICS = ("family", "cells", "pairs")
"""Tables that `--level full` adds to those of a recipe that trains."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Records that can be read, and what is wrong with the others."""

    runs: Runs
    records: Sequence[RunRecord]
    probes: Sequence[ProbeRecord]
    unreadable: Sequence[str]
    bundle: Bundle | None = None

    @property
    def place(self) -> Path:
        """What a message names: the bundle, not where it is unpacked, or the folder."""
        return self.bundle.path if self.bundle else self.runs.folder


@contextlib.contextmanager
def opened(argument: str | None, runs_dir: Path) -> Iterator[Source]:
    """The bundle that `argument` names, else the folder of runs. Raises DataError."""
    if argument is None or Path(argument).suffix != ".zip":
        yield source_of(Runs(runs_dir))
        return
    with open_bundle(Path(argument)) as bundle:
        yield replace(source_of(bundle.runs), bundle=bundle)


def source_of(runs: Runs) -> Source:
    """Read the folder once."""
    found, unreadable = runs.readable()
    return Source(
        runs=runs,
        records=[record for record in found if isinstance(record, RunRecord)],
        probes=[record for record in found if isinstance(record, ProbeRecord)],
        unreadable=unreadable,
    )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    recipe: str | None
    tables: Sequence[str] = ()
    level: str = "simple"
    only: Sequence[str] = ()
    changes: Sequence[str] = ()
    mixed: bool = False

    def report(self, source: Source) -> tuple[Report, Evidence]:
        """The tables of one recipe, or of everything. Raises DataError where nothing is there."""
        evidence, tables = self._evidence(source)
        definitions = {name: load_definition(name) for name in tables}
        made = make_report(evidence, definitions=definitions)
        if not made.records:
            raise self._nothing(source)
        return made, evidence

    def evidence(self, source: Source) -> Evidence:
        """The records alone."""
        return self._evidence(source)[0]

    def paper(self, source: Source) -> Report:
        """Each of the paper's tables from its own bundled recipe. Raises DataError."""
        by_recipe: dict[str, dict[str, TableDefinition]] = {}
        for name in shipped_tables():
            definition = load_definition(name)
            if definition.recipe and (not self.tables or name in self.tables):
                by_recipe.setdefault(definition.recipe, {})[name] = definition
        made = []
        for recipe, definitions in by_recipe.items():
            evidence = replace(self, recipe=recipe).evidence(source)
            made.append(make_report(evidence, definitions=definitions))
        records = {record.job_id: record for report in made for record in report.records}
        if not records:
            raise DataError(
                f"{source.place}: no record of the paper's recipes here",
                hint=f"make some: prime-bench run {next(iter(by_recipe), 'main13')}",
            )
        return Report(
            title="The paper's tables",
            tables=tuple(table for report in made for table in report.tables),
            pairs=tuple(pair for report in made for pair in report.pairs),
            dropped_pairs=tuple(pair for report in made for pair in report.dropped_pairs),
            records=tuple(records.values()),
        )

    def _evidence(self, source: Source) -> tuple[Evidence, list[str]]:
        if self.recipe is None:
            if self.changes:
                raise UsageError("--set changes a recipe: name one, or leave --set out")
            kinds = dict.fromkeys(record.job.kind for record in source.probes)
            own = ["main"] if source.records or not kinds else []
            evidence = gather(
                narrowed(source.records, self.only) if self.only else source.records,
                probes=source.probes,
                unreadable=source.unreadable,
                mixed=self.mixed,
            )
            return evidence, self._tables([*own, *kinds], trains=bool(source.records))
        recipe, cells = cells_of(self.recipe, source, only=self.only, changes=self.changes)
        own = list(recipe.report.tables) or ["main" if recipe.kind == "train" else recipe.kind]
        evidence = gather(
            source.records,
            cells=cells,
            probes=source.probes,
            unreadable=source.unreadable,
            mixed=self.mixed,
        )
        return evidence, self._tables(own, trains=recipe.kind == "train")

    def _tables(self, own: Sequence[str], *, trains: bool) -> list[str]:
        tables = list(self.tables or own)
        added = STATISTICS if self.level == "full" and trains else ()
        return list(dict.fromkeys((*tables, *added)))

    def _nothing(self, source: Source) -> DataError:
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
        return DataError(f"{source.place}: {what}{there}{broken}", hint=hint)


def no_record_hint(recipe: str, *, changes: Sequence[str], others: int) -> str:
    """What to do where a recipe has no record among `others`: a run with --set is other jobs."""
    run = " ".join(["prime-bench run", recipe, *(f"--set {change}" for change in changes)])
    if not others:
        return f"make some: {run}"
    return (
        "its records may be under other settings: give the same --set as for `run`; or make some: "
        f"{run}"
    )


def _check_packed(bundle: Bundle) -> None:
    """Raise DataError where the recipe was faulty already when it was packed, or is not the one."""
    try:
        recipe = load_recipe(bundle.recipe, changes=bundle.contents.changes)
    except UsageError as error:
        said = error.message.replace(str(bundle.recipe), bundle.recipe.name)
        raise DataError(f"{bundle.path}: {said}", hint=error.hint) from error
    if recipe.datasets.keys() != bundle.contents.variants.keys():
        raise DataError(f"{bundle.path}: recipe and `variants` name different data sets")


def cells_of(
    argument: str, source: Source, *, only: Sequence[str], changes: Sequence[str]
) -> tuple[Recipe, RecipeCells]:
    """A recipe's cells; those of a bundle are the packed recipe's, under the packed changes."""
    bundle = source.bundle
    if bundle:
        _check_packed(bundle)
    own = [*bundle.contents.changes, *changes] if bundle else list(changes)
    recipe = load_recipe(bundle.recipe if bundle else argument, changes=own)
    variants = {
        name: resolve(name, keys, where=f"{recipe.name}: dataset.{name}").digest
        for name, keys in recipe.datasets.items()
    }
    if bundle and not changes:
        variants = bundle.contents.variants
    name = bundle.contents.recipe if bundle else argument
    return recipe, RecipeCells(
        name=" ".join([name, *(f"--set {change}" for change in own)]),
        title=recipe.title,
        trials=recipe.trials(only=only),
        variants=variants,
        notes=recipe.report.notes,
        family=recipe.report.family,
    )
