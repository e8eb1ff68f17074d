"""Halves of pairs that cannot meet: records that stand on another kind of device, or that an older
version made.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from prime_bench.base.errors import DataError, UsageError
from prime_bench.data.manifest import Manifest, TableSpec, resolve
from prime_bench.recipe.expand import Recipe, Trial
from prime_bench.recipe.job import Job
from prime_bench.store.record import DeviceKind, Record, RunRecord
from prime_bench.store.runs import Runs


def stale_halves(
    records: Iterable[RunRecord], to_run: Iterable[Job], *, here: DeviceKind
) -> dict[str, str]:
    """Ids of done jobs whose pairs stand, or will stand, on another kind of device, and why.

    `here` is the kind that `to_run` will run on. Of a pair on both kinds the half elsewhere is the
    stale one, since this machine can do it again.
    """
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        groups[_group_of(record.job)].append(record)
    will_run = {_group_of(job) for job in to_run}
    stale = {}
    for group, members in groups.items():
        kinds = {record.environment.device_kind for record in members}
        if here not in kinds and group not in will_run:
            continue
        other = f"its pair is on {here}" if here in kinds else f"its pair would be done on {here}"
        for record in members:
            kind = record.environment.device_kind
            if kind != here:
                stale[record.job_id] = f"its record is on {kind}, {other}"
    return stale


def outdated(job: Job, runs: Runs) -> int | None:
    """The latest `numerics` before the job's own under which it has a record; None: there is none.

    Such a record cannot pair with any that this version makes.
    """
    for numerics in range(job.numerics - 1, 0, -1):
        if runs.done(job.model_copy(update={"numerics": numerics}).id):
            return numerics
    return None


def _group_of(job: Job) -> str:
    """What the arms of one data set, backbone and seed share."""
    own = {name: code for name, code in job.code.items() if name == job.backbone}
    return job.model_copy(update={"plugin": "", "plugin_settings": {}, "code": own}).id


State = Literal[
    "done", "broken", "failed", "interrupted", "running", "pending", "needs data", "stale"
]
TO_RUN: tuple[State, ...] = ("failed", "interrupted", "pending")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job of the plan."""

    trial: Trial
    state: State
    why: str
    variant: TableSpec
    job: Job | None
    """None where the data are not prepared."""
    needs: tuple[str, ...] = ()
    """Ids of the jobs that have to be done before it, which stand before it in the plan."""
    record: Record | None = None
    """Of a job that is done, or stale for its device."""

    @functools.cached_property
    def job_id(self) -> str | None:
        """None where the data are not prepared."""
        return None if self.job is None else self.job.id

    def plain(self) -> dict[str, object]:
        """As JSON, for `--json`."""
        return {
            "job_id": self.job_id,
            "kind": self.trial.kind,
            "dataset": self.trial.dataset,
            "backbone": self.trial.backbone,
            "arm": self.trial.arm.name,
            "seed": self.trial.seed,
            "state": self.state,
            "why": self.why,
            "needs": list(self.needs),
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All jobs in the order in which they run: seed by seed, the arms of a pair side by side, and
    before a job the one that it needs.
    """

    recipe: Recipe
    jobs: list[Planned]
    data_dir: Path
    manifests: Mapping[str, Manifest | None]
    """Data set -> its prepared table's manifest; None where it is not prepared."""
    retrain_stale: bool = False
    """Whether stale jobs that have a record are done again."""

    @functools.cached_property
    def to_run(self) -> list[Planned]:
        """The jobs that `run` would do now."""
        return [planned for planned in self.jobs if self._is_to_run(planned)]

    def _is_to_run(self, planned: Planned) -> bool:
        # Nothing is lost by doing a job whose record is an older version's: it has another id.
        again = self.retrain_stale or planned.record is None
        return planned.state in TO_RUN or (planned.state == "stale" and again)

    @property
    def counts(self) -> dict[str, int]:
        """Jobs a state, states without jobs left out."""
        return dict(Counter(planned.state for planned in self.jobs))

    @property
    def broken(self) -> list[str]:
        """Why the jobs with a record that cannot be read are left alone."""
        return [planned.why for planned in self.jobs if planned.state == "broken"]

    @property
    def prepare_commands(self) -> list[str]:
        """The commands that prepare what is missing, each once."""
        missing = [planned for planned in self.jobs if planned.state == "needs data"]
        return list(dict.fromkeys(planned.variant.prepare_command() for planned in missing))


def make_plan(
    recipe: Recipe,
    *,
    data_dir: Path,
    runs: Runs,
    only: Sequence[str] = (),
    device_kind: DeviceKind = "cpu",
    retrain_stale: bool = False,
) -> Plan:
    """Look at the prepared data and the records and say what each job's state is.

    `device_kind` is that of the device on which the jobs would run.
    Raises UsageError for a data set or key that no card has, DataError for a broken manifest.
    """
    variants = variants_of(recipe)
    manifests = {name: variant.manifest(data_dir) for name, variant in variants.items()}
    jobs: dict[object, Planned] = {}
    for trial in _with_needed(recipe.trials(only=only)):
        variant, manifest = variants[trial.dataset], manifests[trial.dataset]
        planned = _planned(trial, variant, manifest=manifest, runs=runs)
        # Without an id, trials of unprepared data are told apart by what they say.
        jobs.setdefault(planned.job_id or str(trial), planned)
    return Plan(
        recipe=recipe,
        jobs=_waiting_for_needs(_with_stale(list(jobs.values()), runs=runs, here=device_kind)),
        data_dir=data_dir,
        manifests=manifests,
        retrain_stale=retrain_stale,
    )


def variants_of(recipe: Recipe) -> Mapping[str, TableSpec]:
    """The data sets that a recipe names, under its settings. Raises UsageError with every fault."""
    variants, faults, hints = {}, [], []
    for name, keys in recipe.datasets.items():
        try:
            variants[name] = resolve(name, keys, where=f"dataset.{name}")
        except UsageError as error:
            faults += [_placed(line, name, recipe) for line in error.message.splitlines()]
            hints += [error.hint] if error.hint else []
    if faults:
        raise UsageError("\n".join(faults), hint="\n".join(dict.fromkeys(hints)))
    return variants


def _placed(fault: str, dataset: str, recipe: Recipe) -> str:
    """A card's fault behind what has set the key."""
    key, _, _ = fault.partition(": ")
    if recipe.given.get(tuple(key.split("."))) == "--set":
        return f"--set {fault}"
    return f"{recipe.places.get(dataset, recipe.name)}: {fault}"


def _with_needed(trials: Iterable[Trial]) -> Iterator[Trial]:
    """Each trial, and before it the one that it needs."""
    for trial in trials:
        if trial.trained is not None:
            yield trial.trained
        yield trial


def _planned(trial: Trial, variant: TableSpec, *, manifest: Manifest | None, runs: Runs) -> Planned:
    if manifest is None:
        why = variant.prepare_command()
        return Planned(trial=trial, state="needs data", why=why, variant=variant, job=None)
    job = trial.bind(manifest.fingerprint)
    state, why, record = job_state(job, runs)
    needs = () if trial.trained is None else (job.trained.id,)
    return Planned(
        trial=trial, state=state, why=why, variant=variant, job=job, needs=needs, record=record
    )


def job_state(job: Job, runs: Runs) -> tuple[State, str, Record | None]:
    """A job's state from what its folder holds, the reason in a line, and the record if it is done.

    Whether a done job is stale shows only beside its pairs.
    """
    job_id = job.id
    try:
        record = runs.find(job_id)
    except DataError as error:
        # It may be all that is left of days of training: nothing is done over it.
        fault, _, _ = error.message.partition("\n")
        return "broken", f"{fault}; move the job's folder away", None
    if record is not None:
        return "done", "has a record", record
    if runs.claimed(job_id):
        return "running", "another process has claimed it", None
    failure = runs.failure(job_id)
    if failure is not None:
        return "failed", failure, None
    if runs.started(job_id):
        goes_on = "goes on from its saved state" if runs.saved(job_id) else "begins again"
        return "interrupted", f"was started and has no record, and {goes_on}", None
    return "pending", "has no record", None


def _with_stale(jobs: list[Planned], *, runs: Runs, here: DeviceKind) -> list[Planned]:
    """The same jobs, those called stale that cannot pair."""
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
    """The same jobs; of one that waits for another the reason says so."""
    done = {planned.job_id for planned in jobs if planned.state in ("done", "stale")}
    return [
        replace(planned, why=f"{planned.why}, and the job {planned.needs[0]} comes before it")
        if planned.state in TO_RUN and not done.issuperset(planned.needs)
        else planned
        for planned in jobs
    ]


def check_runnable(plan: Plan) -> None:
    """Raise DataError when jobs wait for data and nothing else can be done."""
    if all(planned.state == "needs data" for planned in plan.jobs):
        raise DataError(
            f"{plan.recipe.name}: no data set of this recipe is prepared here",
            hint="prepare first:\n  " + "\n  ".join(plan.prepare_commands),
        )
