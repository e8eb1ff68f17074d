"""The Python interface: prepare data, plan and run a recipe, read its records, report on them.

The command line calls these functions, so a notebook does all that it does:

    from prime_bench import api

    api.prepare("synthetic", settings={"rows": 20_000})
    api.run("quick", changes={"training.max_epochs": 2})
    api.records("quick", changes={"training.max_epochs": 2})   # a polars frame, a row a run
    api.report("quick", changes={"training.max_epochs": 2})    # tables, shown by a notebook

Arguments that several functions share:

`recipe`
    The path of a recipe's file or the name of a bundled one (`quick`, `main13`, ...). `plan` and
    `run` also take a `Recipe` that `load_recipe` has read.
`only`
    Which data sets, backbones, arms and seeds of the recipe: `{"backbone": "DNN", "seed": [1, 2]}`,
    or as the command line has it, `["backbone=DNN", "seed=1", "seed=2"]`.
`changes`
    Keys of the recipe to override: `{"training.max_epochs": 1}`, or `["training.max_epochs=1"]` as
    with `--set`. They make other jobs, so give the same ones to `plan`, `run`, `records`, `report`.
`data_dir`, `runs_dir`
    Folders of the prepared tables and of the records; `data` and `runs` below the working folder.
`log`
    Called with one-line messages for the user. Nothing is printed unless `log=print`.

Errors that the user can correct are subclasses of `prime_bench.base.errors.UserError`, each with a
`message` and a `hint`: `UsageError` (wrong arguments, a faulty recipe), `DataError` (missing or
unfit data or records) and `EnvironmentFault` (disk, permission, device, network). A job that fails
raises nothing: `RunSummary.failed` has it.
"""

from prime_bench.api.catalogue import (
    ArmFacts,
    BackboneFacts,
    KeyFacts,
    PreparedTableFacts,
    arm_facts,
    backbone_facts,
    listing,
    names,
    table_facts,
)
from prime_bench.api.comparisons import TwoSides, compare, diff
from prime_bench.api.execution import (
    cost_plan,
    costs,
    estimate,
    job,
    jobs,
    plan,
    run,
    status,
)
from prime_bench.api.finished import Verification, predict, predict_rows, verify
from prime_bench.api.frames import histories, predictions, records
from prime_bench.api.machine import check, clean, doctor, leftovers
from prime_bench.api.recipes import load_recipe
from prime_bench.api.reports import browse, pack, publish, report
from prime_bench.api.studies import (
    StudyEstimate,
    StudyPlan,
    estimate_study,
    load_study,
    plan_study,
    prepare_study,
    report_study,
)
from prime_bench.api.tables import (
    Preparation,
    RawFiles,
    draft_card,
    export_fuxictr,
    prepare,
    prepare_recipe,
    write_raw,
)
from prime_bench.schedule.engine import Engine
from prime_bench.schedule.estimate import PlanEstimate
from prime_bench.schedule.plan import RecipeDiff
from prime_bench.schedule.run import RunSummary, open_engine
from prime_bench.store.costs import MeasuredCosts
from prime_bench.store.predictions import Prediction, PredictionProgress, RowPredictions

__all__ = [
    "ArmFacts",
    "BackboneFacts",
    "Engine",
    "KeyFacts",
    "MeasuredCosts",
    "PlanEstimate",
    "Prediction",
    "PredictionProgress",
    "Preparation",
    "PreparedTableFacts",
    "RawFiles",
    "RecipeDiff",
    "RowPredictions",
    "RunSummary",
    "StudyEstimate",
    "StudyPlan",
    "TwoSides",
    "Verification",
    "arm_facts",
    "backbone_facts",
    "browse",
    "check",
    "clean",
    "compare",
    "cost_plan",
    "costs",
    "diff",
    "doctor",
    "draft_card",
    "estimate",
    "estimate_study",
    "export_fuxictr",
    "histories",
    "job",
    "jobs",
    "leftovers",
    "listing",
    "load_recipe",
    "load_study",
    "names",
    "open_engine",
    "pack",
    "plan",
    "plan_study",
    "predict",
    "predict_rows",
    "predictions",
    "prepare",
    "prepare_recipe",
    "prepare_study",
    "publish",
    "records",
    "report",
    "report_study",
    "run",
    "status",
    "table_facts",
    "verify",
    "write_raw",
]
