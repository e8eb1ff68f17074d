"""`prime-bench profile`: its jobs know the device, done ones are not repeated, and its tables."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from prime_bench.base.machine import cores
from prime_bench.cli.costs import tables
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
training_steps = 4
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
                    InferenceCost(
                        form="eager", batch_size=size, latencies_ms=[ms / by for ms in times]
                    )
                    for size, by in ((64, 1), (1, 8))
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
    assert "inference, ms a batch and ratio to Dense, by rows of a batch:" in out.splitlines()
    assert ["dataset", "backbone", "form", "arm", "1", "64"] in lines
    assert ["synthetic", "DNN", "eager", "dense", "0.25", "2"] in lines
    assert ["synthetic", "DNN", "eager", "narrow", "0.275", "x1.50", "2.2", "x1.50"] in lines
    assert out.rpartition("\n\n")[2].splitlines() == [
        f"on A card, {cores()} CPU threads, torch 9.9",
        "times by wall clock: medians of 3 repetitions of 2 forward passes (evaluation mode) and 4 "
        "training steps (forward, backward, update) after 1 to warm up, batches of 64 rows; the "
        "arms take turns, and ratios are paired within a repetition",
        "memory: by how much the resident memory of a process of its own grew at most, pages of "
        "libraries included",
        "memory: not measured on a CPU with a compiler at work, or on a system that does not "
        "report it",
    ]
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


def _on_a_gpu(own, factor):
    """Costs of graphs and of eager steps, of which no two are alike."""
    return ArmCost(
        **own,
        settings={},
        inference=[
            InferenceCost(form=form, batch_size=size, latencies_ms=[factor * ms] * 3)
            for form, size, ms in (("eager", 64, 7), ("graph", 64, 2), ("graph", 512, 16))
        ],
        training_ms=[factor * 5] * 3,
        eager_training_ms=[factor * 11] * 3,
        peak_memory_bytes=None,
    )


def test_on_a_gpu_the_tables_are_of_graphs_and_words_tell_of_eager_steps():
    dense = _on_a_gpu({"plugin": "dense", "parameters": 1000, "macs": 10}, 1)
    prime = _on_a_gpu({"plugin": "prime", "parameters": 2000, "macs": 40}, 10)
    prime.inference.pop()
    where = SimpleNamespace(device="A card", threads=3, versions={})
    steps = {"repetitions": 3, "inference_steps": 2, "training_steps": 4, "warm_up_steps": 1}
    job = SimpleNamespace(backbone="DNN", probe=steps, training=SimpleNamespace(batch_size=64))
    item = SimpleNamespace(
        record=SimpleNamespace(dataset="avazu", job=job, environment=where),
        findings=SimpleNamespace(
            arms=[dense, prime], clock="CUDA events", memory="max_memory_allocated"
        ),
        arm_name=lambda arm: arm.plugin,
    )

    lines = tables([item]).splitlines()

    assert lines[:3] == [
        "dataset  backbone  arm    parameters      x  MACs a row      x  inference ms       x  "
        "training ms       x  memory MB  x",
        "avazu    DNN       dense       1,000  1.000          10  1.000             2   1.000  "
        "          5   1.000          -  -",
        "avazu    DNN       prime       2,000  2.000          40  4.000            20  10.000  "
        "         50  10.000          -  -",
    ]
    assert lines[6:11] == [
        "dataset  backbone  form   arm           64  512",
        "avazu    DNN       eager  dense          7    -",
        "avazu    DNN       eager  prime  70 x10.00    -",
        "avazu    DNN       graph  dense          2   16",
        "avazu    DNN       graph  prime  20 x10.00    -",
    ]
    eager = "on A card inference and training are CUDA graphs; a training step without is "
    assert lines[12:15] == [
        f"{eager}11 ms for dense on DNN, inference 7 ms",
        f"{eager}110 ms for prime on DNN, inference 70 ms",
        "on A card, 3 CPU threads, torch ?",
    ]
    assert lines[15].startswith("times by CUDA events: medians of 3 repetitions of 2 forward")
    assert lines[16:] == ["memory: the most that torch had allocated on the device"]
    # A single way to measure inference needs no table of its own.
    for arm in (dense, prime):
        del arm.inference[1:]
    assert "by rows of a batch" not in tables([item])


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
