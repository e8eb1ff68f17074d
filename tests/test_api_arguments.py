"""What a function of `api` is given reaches the layer below, in its unit. The values are no
defaults, so that none can be left out or stand in another's place.
"""

import functools
import importlib
import inspect
from collections.abc import Callable
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
RAW = "prime_bench.data.synthetic.raw_files.write_raw"


class Reached(Exception):
    """The function below was called."""


def plan(**keys: Any) -> Any:
    return api.plan("quick", engine=ENGINE, data_dir="none", runs_dir="none", **keys)


def run_a_plan(**keys: Any) -> Any:
    return api.run(plan(), engine=ENGINE, **keys)


def estimate(**keys: Any) -> Any:
    return api.estimate(plan(), **keys)


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
