"""A recipe of costs on one device: where it was measured is part of a measurement's identity."""

from dataclasses import replace

from prime_bench.base.errors import UsageError
from prime_bench.recipe.expand import Recipe
from prime_bench.schedule.plan import Plan
from prime_bench.settings.probes import CostOnDevice, CostSettings


def on_device(recipe: Recipe, *, device: str, threads: int) -> Recipe:
    """The recipe with the place where it measures: a device by its vendor's name, and CPU threads.

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
    """The plan with its done jobs to be done again; their records are put aside."""
    why = "is measured again"
    jobs = [
        replace(planned, state="stale", why=why) if planned.state == "done" else planned
        for planned in plan.jobs
    ]
    return replace(plan, jobs=jobs, retrain_stale=True)
