"""What a function of `api` is given reaches the layer below, in its unit. The values are no
defaults, so that none can be left out or stand in another's place.
"""

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prime_bench import api
from prime_bench.schedule import devices
from prime_bench.schedule.devices import Device

ENGINE = SimpleNamespace(
    device_kind="cuda",
    device=Device(name="cuda:1", title="A card"),
    slots_for=lambda _needs, *, n_jobs: f"slots for {n_jobs} jobs",
)
HERE = [Device(name=name, title=f"title of {name}") for name in ("cuda:1", "cuda:2")]
FOLDERS = {"data_dir": "D", "runs_dir": "R"}
NARROW = {"only": {"seed": 2021}, "changes": {"training.max_epochs": 7}}
NARROWED = {"only": ["seed=2021"], "changes": ["training.max_epochs=7"]}
PLANNED = {
    "recipe.training.max_epochs": 7,
    "only": ["seed=2021"],
    "data_dir": Path("D"),
    "runs.folder": Path("R"),
}
MAKE_PLAN = "prime_bench.api.execution.make_plan"
RUN_PLAN = "prime_bench.api.execution.run_plan"
OPEN = "prime_bench.api.execution.open_engine"
REQUEST = "prime_bench.report.request.ReportRequest"
PUBLISH = "prime_bench.report.publish.publish"
TARGET = "prime_bench.report.publish.target_of"
READ = "prime_bench.report.request.read_source"
SEVERAL = {"recipe": "quick", "runs_dir": [Path("R"), Path("b.zip")]}
TABLES = "prime_bench.data.manifest.find_tables"
RAW = "prime_bench.data.synthetic.raw_files.write_raw"


class Reached(Exception):
    """The function below was called."""


def plan(**keys: Any) -> Any:
    return api.plan("quick", engine=ENGINE, data_dir="none", runs_dir="none", **keys)


def run_a_plan(**keys: Any) -> Any:
    return api.run(plan(), engine=ENGINE, **keys)


def estimate(**keys: Any) -> Any:
    return api.estimate(plan(), **keys)


@functools.cache
def study(*, costs: bool) -> Any:
    """Of the paper's study the recipes that measure costs, or the others, one seed of each."""
    whole = api.load_study("paper")
    recipes = [
        replace(item, only=["seed=2021"])
        for item in whole.recipes
        if (item.recipe.kind == "cost") == costs
    ]
    return replace(whole, recipes=recipes)


def plan_trained(**keys: Any) -> Any:
    return api.plan_study(study(costs=False), **keys)


def plan_costs(**keys: Any) -> Any:
    return api.plan_study(study(costs=True), **keys)


def short(made: Any) -> Any:
    """A study's plan with the jobs of its first recipe alone: planning takes a second."""
    return replace(made, recipes=made.recipes[:1])


def estimate_trained(**keys: Any) -> Any:
    made = api.plan_study(
        short(study(costs=False)), engine=ENGINE, data_dir="none", runs_dir="none"
    )
    return api.estimate_study(made, **keys)


def estimate_costs(**keys: Any) -> Any:
    made = api.plan_study(
        short(study(costs=True)), device="cuda:1", data_dir="none", runs_dir="none"
    )
    return api.estimate_study(made, **keys)


def prepare_study(**keys: Any) -> Any:
    return api.prepare_study(study(costs=False), **keys)


def report_study(**keys: Any) -> Any:
    return api.report_study(study(costs=False), **keys)


def one_job(**keys: Any) -> Any:
    (Path("R") / "0123456789abcdef").mkdir(parents=True)
    return api.job("0123", **keys)


def clean(**keys: Any) -> Any:
    return api.clean([SimpleNamespace(job_id=None)], **keys)  # type: ignore[list-item]


CASES: list[tuple[Callable[..., Any], dict[str, Any], str, dict[str, Any]]] = [
    (
        api.plan,
        {"recipe": "quick", "engine": ENGINE, "retrain_stale": True, **NARROW, **FOLDERS},
        MAKE_PLAN,
        {**PLANNED, "retrain_stale": True, "accept_source": False, "device_kind": "cuda"},
    ),
    (
        api.plan,
        {"recipe": "quick", "device": "cuda:1", "accept_source": True},
        MAKE_PLAN,
        {"retrain_stale": False, "accept_source": True, "device_kind": "cuda"},
    ),
    (
        api.status,
        {"recipe": "quick", "device": "cuda:1", "accept_source": True, **NARROW, **FOLDERS},
        MAKE_PLAN,
        {**PLANNED, "accept_source": True, "device_kind": "cuda", "retrain_stale": False},
    ),
    (
        api.cost_plan,
        {
            "recipe": "cost",
            "device": "cuda:1",
            "only": {"seed": 2021},
            "changes": {"probe.repetitions": 7},
            **FOLDERS,
        },
        MAKE_PLAN,
        {
            "recipe.probe.repetitions": 7,
            "recipe.probe.device": "title of cuda:1",
            "only": ["seed=2021"],
            "data_dir": Path("D"),
            "runs.folder": Path("R"),
            "device_kind": "cuda",
        },
    ),
    (
        api.cost_plan,
        {"recipe": "cost", "device": "cuda:1", "again": True},
        "prime_bench.schedule.plan.measured_again",
        {"plan.recipe.name": "cost"},
    ),
    (
        api.run,
        {"recipe": "quick", "engine": ENGINE, "retrain_stale": True, **NARROW, **FOLDERS},
        MAKE_PLAN,
        {**PLANNED, "retrain_stale": True, "accept_source": False, "device_kind": "cuda"},
    ),
    (
        api.run,
        {"recipe": "quick", "engine": ENGINE, "accept_source": True},
        MAKE_PLAN,
        {"retrain_stale": False, "accept_source": True, "runs.folder": Path("runs")},
    ),
    (
        api.run,
        {
            "recipe": "quick",
            "engine": "ray",
            "device": "cuda:1",
            "slots": 3,
            "threads": 5,
            "job_timeout_s": 90,
            "address": "h:1",
        },
        OPEN,
        {
            "name": "ray",
            "device": "cuda:1",
            "slots": 3,
            "threads": 5,
            "job_timeout_s": 90,
            "address": "h:1",
        },
    ),
    (
        run_a_plan,
        {"max_hours": 1.5, "retries": 2, "runs_dir": "R"},
        RUN_PLAN,
        {
            "limits.max_s": 5400,
            "limits.retries": 2,
            "limits.fail_fast": False,
            "keep_predictions": False,
            "runs.folder": Path("R"),
        },
    ),
    (
        lambda **keys: api.run(plan(), **keys),
        {"device": "cuda:1", "slots": 3},
        OPEN,
        {"name": "local", "device": "cuda:1", "slots": 3},
    ),
    (
        lambda **keys: api.run(api.cost_plan("cost", data_dir="none", runs_dir="none"), **keys),
        {"device": "cuda:2"},
        "prime_bench.api.execution.measuring_engine",
        {"device": "cuda:2"},
    ),
    (run_a_plan, {"max_hours": 0}, RUN_PLAN, {"limits.max_s": 0, "runs.folder": Path("none")}),
    (run_a_plan, {"fail_fast": True}, RUN_PLAN, {"limits.fail_fast": True, "limits.max_s": None}),
    (run_a_plan, {"keep_predictions": True}, RUN_PLAN, {"keep_predictions": True}),
    (
        estimate,
        {"device": "cuda:1", "slots": 3, "threads": 5},
        OPEN,
        {"device": "cuda:1", "slots": 3, "threads": 5},
    ),
    (
        estimate,
        {"engine": ENGINE, "runs_dir": "R"},
        "prime_bench.api.execution.estimates_of",
        {"device.title": "A card", "slots": "slots for 0 jobs", "folder": Path("R")},
    ),
    (
        estimate,
        {"engine": ENGINE},
        "prime_bench.api.execution.estimates_of",
        {"folder": Path("none")},
    ),
    (
        estimate,
        {"engine": ENGINE, "measure": True},
        "prime_bench.schedule.measure.measure",
        {"slots": "slots for 0 jobs", "devices": HERE},
    ),
    (
        api.report,
        {
            "recipe": "quick",
            "tables": ["cost"],
            "level": "full",
            "mixed": True,
            "metrics": ["gauc"],
            **NARROW,
        },
        REQUEST,
        {
            **NARROWED,
            "recipe": "quick",
            "tables": ["cost"],
            "level": "full",
            "mixed": True,
            "accept_source": False,
            "metrics": ("gauc",),
        },
    ),
    (api.report, {"accept_source": True}, REQUEST, {"accept_source": True, "mixed": False}),
    (
        api.records,
        {"recipe": "quick", "accept_source": True, **NARROW},
        REQUEST,
        {**NARROWED, "recipe": "quick", "accept_source": True},
    ),
    (
        api.histories,
        {"recipe": "quick", "accept_source": True, **NARROW},
        REQUEST,
        {**NARROWED, "recipe": "quick", "accept_source": True},
    ),
    (
        api.pack,
        {"recipe": "quick", "output": "b.zip", "accept_source": True, **NARROW},
        "prime_bench.report.request.pack",
        {**NARROWED, "recipe": "quick", "output": Path("b.zip"), "accept_source": True},
    ),
    (
        api.publish,
        {"what": "quick", "to": "P", "changes": {"seeds": [1]}, "by": "A", "message": "M"}
        | {"anonymous": True, "runs_dir": "R"},
        PUBLISH,
        {
            "what": "quick",
            "changes": ["seeds=[1]"],
            "by": "A",
            "message": "M",
            "anonymous": True,
            "replace": False,
            "runs.folder": Path("R"),
        },
    ),
    (api.publish, {"what": "q", "to": "P", "replace": True}, PUBLISH, {"replace": True}),
    (api.publish, {"what": "q", "to": "P", "private": True}, TARGET, {"private": True}),
    (
        api.leftovers,
        {"unfinished": True, "runs_dir": "R"},
        "prime_bench.store.leftovers.leftovers",
        {"unfinished": True, "runs.folder": Path("R")},
    ),
    (clean, {"runs_dir": "R"}, "prime_bench.store.leftovers.remove", {"runs.folder": Path("R")}),
    (
        plan_trained,
        {"engine": ENGINE, "retrain_stale": True, **FOLDERS},
        MAKE_PLAN,
        {
            "only": ["seed=2021"],
            "data_dir": Path("D"),
            "runs.folder": Path("R"),
            "device_kind": "cuda",
            "retrain_stale": True,
        },
    ),
    (
        plan_trained,
        {"device": "cuda:1"},
        MAKE_PLAN,
        {"device_kind": "cuda", "retrain_stale": False},
    ),
    (
        plan_costs,
        {"device": "cuda:1", "engine": ENGINE, **FOLDERS},
        MAKE_PLAN,
        {
            "recipe.probe.device": "title of cuda:1",
            "only": ["seed=2021"],
            "data_dir": Path("D"),
            "runs.folder": Path("R"),
        },
    ),
    (
        estimate_trained,
        {"engine": ENGINE, "runs_dir": "R"},
        "prime_bench.api.execution.estimates_of",
        {"device.title": "A card", "folder": Path("R")},
    ),
    (
        estimate_trained,
        {"engine": ENGINE, "measure": True},
        "prime_bench.schedule.measure.measure",
        {"devices": HERE},
    ),
    (estimate_trained, {"device": "cuda:1"}, OPEN, {"device": "cuda:1", "slots": "auto"}),
    (
        estimate_costs,
        {"device": "cuda:2", "engine": ENGINE},
        "prime_bench.api.execution.measuring_engine",
        {"device": "cuda:2"},
    ),
    (
        prepare_study,
        {"sources": {"avazu": "a"}, "allow_unverified": True, "data_dir": "D"},
        "prime_bench.data.prepare.prepare",
        {
            "spec.name": "avazu",
            "source": [Path("a")],
            "allow_unverified": True,
            "keep_download": False,
            "data_dir": Path("D"),
        },
    ),
    (
        prepare_study,
        {"keep_download": True},
        "prime_bench.data.prepare.prepare",
        {"source": None, "allow_unverified": False, "keep_download": True},
    ),
    (report_study, {"runs_dir": "R"}, READ, {"runs_dir": Path("R")}),
    (api.report, {"recipe": "quick", "runs_dir": ["R", "b.zip"]}, READ, SEVERAL),
    (api.records, {"recipe": "quick", "runs_dir": ["R", "b.zip"]}, READ, SEVERAL),
    (api.histories, {"recipe": "quick", "runs_dir": ["R", "b.zip"]}, READ, SEVERAL),
    (
        api.pack,
        {"recipe": "quick", "output": "b.zip", "runs_dir": ["R", "b.zip"]},
        "prime_bench.report.sources.read_sources",
        {"places": [Path("R"), Path("b.zip")]},
    ),
    (
        api.compare,
        {"left": "quick", "right": "sweep", **FOLDERS},
        MAKE_PLAN,
        {"recipe.name": "quick", "data_dir": Path("D"), "runs.folder": Path("R")},
    ),
    (
        api.compare,
        {"left": "dense", "right": "prime", "runs_dir": "R"},
        "prime_bench.report.sources.read_sources",
        {"places": [Path("R")]},
    ),
    (
        one_job,
        FOLDERS,
        "prime_bench.schedule.details.job_details",
        {"job_id": "0123456789abcdef", "data_dir": Path("D"), "runs.folder": Path("R")},
    ),
    (
        api.verify,
        {"what": "quick", **NARROW, **FOLDERS},
        MAKE_PLAN,
        PLANNED,
    ),
    (api.predict, {"what": "quick", **NARROW, **FOLDERS}, MAKE_PLAN, PLANNED),
    (
        api.export_fuxictr,
        {"table": "avazu", "to": "O", "data_dir": "D"},
        TABLES,
        {"table": "avazu", "data_dir": Path("D")},
    ),
    (
        api.backbone_facts,
        {"name": "DNN", "table": "avazu", "data_dir": "D"},
        TABLES,
        {"table": "avazu", "data_dir": Path("D")},
    ),
    (
        api.table_facts,
        {"table": "avazu", "data_dir": "D"},
        TABLES,
        {"table": "avazu", "data_dir": Path("D")},
    ),
    (
        api.listing,
        {"kind": "datasets", "data_dir": "D"},
        "prime_bench.data.manifest.prepared_tables",
        {"data_dir": Path("D")},
    ),
    (
        api.doctor,
        FOLDERS,
        "prime_bench.schedule.doctor.examine",
        {k: Path(v) for k, v in FOLDERS.items()},
    ),
    (
        api.write_raw,
        {"folder": "O", "raw_format": "avazu", "settings": {"rows": 300}},
        RAW,
        {"folder": Path("O"), "raw_format": "avazu", "settings.rows": 300},
    ),
    (
        api.write_raw,
        {"folder": "O", "settings": {"shape": "criteo"}},
        RAW,
        {"raw_format": "criteo", "settings.shape": "criteo"},
    ),
    (
        api.prepare,
        {"dataset": "avazu", "settings": {"min_count": 7}, "source": "a", "data_dir": "D"}
        | {"allow_unverified": True},
        "prime_bench.data.prepare.prepare",
        {
            "spec.settings.min_count": 7,
            "source": [Path("a")],
            "data_dir": Path("D"),
            "allow_unverified": True,
            "keep_download": False,
        },
    ),
    (
        api.prepare,
        {"dataset": "avazu", "keep_download": True},
        "prime_bench.data.prepare.prepare",
        {"source": None, "allow_unverified": False, "keep_download": True},
    ),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "find_devices", lambda _names: HERE)


@pytest.fixture
def stopped_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Lets a function raise Reached; returns the arguments that it will have been given."""

    def put(place: str) -> dict[str, Any]:
        module, _, name = place.rpartition(".")
        real = getattr(importlib.import_module(module), name)
        found: dict[str, Any] = {}

        def stub(*given: Any, **named: Any) -> None:
            bound = inspect.signature(real).bind(*given, **named)
            bound.apply_defaults()
            found.update(bound.arguments)
            raise Reached

        monkeypatch.setattr(place, stub)
        return found

    return put


@pytest.mark.parametrize(("function", "given", "below", "expected"), CASES)
def test_an_argument_reaches_the_layer_below(
    stopped_at: Callable[[str], dict[str, Any]],
    function: Callable[..., Any],
    given: dict[str, Any],
    below: str,
    expected: dict[str, Any],
) -> None:
    arguments = stopped_at(below)
    with pytest.raises(Reached):
        function(**given)

    found = {
        key: functools.reduce(getattr, key.split(".")[1:], arguments[key.split(".")[0]])
        for key in expected
    }
    assert found == expected


def test_flags_of_a_recipe_are_for_the_data_sets_that_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated data have no digests, and what has a source is not downloaded."""
    text = 'schema = 1\ntitle = "T"\nseeds = [1]\narms = ["dense"]\n[backbone.DNN]\n'
    for name in ("synthetic", "avazu", "criteo"):
        text += f"[dataset.{name}]\n"
    Path("three.toml").write_text(text, encoding="utf-8")
    given: dict[str, dict[str, Any]] = {}

    def prepare(spec: Any, **named: Any) -> api.Preparation:
        given[spec.name] = named
        return api.Preparation(
            dataset=spec.name,
            folder=tmp_path,
            manifest=None,  # type: ignore[arg-type]
            made=True,
        )

    monkeypatch.setattr("prime_bench.api.tables.prepare", prepare)
    api.prepare_recipe(
        "three.toml",
        sources={"avazu": "a"},
        allow_unverified=True,
        keep_download=True,
        data_dir="D",
    )
    flags = ("source", "allow_unverified", "keep_download", "data_dir")
    assert {name: tuple(named[flag] for flag in flags) for name, named in given.items()} == {
        "synthetic": (None, False, False, "D"),
        "avazu": (Path("a"), True, False, "D"),
        "criteo": (None, True, True, "D"),
    }


def test_weights_are_read_on_the_device_and_with_the_tables_that_were_named(
    plain_record: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from prime_bench.store.runs import PREDICTIONS, Runs
    from prime_bench.training import recompute

    runs = Runs(Path("R"))
    specs = list(api.load_recipe("quick").job_specs())[:2]
    ids = []
    for job_spec in specs:
        record = plain_record(job_spec.bind("f" * 64), dataset=job_spec.dataset)
        runs.put(record)
        ids.append(record.job_id)
    (runs.path(ids[0]) / PREDICTIONS).write_bytes(b"")
    reached: list[tuple[str, Any, dict[str, Any]]] = []

    def note(name: str) -> Callable[..., list[Any]]:
        def called(records: Any, given: Runs, **named: Any) -> list[Any]:
            jobs = sorted(record.job_id for record in records)
            assert given.folder == Path("R")
            reached.append((name, jobs, named))
            return []

        return called

    for name in ("write_predictions", "check_metrics", "check_predictions"):
        monkeypatch.setattr(recompute, name, note(name))

    def watch(_: object) -> None: ...

    api.predict(ids[1], device="cuda:1", on_progress=watch, **FOLDERS)
    api.verify(device="cuda:1", recompute=True, **FOLDERS)
    api.verify(**FOLDERS)

    data = {"data_dir": Path("D")}
    assert reached == [
        ("write_predictions", [ids[1]], {**data, "device": "cuda:1", "on_progress": watch}),
        ("check_predictions", [ids[0]], data),
        ("check_metrics", sorted(ids), {**data, "device": "cuda:1"}),
        ("check_predictions", [ids[0]], data),
    ]


def test_a_report_is_compared_as_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from prime_bench.report import view
    from prime_bench.report.request import ReportRequest

    asked: list[dict[str, Any]] = []

    def compared(made: Any, **named: Any) -> tuple[Any, None]:
        asked.append(named)
        return made, None

    monkeypatch.setattr(view, "compared_with", compared)
    monkeypatch.setattr(ReportRequest, "report", lambda *_: ("the report", "its records"))
    monkeypatch.setattr(ReportRequest, "paper_report", lambda *_: "the paper's report")

    found = api.report("quick", against="bars", check="n.toml", allow_missing=True, arms=["prime"])
    papers = api.report(against="paper")
    of_recipe = api.report("quick", against="paper")

    assert asked[0] == {"against": "bars", "check": Path("n.toml"), "allow_missing": True}
    assert asked[1] == {"against": "paper", "check": None, "allow_missing": False}
    assert (found.report, found._records, found._arms) == ("the report", "its records", ("prime",))
    # Without a recipe each of the paper's tables is made from its own.
    assert (papers.report, papers._records) == ("the paper's report", None)
    assert of_recipe.report == "the report"
