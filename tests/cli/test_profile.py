"""`prime-bench profile`: its jobs know the device, done ones are not repeated, and its tables."""

import json
from pathlib import Path

import pytest

from prime_bench.base.machine import cores
from prime_bench.cli.main import exit_code
from prime_bench.findings import ArmCost, CostFindings, InferenceCost
from prime_bench.recipe.events import EpochProgress, ProgressEvent
from prime_bench.schedule import devices
from prime_bench.schedule.devices import Device
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.slots import Slots
from prime_bench.store.record import Environment, ProbeRecord
from prime_bench.store.runs import Runs

RECIPE = """
schema = 1
title = "Costs"
kind = "cost"
seeds = [1]
arms = ["dense", "narrow"]
[arm.narrow]
plugin = "prime"
rank = 2
[dataset.synthetic]
rows = 1000
[training]
batch_size = 64
[probe]
warm_up_steps = 1
inference_steps = 2
training_steps = 2
repetitions = 3
other_batch_sizes = [1]
[backbone.DNN]
hidden_units = [8]
[backbone.FwFM]
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def recipe(tmp_path, capsys):
    """The recipe's file, with its data prepared."""
    (tmp_path / "costs.toml").write_text(RECIPE)
    assert exit_code(["prepare", "synthetic", "--rows", "1000"]) == 0
    capsys.readouterr()
    return "costs.toml"


@pytest.fixture
def card(monkeypatch):
    """The device's name, without the seconds of a process that asks torch."""

    def card(name="A card"):
        here = Device(name="cpu", title=name)
        monkeypatch.setattr(devices, "find_devices", lambda _: [here])

    card()
    return card


def found(request):
    """Findings whose medians and ratios are easy to see; Dense has no memory on FwFM."""
    scale = {"DNN": 1.0, "FwFM": 10.0}[request.job.backbone]
    dense = {"plugin": "dense", "settings": {}, "parameters": 1000, "macs": 100}
    prime = {**request.job.probe["arms"][0], "parameters": 1500, "macs": 125}
    arms = []
    for own, factors, peak in ((dense, (1, 2, 4), 2e6), (prime, (1.5, 2.2, 6.8), 3e6)):
        times = [scale * factor for factor in factors]
        arms.append(
            ArmCost(
                **own,
                inference=[
                    InferenceCost(form="eager", batch_size=size, latencies_ms=times)
                    for size in (64, 1)
                ],
                training_ms=[3 * ms for ms in times],
                peak_memory_bytes=None if scale > 1 else int(peak),
            )
        )
    memory = "not measured" if scale > 1 else "resident growth"
    return CostFindings(clock="wall clock", memory=memory, distinct_rows=100, arms=arms)


def record(request):
    fields = dict.fromkeys(("package_version", "python", "platform", "started"), "x")
    return ProbeRecord(
        job_id=request.job.id,
        job=request.job,
        dataset=request.dataset,
        arm=request.arm,
        data_variant="v",
        data_verified=True,
        findings=found(request),
        environment=Environment(
            **fields,
            commit=None,
            dirty=None,
            versions={"torch": "9.9"},
            device=request.job.probe["device"],
            device_kind="cpu",
            threads=request.threads,
        ),
        wall_s=1.0,
    )


@pytest.fixture
def engine(monkeypatch):
    """An engine that finds what `found` says, or fails; the requests that it was given."""
    requests = []

    def engine(*, fails=()):
        class Engine:
            device_kind = "cpu"

            def __init__(self, *, devices, threads):
                assert [device.name for device in devices] == ["cpu"]
                self.device, self.threads = devices[0], threads

            def slots_for(self, needs, *, n_jobs):
                assert len(needs) == n_jobs
                return Slots(on_each=1, total=1, threads=self.threads)

            def run(self, queue, *, slots, on_event):
                assert slots.total == 1
                while (request := queue.take(wait=False)) is not None:
                    requests.append(request)
                    progress = EpochProgress(epoch=1, rows=1, rows_total=2, rows_per_s=3.0)
                    on_event(ProgressEvent(job_id=request.job.id, progress=progress))
                    if request.job.backbone in fails:
                        outcome = Outcome(request=request, state="failed", why="out of luck")
                    else:
                        Runs(Path(request.runs)).put(record(request))
                        outcome = Outcome(request=request)
                    yield from queue.settle(outcome)

        monkeypatch.setattr("prime_bench.schedule.local.LocalEngine", Engine)
        return requests

    return engine


@pytest.mark.usefixtures("card")
def test_tables_have_medians_and_paired_ratios(recipe, engine, capsys):
    engine()

    assert exit_code(["profile", recipe, "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    # The ratios within repetitions are 1.5, 1.1 and 1.7; that of the medians would be 1.1.
    costs = ["1,500", "1.500", "125", "1.250", "2.2", "1.500", "6.6", "1.500", "3.0", "1.500"]
    assert lines[1] == [
        *("synthetic", "DNN", "dense", "1,000", "1.000", "100", "1.000"),
        *("2", "1.000", "6", "1.000", "2.0", "1.000"),
    ]
    assert lines[2] == ["synthetic", "DNN", "narrow", *costs]
    assert lines[3][-6:] == ["20", "1.000", "60", "1.000", "-", "-"]
    assert ["synthetic", "DNN", "eager", "narrow", "2.2", "x1.50", "2.2", "x1.50"] in lines
    words = out.rpartition("\n\n")[2].splitlines()
    assert words[0] == f"on A card, {cores()} CPU threads, torch 9.9"
    assert words[1].startswith("times by wall clock: medians of 3 repetitions of 2 forward passes")
    assert [line.partition(":")[0] for line in words[2:]] == ["memory", "memory"]
    assert all(line.startswith("done: ") for line in err.splitlines())


@pytest.mark.usefixtures("card")
def test_json_has_every_repetition(recipe, engine, capsys):
    engine()

    assert exit_code(["profile", recipe, "--json", "--only", "backbone=DNN"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["schema"], content["recipe"]) == (1, "costs")
    (measured,) = content["costs"]
    assert (measured["backbone"], measured["device"]) == ("DNN", "A card")
    dense, narrow = measured["arms"]
    assert (dense["arm"], narrow["arm"], narrow["plugin"]) == ("dense", "narrow", "prime")
    assert narrow["training"] == {
        "ms": pytest.approx([4.5, 6.6, 20.4]),
        "median_ms": pytest.approx(6.6),
        "ratio": pytest.approx(1.5),
    }
    assert [cost["batch_size"] for cost in narrow["inference"]] == [64, 1]
    assert narrow["memory_ratio"] == 1.5


def test_a_measurement_is_done_once_a_device(recipe, engine, card, capsys):
    requests = engine()

    assert exit_code(["profile", recipe]) == 0
    first = capsys.readouterr().out
    assert exit_code(["profile", recipe]) == 0
    assert capsys.readouterr().out == first
    assert [request.job.backbone for request in requests] == ["DNN", "FwFM"]
    assert {request.job.probe["device"] for request in requests} == {"A card"}
    assert {request.threads for request in requests} == {cores()}

    card("Another card")
    assert exit_code(["profile", recipe]) == 0
    assert "on Another card" in capsys.readouterr().out
    assert len({request.job.id for request in requests}) == 4

    requests.clear()
    assert exit_code(["profile", recipe, "--again", "--only", "backbone=DNN"]) == 0
    assert [request.job.backbone for request in requests] == ["DNN"]


@pytest.mark.usefixtures("card")
def test_compiling_is_another_measurement(recipe, engine):
    requests = engine()

    assert exit_code(["profile", recipe]) == 0
    assert exit_code(["profile", recipe, "--compile"]) == 0
    assert [request.job.training.compile for request in requests] == [False] * 2 + [True] * 2


@pytest.mark.usefixtures("card")
def test_a_failure_is_1_and_the_rest_is_shown(recipe, engine, capsys):
    engine(fails=("DNN",))

    assert exit_code(["profile", recipe]) == 1
    out, err = capsys.readouterr()
    assert "FwFM" in out
    assert "DNN" not in out
    assert "\nfailed: synthetic DNN: out of luck (runs/" in err


@pytest.mark.usefixtures("card")
def test_a_dry_run_prints_the_plan_and_measures_nothing(recipe, engine, capsys):
    requests = engine()

    assert exit_code(["profile", recipe, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "dense+narrow" in out
    assert "2 jobs: 2 pending" in out
    assert exit_code(["profile", recipe, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"pending": 2}
    assert requests == []


@pytest.mark.usefixtures("card")
def test_a_recipe_of_another_kind_is_2(capsys):
    assert exit_code(["profile", "quick"]) == 2
    assert "a recipe of the kind `train`" in capsys.readouterr().err


@pytest.mark.usefixtures("card")
def test_without_data_it_is_3(tmp_path, capsys):
    (tmp_path / "costs.toml").write_text(RECIPE)

    assert exit_code(["profile", "costs.toml"]) == 3
    assert "prime-bench prepare synthetic --rows 1000" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_other_verbs_send_a_recipe_of_costs_here(recipe, verb, capsys):
    assert exit_code([verb, recipe]) == 2
    assert "hint: measure it with `prime-bench profile`" in capsys.readouterr().err


def test_profile_end_to_end_on_this_machine(recipe, capsys):
    only = ["--device", "cpu", "--only", "backbone=FwFM", "--only", "arm=dense", "--json"]

    assert exit_code(["profile", recipe, *only]) == 0
    (measured,) = json.loads(capsys.readouterr().out)["costs"]
    assert measured["clock"] == "wall clock"
    (dense,) = measured["arms"]
    assert dense["training"]["ratio"] == 1.0
    assert min(dense["training"]["ms"]) > 0
