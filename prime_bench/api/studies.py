"""Studies: several recipes prepared, planned, run and reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prime_bench.api.execution import cost_plan, estimate, plan
from prime_bench.api.recipes import Log, StrPath
from prime_bench.api.tables import Preparation, prepare_tables
from prime_bench.base.errors import UsageError
from prime_bench.recipe import study as study_files
from prime_bench.recipe.study import Study, StudyRecipe
from prime_bench.schedule.engine import Engine
from prime_bench.schedule.estimate import Estimate, PlanEstimate, Total, total_of
from prime_bench.schedule.plan import Plan, joined, table_specs_of

if TYPE_CHECKING:
    from prime_bench.base.errors import UserError
    from prime_bench.data.manifest import TableSpec
    from prime_bench.data.stages import StageProgress
    from prime_bench.report.study import StudyReport


def load_study(study: StrPath) -> Study:
    """Read and check a study, its recipes and the cards that they name.

    Args:
        study: Path of a study's file, or the name of a bundled one: `paper`, `miniature`.

    Raises:
        UsageError: The study or one of its recipes is faulty; the message has file, line and key.
    """
    found = study_files.load_study(Path(study))
    for item in found.recipes:
        _table_specs(found, item)
    return found


def _loaded(study: StrPath | Study) -> Study:
    return study if isinstance(study, Study) else load_study(study)


def _table_specs(study: Study, item: StudyRecipe) -> Mapping[str, TableSpec]:
    try:
        return table_specs_of(item.recipe)
    except UsageError as error:
        raise study.placed(error, item) from error


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The jobs of a study."""

    study: Study
    plans: tuple[Plan, ...]
    """The whole plan of each recipe, in the order of the study."""
    queue: Plan | None
    """One plan of all jobs that are not measurements of costs, each job once. `run` takes it.
    None for a study of costs alone."""
    costs: tuple[Plan, ...]
    """Plans of the recipes that measure costs, which `run` takes one at a time, after the others.
    """

    @property
    def n_jobs(self) -> int:
        """Jobs of the study, each counted once."""
        return sum(len(own.jobs) for own in self.parts)

    @property
    def n_shared(self) -> int:
        """Jobs that a recipe asks for and an earlier one has already."""
        return sum(len(made.jobs) for made in self.plans) - self.n_jobs

    @property
    def parts(self) -> tuple[Plan, ...]:
        """As `plans`, each without the jobs that an earlier one has."""
        queued = iter(self.queue.by_recipe if self.queue else ())
        measured = iter(self.costs)
        return tuple(
            next(measured) if made.recipe.kind == "cost" else next(queued) for made in self.plans
        )


def plan_study(
    study: StrPath | Study,
    *,
    device: str = "auto",
    engine: Engine | None = None,
    retrain_stale: bool = False,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
) -> StudyPlan:
    """List the jobs of all recipes of a study; nothing is run.

    Args:
        study: A study.
        device: Where the jobs would run, as for `plan`; costs are measured on the first device.
        engine: An engine from `open_engine`, whose devices count in place of `device`, except for
            the measurement of costs, which is on this machine.
        retrain_stale: Whether jobs whose records cannot pair are to be done again.
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.

    Raises:
        UsageError: The study is faulty.
        DataError: A prepared table's manifest cannot be read.
        EnvironmentFault: The device is not there.
    """
    loaded = _loaded(study)
    plans = []
    for item in loaded.recipes:
        if item.recipe.kind == "cost":
            made = cost_plan(
                item.recipe,
                only=item.only,
                device=device,
                data_dir=data_dir,
                runs_dir=runs_dir,
            )
        else:
            made = plan(
                item.recipe,
                only=item.only,
                device=device,
                engine=engine,
                retrain_stale=retrain_stale,
                data_dir=data_dir,
                runs_dir=runs_dir,
            )
        plans.append(made)
    queued = [made for made in plans if made.recipe.kind != "cost"]
    return StudyPlan(
        study=loaded,
        plans=tuple(plans),
        queue=joined(queued, name=loaded.name, title=loaded.title) if queued else None,
        costs=tuple(made for made in plans if made.recipe.kind == "cost"),
    )


@dataclass(frozen=True, kw_only=True)
class StudyEstimate:
    """What the jobs of a study will take, estimated."""

    queue: PlanEstimate | None
    """Estimate of all jobs but the measurements of costs; None where there are none."""
    costs: tuple[PlanEstimate, ...]
    """An estimate for each recipe that measures costs."""
    by_recipe: tuple[Total, ...]
    """Sum of each recipe, without the jobs that an earlier one has."""

    @property
    def not_measured(self) -> tuple[str, ...]:
        """A line for each arm whose pace could not be measured."""
        return tuple(fault for one in self._all() for fault in one.not_measured)

    def _all(self) -> Iterator[PlanEstimate]:
        yield from [self.queue] if self.queue else []
        yield from self.costs


def estimate_study(
    made: StudyPlan,
    *,
    device: str = "auto",
    engine: Engine | None = None,
    measure: bool = False,
    runs_dir: StrPath = "runs",
    log: Log | None = None,
) -> StudyEstimate:
    """Estimate the time, memory and disk that the jobs of a study will take, as `estimate` does.

    Args:
        made: A plan from `plan_study`.
        device: Where the jobs would run, as it was given to `plan_study`.
        engine: An engine from `open_engine`, as it was given to `plan_study`.
        measure: Whether to train ten seconds for each data set, backbone and arm whose pace no
            record tells.
        runs_dir: Folder of the records.
        log: Called with the name of each job that is trained to measure.
    """
    queue = None
    if made.queue is not None:
        queue = estimate(
            made.queue, device=device, engine=engine, measure=measure, runs_dir=runs_dir, log=log
        )
    costs = tuple(estimate(item, device=device, runs_dir=runs_dir) for item in made.costs)
    of_costs = iter(costs)
    totals = []
    for part in made.parts:
        found = next(of_costs) if part.recipe.kind == "cost" else queue
        if found is None:
            raise RuntimeError("a plan without a queue has costs alone")
        own = [found.jobs.get(planned.job_id or "", Estimate()) for planned in part.to_run]
        totals.append(total_of(own, slots=found.total.slots, folder=Path(runs_dir)))
    return StudyEstimate(queue=queue, costs=costs, by_recipe=tuple(totals))


def prepare_study(
    study: StrPath | Study,
    *,
    sources: Mapping[str, StrPath] | None = None,
    allow_unverified: bool = False,
    keep_download: bool = False,
    data_dir: StrPath = "data",
    on_progress: Callable[[str, StageProgress], None] | None = None,
    on_table: Callable[[Preparation], None] | None = None,
    on_error: Callable[[str, UserError], None] | None = None,
    log: Log | None = None,
) -> list[Preparation]:
    """Make the prepared table of every data set of a study, or find that it is there.

    A table that several recipes name is one.

    Args:
        study: A study.
        sources: Raw data by the name of the data set; the others are downloaded or generated.
        allow_unverified: Whether to accept files that are not the published ones.
        keep_download: Whether to keep downloaded archives after their tables are verified.
        data_dir: Folder of the prepared tables.
        on_progress: Called now and then with the data set's name and how far it is.
        on_table: Called with each table as soon as it is there.
        on_error: Called with the data set's name and its error, in place of raising it. The
            other data sets are prepared in either case.
        log: Called with messages for the user.

    Returns:
        The tables, in the order of the study.

    Raises:
        UsageError: The study is faulty, or `sources` does not fit it.
        UserError: The first error of a data set, unless there is `on_error`.
    """
    loaded = _loaded(study)
    specs: dict[str, TableSpec] = {}
    seen: set[str] = set()
    for item in loaded.recipes:
        for name, spec in _table_specs(loaded, item).items():
            if spec.digest not in seen:
                seen.add(spec.digest)
                specs[name if name not in specs else f"{item.recipe.name}.{name}"] = spec
    return prepare_tables(
        specs,
        whose="the study",
        sources=sources,
        allow_unverified=allow_unverified,
        keep_download=keep_download,
        data_dir=data_dir,
        on_progress=on_progress,
        on_table=on_table,
        on_error=on_error,
        log=log,
    )


def report_study(study: StrPath | Study, *, runs_dir: StrPath = "runs") -> StudyReport:
    """Make the tables and figures of a study, each recipe's own, as one report.

    Args:
        study: A study.
        runs_dir: Folder of the records.

    Returns:
        The report. `StudyReport.write(folder)` writes LaTeX, figures, page, CSV and an index;
        `StudyReport.verdicts` has the verdict on each claim, where the study compares with them.

    Raises:
        UsageError: The study is faulty.
        DataError: There is no record of any of its jobs.
    """
    from prime_bench.report.request import read_source
    from prime_bench.report.study import study_report

    return study_report(_loaded(study), read_source(None, Path(runs_dir)))
