"""Parameters and multiply-accumulates of a plan's jobs, where their data are prepared."""

from prime_bench.data.manifest import SCHEMA_NAME
from prime_bench.data.schema import Schema
from prime_bench.recipe.budget import Budget, budget_of
from prime_bench.schedule.plan import Plan, Planned
from prime_bench.settings.shape import TableShape

Cell = tuple[str, str, str]
"""Data set, arm, backbone."""
Added = dict[str, dict[str, dict[str, Budget]]]


def cell_of(planned: Planned) -> Cell:
    """What a job's budget depends on, within one plan."""
    trial = planned.trial
    return trial.dataset, trial.arm.name, trial.backbone


def budgets_of(plan: Plan) -> dict[Cell, Budget]:
    """The budget of every cell whose data are prepared; jobs that measure share their arm's."""
    shapes: dict[str, TableShape] = {}
    budgets: dict[Cell, Budget] = {}
    for planned in plan.jobs:
        cell, trial = cell_of(planned), planned.trial
        file = planned.variant.folder(plan.data_dir) / SCHEMA_NAME
        if planned.job is None or cell in budgets or not file.exists():
            continue
        if trial.dataset not in shapes:
            shapes[trial.dataset] = Schema.read(file).shape
        budgets[cell] = budget_of(
            trial.backbone,
            trial.backbone_settings,
            trial.arm.plugin,
            trial.arm.settings,
            shape=shapes[trial.dataset],
        )
    return budgets


def added_budgets(plan: Plan) -> Added:
    """Data set -> arm -> backbone -> budget; Dense, which adds nothing, is left out."""
    plugins = {planned.trial.arm.name: planned.trial.arm.plugin for planned in plan.jobs}
    added: Added = {}
    for (dataset, arm, backbone), budget in budgets_of(plan).items():
        if plugins[arm] != "dense":
            added.setdefault(dataset, {}).setdefault(arm, {})[backbone] = budget
    return added
