"""The plan of a recipe: every job, its state, and which jobs are to run."""

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.words import counted
from prime_bench.data.manifest import (
    SCHEMA_NAME,
    Manifest,
    TableSpec,
    carried_cards,
    resolve,
)
from prime_bench.data.schema import Schema
from prime_bench.recipe.differences import KeyDifference, differing_keys, resolved
from prime_bench.recipe.job import Job
from prime_bench.recipe.recipe import JobSpec, Recipe
from prime_bench.schedule.fitness import Fitness, fitness_of
from prime_bench.settings.interface import TableShape
from prime_bench.settings.probes import CostOnDevice, CostSettings
from prime_bench.store.record import DeviceKind, Record, RunRecord
from prime_bench.store.runs import Runs
from prime_bench.store.source_versions import (
    OtherVersion,
    counted_by_class,
    exist_text,
    other_versions,
)


def stale_halves(
    records: Iterable[RunRecord], to_run: Iterable[Job], *, here: DeviceKind
) -> dict[str, str]:
    """Find done jobs whose pairs have run, or will run, on another kind of device.

    Args:
        records: Records of the plan's done jobs.
        to_run: Jobs that will run.
        here: The kind of device on which they will run. If the runs of a pair are on both kinds,
            the one on the other kind is stale, because this machine can do it again.

    Returns:
        Id of each stale job -> why it is stale.
    """
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        groups[group_of(record.job)].append(record)
    will_run = {group_of(job) for job in to_run}
    stale = {}
    for group, members in groups.items():
        kinds = {record.environment.device_kind for record in members}
        if here not in kinds and group not in will_run:
            continue
        other = f"its pair is on {here}" if here in kinds else f"its pair would be done on {here}"
        for record in members:
            kind = record.environment.device_kind
            if kind != here:
                # Not `job_id`: an accepted record of another source stands in for another job.
                stale[record.job.id] = f"its record is on {kind}, {other}"
    return stale


def outdated(job: Job, runs: Runs) -> int | None:
    """Return the latest earlier `numerics` for which the job has a record, or None.

    Such a record cannot be paired with one that this version makes.
    """
    for numerics in range(job.numerics - 1, 0, -1):
        if runs.done(job.model_copy(update={"numerics": numerics}).id):
            return numerics
    return None


def group_of(job: Job) -> str:
    """A key that all arms of one data set, backbone and seed have in common."""
    own = {name: code for name, code in job.code.items() if name == job.backbone}
    return job.model_copy(update={"plugin": "", "plugin_settings": {}, "code": own}).id


State = Literal[
    "done",
    "broken",
    "failed",
    "interrupted",
    "running",
    "pending",
    "needs data",
    "stale",
    "unfit",
]
"""`unfit`: the table has not the rows that a probe needs."""
TO_RUN: tuple[State, ...] = ("failed", "interrupted", "pending")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job of the plan."""

    job_spec: JobSpec
    state: State
    why: str
    table_spec: TableSpec
    job: Job | None
    """None if its data are not prepared."""
    needs: tuple[str, ...] = ()
    """Ids of the jobs that must be done before it. They come before it in the plan."""
    record: Record | None = None
    """The record of a job that is done, or that is stale because of its device."""
    other: OtherVersion | None = None
    """A record of another version of the source, which stands in for the job's if it is `record`.
    """

    @functools.cached_property
    def job_id(self) -> str | None:
        """Id of the job; None if its data are not prepared."""
        return None if self.job is None else self.job.id

    def plain(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {
            "job_id": self.job_id,
            "kind": self.job_spec.kind,
            "dataset": self.job_spec.dataset,
            "backbone": self.job_spec.backbone_name,
            "arm": self.job_spec.arm.name,
            "seed": self.job_spec.seed,
            "state": self.state,
            "why": self.why,
            "needs": list(self.needs),
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All jobs of a recipe in the order in which they run.

    They run seed by seed, the arms of a pair one after another, and each after the job it needs.
    """

    recipe: Recipe
    jobs: list[Planned]
    data_dir: Path
    runs_dir: Path
    """Folder of the records."""
    manifests: Mapping[str, Manifest | None]
    """Data set -> manifest of its table; None if it is not prepared."""
    retrain_stale: bool = False
    """Whether stale jobs that have a record run again."""
    skipped: tuple[str, ...] = ()
    """What a probe leaves out since the table has not the rows for it, a text each."""
    parts: "tuple[Plan, ...]" = ()
    """The plans of several recipes that `joined` has made one of, each without the jobs that an
    earlier one has; empty for the plan of one recipe."""

    @property
    def by_recipe(self) -> "tuple[Plan, ...]":
        """The parts, or the plan itself where it has none. Names of data sets and arms mean the
        same within one of them only."""
        return self.parts or (self,)

    @property
    def earlier(self) -> list[str]:
        """Sentences on the records of another version of the source that could stand in, and on
        those that do.
        """
        others = [(planned.other, planned.record) for planned in self.jobs if planned.other]
        could = [other for other, record in others if record is None]
        do = [other for other, record in others if record is not None]
        return [
            *exist_text(counted_by_class(could), then="counts them as done"),
            *(
                f"{counted(n, 'job')} done by records of an earlier version of `{name}`, as asked"
                for name, n in sorted(counted_by_class(do).items())
            ),
        ]

    @functools.cached_property
    def shapes(self) -> dict[str, TableShape]:
        """Data set -> shape of its table, where it is prepared."""
        files = {
            planned.job_spec.dataset: planned.table_spec.folder(self.data_dir) / SCHEMA_NAME
            for planned in self.jobs
            if planned.job is not None
        }
        return {name: Schema.read(file).shape for name, file in files.items() if file.exists()}

    @functools.cached_property
    def to_run(self) -> list[Planned]:
        """The jobs that `run` would run now."""
        return [planned for planned in self.jobs if self._is_to_run(planned)]

    def _is_to_run(self, planned: Planned) -> bool:
        # A stale job without a record has one of an older version, under another id, which stays.
        again = self.retrain_stale or planned.record is None
        return planned.state in TO_RUN or (planned.state == "stale" and again)

    @property
    def counts(self) -> dict[str, int]:
        """Number of jobs in each state that occurs."""
        return dict(Counter(planned.state for planned in self.jobs))

    @property
    def candidates(self) -> dict[str, dict[str, int]]:
        """Backbone -> arm -> number of points of their grids; empty without a grid."""
        points: dict[str, dict[str, set[tuple[str, str]]]] = {}
        swept = False
        for spec in (planned.job_spec for planned in self.jobs):
            swept |= (spec.arm.point or spec.backbone_point) is not None
            own = points.setdefault(spec.backbone, {}).setdefault(spec.arm.family, set())
            own.add((spec.backbone_name, spec.arm.name))
        if not swept:
            return {}
        return {name: {arm: len(n) for arm, n in arms.items()} for name, arms in points.items()}

    @property
    def broken(self) -> list[str]:
        """Messages about the records that cannot be read; their jobs do not run."""
        return [planned.why for planned in self.jobs if planned.state == "broken"]

    @property
    def unfit(self) -> list[str]:
        """Why probes cannot measure a data set, with the key to change; their jobs do not run."""
        found = [planned for planned in self.jobs if planned.state == "unfit"]
        return list(dict.fromkeys(f"{p.job_spec.dataset}: {p.why}" for p in found))

    @property
    def prepare_commands(self) -> list[str]:
        """The commands that prepare the missing tables."""
        missing = [planned for planned in self.jobs if planned.state == "needs data"]
        return list(dict.fromkeys(planned.table_spec.prepare_command() for planned in missing))


def make_plan(
    recipe: Recipe,
    *,
    data_dir: Path,
    runs: Runs,
    only: Sequence[str] = (),
    device_kind: DeviceKind = "cpu",
    retrain_stale: bool = False,
    accept_source: bool = False,
) -> Plan:
    """Find the state of each job of a recipe, from the tables and the records.

    Args:
        recipe: The recipe.
        data_dir: Folder of the prepared tables.
        runs: The records.
        only: Which jobs of the recipe, such as `backbone=DNN`; all if empty.
        device_kind: The kind of device on which the jobs would run.
        retrain_stale: Whether stale jobs that have a record run again.
        accept_source: Whether records of another version of a user's own class count.

    Raises:
        UsageError: If no card has a data set or a key of the recipe.
        DataError: If a table's manifest is broken.
    """
    specs = table_specs_of(recipe, data_dir=data_dir)
    manifests = {name: spec.manifest(data_dir) for name, spec in specs.items()}
    jobs: dict[object, Planned] = {}
    fitness: dict[str, Fitness] = {}
    for job_spec in recipe.job_specs(only=only):
        name, needed = job_spec.dataset, job_spec.needed_job
        state = functools.partial(_planned, spec=specs[name], manifest=manifests[name], runs=runs)
        planned = state(job_spec)
        if planned.job and planned.state in TO_RUN and recipe.probe is not None:
            if name not in fitness:
                fitness[name] = fitness_of(recipe.probe, folder=specs[name].folder(data_dir))
            if why := fitness[name].unfit:
                # Nothing is trained for a probe that would then fail.
                why = f"{recipe.kind} {why}"
                planned, needed = replace(planned, state="unfit", why=why, needs=()), None
        for one in (state(needed), planned) if needed is not None else (planned,):
            # A job without a table has no id; its text stands in for it.
            jobs.setdefault(one.job_id or str(one.job_spec), one)
    with_others = _with_others(list(jobs.values()), runs=runs, accept=accept_source)
    return Plan(
        recipe=recipe,
        jobs=_waiting_for_needs(_with_stale(with_others, runs=runs, here=device_kind)),
        data_dir=data_dir,
        runs_dir=runs.folder,
        manifests=manifests,
        retrain_stale=retrain_stale,
        skipped=tuple(
            f"{name}: {recipe.kind} leaves out {text}"
            for name, found in fitness.items()
            for text in found.skipped
        ),
    )


def joined(plans: Sequence[Plan], *, name: str, title: str) -> Plan:
    """Make one plan of those of several recipes, in their order; a job that several ask for is done
    with the first of them.

    Args:
        plans: The plans, one or more; none of a recipe of the kind `cost`.
        name: What the whole is called.
        title: Its title.
    """
    seen: set[str] = set()
    parts = []
    for plan in plans:
        own = {_identity(planned): planned for planned in plan.jobs}
        jobs = [planned for key, planned in own.items() if key not in seen]
        parts.append(replace(plan, jobs=jobs))
        seen |= own.keys()
    first = plans[0]
    return Plan(
        recipe=replace(first.recipe, name=name, title=title, kind="train", probe=None),
        jobs=[planned for part in parts for planned in part.jobs],
        data_dir=first.data_dir,
        runs_dir=first.runs_dir,
        manifests={},
        retrain_stale=first.retrain_stale,
        skipped=tuple(text for part in parts for text in part.skipped),
        parts=tuple(parts),
    )


def _identity(planned: Planned) -> str:
    """The id of the job; without a table, that which it would have if the table's settings were its
    fingerprint.
    """
    return planned.job_id or planned.job_spec.bind(planned.table_spec.digest).id


def table_specs_of(recipe: Recipe, *, data_dir: Path | None = None) -> Mapping[str, TableSpec]:
    """The data sets that a recipe names, under its settings.

    Where the file of the user's own card is gone, that of a table below `data_dir` is used. Raises
    UsageError with every fault.
    """
    specs, faults, hints = {}, [], []
    for name, keys in recipe.datasets.items():
        try:
            specs[name] = resolve(
                name,
                keys,
                where=f"dataset.{name}",
                folder=recipe.folder,
                carried=lambda: carried_cards(data_dir) if data_dir is not None else (),
            )
        except UsageError as error:
            faults += [_placed(line, name, recipe) for line in error.message.splitlines()]
            hints += [error.hint] if error.hint else []
    if faults:
        raise UsageError("\n".join(faults), hint="\n".join(dict.fromkeys(hints)))
    return specs


def _placed(fault: str, dataset: str, recipe: Recipe) -> str:
    """A message about a key of a card, after the place where the key was set."""
    key, _, _ = fault.partition(": ")
    if recipe.given.get(tuple(key.split("."))) == "--set":
        return f"--set {fault}"
    return f"{recipe.places.get(dataset, recipe.name)}: {fault}"


def _planned(
    job_spec: JobSpec, spec: TableSpec, *, manifest: Manifest | None, runs: Runs
) -> Planned:
    if manifest is None:
        why = spec.prepare_command()
        return Planned(job_spec=job_spec, state="needs data", why=why, table_spec=spec, job=None)
    job = job_spec.bind(manifest.fingerprint)
    state, why, record = job_state(job.id, runs)
    needs = () if job_spec.needed_job is None else (job.training_run.id,)
    return Planned(
        job_spec=job_spec,
        state=state,
        why=why,
        table_spec=spec,
        job=job,
        needs=needs,
        record=record,
    )


def job_state(job_id: str, runs: Runs) -> tuple[State, str, Record | None]:
    """Return a job's state, the reason in a line, and the record if it is done.

    `stale` is not among the states: whether a job is stale depends on the jobs it is paired with.
    """
    try:
        record = runs.find(job_id)
        fault = runs.misfit(job_id) if record is None else None
    except DataError as error:
        # The record may hold the result of days of training, so it is not overwritten.
        record, (fault, _, _) = None, error.message.partition("\n")
    if record is not None:
        return "done", "has a record", record
    if fault is not None:
        return "broken", f"{fault}; move the job's folder away", None
    try:
        claimant = runs.claimant(job_id)
    except DataError as error:
        return "broken", f"{error.message}; {error.hint}", None
    if claimant is not None:
        return "running", f"{claimant} has claimed it", None
    failure = runs.failure(job_id)
    if failure is not None:
        return "failed", failure, None
    if runs.started(job_id):
        saved = runs.saved(job_id)
        start = "continues from its saved state" if saved else "starts from the beginning"
        return "interrupted", f"was started and has no record; it {start}", None
    return "pending", "has no record", None


def _with_others(jobs: list[Planned], *, runs: Runs, accept: bool) -> list[Planned]:
    """The same jobs; those to run know a record of another version of their source, if there is
    one, and are done where such records are accepted.
    """
    codes = {k: v for p in jobs if p.job and p.state in TO_RUN for k, v in p.job.code.items()}
    if not codes:
        return jobs
    others = {other.counted.job.id: other for other in other_versions(runs.readable()[0], codes)}
    known = [
        replace(planned, other=others.get(planned.job_id or ""))
        if planned.state in TO_RUN
        else planned
        for planned in jobs
    ]
    if not accept:
        return known
    # A probe that is to run needs the weights of its own version.
    needed = {
        job_id
        for planned in known
        if planned.state in TO_RUN and planned.other is None
        for job_id in planned.needs
    }
    return [
        replace(
            planned,
            state="done",
            why=f"has a record of an earlier version of `{'` and `'.join(planned.other.names)}`",
            record=planned.other.counted,
        )
        if planned.other is not None and planned.job_id not in needed
        else planned
        for planned in known
    ]


def _with_stale(jobs: list[Planned], *, runs: Runs, here: DeviceKind) -> list[Planned]:
    """The same jobs, with those marked as stale whose records cannot be paired."""
    records = [planned.record for planned in jobs if isinstance(planned.record, RunRecord)]
    to_run = [planned.job for planned in jobs if planned.job and planned.state in TO_RUN]
    elsewhere = stale_halves(records, to_run, here=here)
    marked = []
    for planned in jobs:
        if planned.job_id in elsewhere:
            marked.append(replace(planned, state="stale", why=elsewhere[planned.job_id]))
        elif planned.job and planned.state == "pending" and (old := outdated(planned.job, runs)):
            why = f"its record has numerics {old}, this version has {planned.job.numerics}"
            marked.append(replace(planned, state="stale", why=why))
        else:
            marked.append(planned)
    return marked


def _waiting_for_needs(jobs: list[Planned]) -> list[Planned]:
    """The same jobs, with a reason that names the job that must be done before."""
    done = {planned.job_id for planned in jobs if planned.state in ("done", "stale")}
    return [
        replace(planned, why=f"{planned.why}, and the job {planned.needs[0]} comes before it")
        if planned.state in TO_RUN and not done.issuperset(planned.needs)
        else planned
        for planned in jobs
    ]


def check_runnable(plan: Plan) -> None:
    """Raise DataError if no data set of the plan is prepared, or none has the rows it needs."""
    if plan.unfit and all(planned.state in ("unfit", "needs data") for planned in plan.jobs):
        raise DataError(
            "\n".join(plan.unfit),
            hint="a change of the recipe's [probe] makes other jobs: give the same to `report`",
        )
    if all(planned.state == "needs data" for planned in plan.jobs):
        raise DataError(
            f"{plan.recipe.name}: no data set of this recipe is prepared here",
            hint="prepare first:\n  " + "\n  ".join(plan.prepare_commands),
        )


def on_device(recipe: Recipe, *, device: str, threads: int) -> Recipe:
    """Return a recipe of the kind `cost` with the device and CPU threads that it measures.

    They are part of the identity of its jobs. `device` is the name that the vendor gives it.
    Raises UsageError for a recipe of another kind.
    """
    if not isinstance(recipe.probe, CostSettings):
        raise UsageError(
            f"{recipe.name}: a recipe of the kind `{recipe.kind}`, not of the kind `cost`",
            hint='measure recipes/cost.toml, or write one with `kind = "cost"`',
        )
    own = recipe.probe.model_dump()
    return replace(recipe, probe=CostOnDevice(**own, device=device, threads=threads))


def measured_again(plan: Plan) -> Plan:
    """Return the plan with its done jobs to be run again; their records are moved away."""
    jobs = [
        replace(planned, state="stale", why="is measured again")
        if planned.state == "done"
        else planned
        for planned in plan.jobs
    ]
    return replace(plan, jobs=jobs, retrain_stale=True)


@dataclass(frozen=True, kw_only=True)
class RecipeDiff:
    """Where two recipes differ."""

    keys: list[KeyDifference]
    """Keys with different values, all defaults filled in."""
    n_left: int
    """Jobs of the left recipe alone."""
    n_right: int
    """Jobs of the right recipe alone."""
    n_both: int
    """Jobs that both have; they are done once."""


def recipe_diff(left: Recipe, right: Recipe) -> RecipeDiff:
    """Find the settings in which two recipes differ, and how many jobs they share.

    Jobs on the same data settings count as the same, whether the table is prepared or not.
    """
    tables, ids = [], []
    for recipe in (left, right):
        specs = table_specs_of(recipe)
        datasets = {
            name: {"card": spec.name, **spec.settings.plain()} for name, spec in specs.items()
        }
        tables.append(resolved(recipe, datasets))
        ids.append(
            {job_spec.bind(specs[job_spec.dataset].digest).id for job_spec in recipe.job_specs()}
        )
    return RecipeDiff(
        keys=differing_keys(*tables),
        n_left=len(ids[0] - ids[1]),
        n_right=len(ids[1] - ids[0]),
        n_both=len(ids[0] & ids[1]),
    )
