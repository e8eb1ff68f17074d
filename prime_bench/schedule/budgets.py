"""What the arms of a plan add to its backbones, where the data are prepared."""

from prime_bench.data.manifest import SCHEMA_NAME
from prime_bench.data.schema import Schema
from prime_bench.recipe.budget import Budget, budget_of
from prime_bench.schedule.plan import Plan

Added = dict[str, dict[str, list[Budget]]]


def added_budgets(plan: Plan) -> Added:
    """Data set -> arm -> a budget for each backbone; Dense, which adds nothing, is left out."""
    shapes = {}
    added: Added = {}
    seen = set()
    for planned in plan.jobs:
        trial = planned.trial
        file = planned.variant.folder(plan.data_dir) / SCHEMA_NAME
        key = (trial.dataset, trial.arm.name, trial.backbone)
        if planned.job is None or trial.arm.plugin == "dense" or key in seen or not file.is_file():
            continue
        seen.add(key)
        if trial.dataset not in shapes:
            shapes[trial.dataset] = Schema.model_validate_json(file.read_bytes()).shape
        budget = budget_of(
            trial.backbone,
            trial.backbone_settings,
            trial.arm.plugin,
            trial.arm.settings,
            shape=shapes[trial.dataset],
        )
        added.setdefault(trial.dataset, {}).setdefault(trial.arm.name, []).append(budget)
    return added
