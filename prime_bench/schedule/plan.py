"""The plan: every job of a recipe, its state, and why it would run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prime_bench.base.errors import DataError, UsageError
from prime_bench.data.manifest import Manifest
from prime_bench.data.variant import DataVariant, resolve
from prime_bench.recipe.expand import Recipe, Trial
from prime_bench.recipe.job import Job
from prime_bench.store.runs import Runs

State = Literal["done", "failed", "interrupted", "running", "pending", "needs data"]
TO_RUN: tuple[State, ...] = ("failed", "interrupted", "pending")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job of the plan."""

    trial: Trial
    state: State
    why: str
    variant: DataVariant
    job: Job | None
    """None where the data are not prepared."""

    def plain(self) -> dict[str, object]:
        """As JSON, for `--json`."""
        return {
            "job_id": self.job.id if self.job else None,
            "dataset": self.trial.dataset,
            "backbone": self.trial.backbone,
            "arm": self.trial.arm.name,
            "seed": self.trial.seed,
            "state": self.state,
            "why": self.why,
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All jobs in the order in which they run: seed by seed, the arms of a pair side by side."""

    recipe: Recipe
    jobs: list[Planned]
    data_dir: Path

    @property
    def to_run(self) -> list[Planned]:
        """The jobs that `run` would do now."""
        return [planned for planned in self.jobs if planned.state in TO_RUN]

    @property
    def counts(self) -> dict[str, int]:
        """Jobs a state, states without jobs left out."""
        return dict(Counter(planned.state for planned in self.jobs))

    @property
    def prepare_commands(self) -> list[str]:
        """The commands that prepare what is missing, each once."""
        missing = [planned for planned in self.jobs if planned.state == "needs data"]
        return list(dict.fromkeys(planned.variant.prepare_command() for planned in missing))


def make_plan(recipe: Recipe, *, data_dir: Path, runs: Runs, only: Sequence[str] = ()) -> Plan:
    """Look at the prepared data and the records and say what each job's state is.

    Raises UsageError for a data set or key that no card has, DataError for a broken record.
    """
    trials = recipe.trials(only=only)
    variants = variants_of(recipe)
    manifests = {name: variant.manifest(data_dir) for name, variant in variants.items()}
    jobs = []
    seen: set[str] = set()
    for trial in trials:
        variant = variants[trial.dataset]
        planned = _planned(trial, variant, manifest=manifests[trial.dataset], runs=runs)
        if planned.job is None or planned.job.id not in seen:
            jobs.append(planned)
        if planned.job is not None:
            seen.add(planned.job.id)
    return Plan(recipe=recipe, jobs=jobs, data_dir=data_dir)


def variants_of(recipe: Recipe) -> Mapping[str, DataVariant]:
    """The data sets that a recipe names, under its settings. Raises UsageError with every fault."""
    variants, faults, hints = {}, [], []
    for name, keys in recipe.datasets.items():
        try:
            variants[name] = resolve(name, keys, where=f"dataset.{name}")
        except UsageError as error:
            faults += [f"{recipe.name}: {line}" for line in error.message.splitlines()]
            hints += [error.hint] if error.hint else []
    if faults:
        raise UsageError("\n".join(faults), hint="\n".join(dict.fromkeys(hints)))
    return variants


def _planned(
    trial: Trial, variant: DataVariant, *, manifest: Manifest | None, runs: Runs
) -> Planned:
    if manifest is None:
        why = variant.prepare_command()
        return Planned(trial=trial, state="needs data", why=why, variant=variant, job=None)
    job = trial.bind(manifest.fingerprint)
    state, why = job_state(job, runs)
    return Planned(trial=trial, state=state, why=why, variant=variant, job=job)


def job_state(job: Job, runs: Runs) -> tuple[State, str]:
    """A job's state from what its folder holds, and the reason in a line."""
    job_id = job.id
    if runs.find(job_id) is not None:
        return "done", "has a record"
    if runs.claimed(job_id):
        return "running", "another process has claimed it"
    failure = runs.failure(job_id)
    if failure is not None:
        return "failed", failure
    if runs.started(job_id):
        return "interrupted", "was started and has no record"
    return "pending", "has no record"


def check_runnable(plan: Plan) -> None:
    """Raise DataError when jobs wait for data and nothing else can be done."""
    if all(planned.state == "needs data" for planned in plan.jobs):
        raise DataError(
            f"{plan.recipe.name}: no data set of this recipe is prepared here",
            hint="prepare first:\n  " + "\n  ".join(plan.prepare_commands),
        )
