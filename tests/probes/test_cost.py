"""The measurement of cost: what is timed, on which rows, and that its record comes back whole."""

import io
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.contract.counter import count
from prime_bench.data.table import PreparedTable
from prime_bench.findings import CostFindings
from prime_bench.probes import cost, memory
from prime_bench.probes.arms import Pool, forms_on, forward_of, job_of, trainer_of
from prime_bench.probes.cost import phases_of
from prime_bench.recipe.job import Job
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.settings.probes import CostArm, CostProbe
from prime_bench.settings.training import TrainSpec
from prime_bench.store.runs import Runs
from prime_bench.training.batches import row_order
from prime_bench.training.device import device_name
from prime_bench.training.loop import TrainingSplits, train
from prime_bench.training.optimizer import Penalty
from prime_bench.worker import run_job

CPU = torch.device("cpu")
SIZES = (9, 14, 6)
ROWS = {"train": 150, "valid": 20, "test": 20}


@pytest.fixture(scope="module")
def table(tmp_path_factory, write_table):
    folder = tmp_path_factory.mktemp("data") / "tiny-12345678"
    return PreparedTable.open(write_table(folder, rows=ROWS))


@pytest.fixture
def make_request(request_for):
    def make(**probe):
        backbone = {"embedding_dim": 4, "hidden_units": [16, 8], "net_dropout": 0.1}
        prime = {"bags": 2, "experts_per_bag": 3, "rank": 2}
        settings = {
            "warm_up_steps": 2,
            "inference_steps": 12,
            "training_steps": 5,
            "repetitions": 2,
            "other_batch_sizes": [1, 64],
            "device": device_name(CPU),
            "threads": 1,
            "arms": [
                {
                    "plugin": "prime",
                    "settings": PLUGINS["prime"].settings.parse(prime, where="").plain(),
                }
            ],
            **probe,
        }
        job = Job(
            kind="cost",
            fingerprint="f" * 64,
            backbone="DNN",
            backbone_settings=BACKBONES["DNN"].settings.parse(backbone, where="").plain(),
            plugin="dense",
            plugin_settings={},
            training=TrainSpec(batch_size=32),
            seed=2021,
            probe=CostProbe.parse(settings, where="probe").plain(),
        )
        return request_for(job)

    return make


@pytest.fixture
def _no_child(monkeypatch):
    """Memory without the seconds of a process an arm."""
    monkeypatch.setattr(cost, "peak_training_bytes", lambda *_, **__: 1000)


@pytest.mark.usefixtures("_no_child")
def test_a_record_of_all_arms_comes_back_as_it_was(make_request, tmp_path):
    request, events = make_request(), []

    record = run_job(request, events.append)
    found = record.findings
    assert Runs(tmp_path / "runs").find(request.job.id) == record
    assert CostFindings.parse(found.plain(), where="") == found
    assert [arm.plugin for arm in found.arms] == ["dense", "prime"]
    assert (found.clock, found.distinct_rows) == ("wall clock", 150)
    for arm in found.arms:
        timed = [(c.form, c.batch_size, len(c.latencies_ms)) for c in arm.inference]
        assert timed == [("eager", 32, 2), ("eager", 1, 2), ("eager", 64, 2)]
        assert len(arm.training_ms) == 2
        assert min([*arm.training_ms, *arm.inference_ms(batch_size=1)]) > 0
        assert (arm.eager_training_ms, arm.peak_memory_bytes) == (None, 1000)
        with pytest.raises(KeyError):
            arm.inference_ms(batch_size=2)
    assert {event.event for event in events} == {"progress"}
    last = events[-1].progress
    assert (last.epoch, last.rows) == (2, last.rows_total)


@pytest.mark.usefixtures("_no_child")
def test_without_other_batch_sizes_the_protocol_alone_is_timed(make_request, table):
    steps = {"warm_up_steps": 1, "inference_steps": 1, "training_steps": 2}
    request = make_request(other_batch_sizes=[], arms=[], **steps)

    found = cost.run(request, request.job.resolve(), table, device=CPU, on_progress=lambda _: None)
    (dense,) = found.arms
    assert [(cost.form, cost.batch_size) for cost in dense.inference] == [("eager", 32)]
    assert found.distinct_rows == 32 * (1 + 2) < ROWS["train"]


@pytest.mark.usefixtures("_no_child")
def test_parameters_and_products_are_those_of_the_model_that_was_timed(make_request, table):
    request = make_request()

    findings = cost.run(
        request, request.job.resolve(), table, device=CPU, on_progress=lambda _: None
    )
    rows = table.split("train")
    job = request.job.resolve()
    for own, arm in zip(
        [job, job_of(job, job.probe_as(CostProbe).arms[0])],
        findings.arms,
        strict=True,
    ):
        model = trainer_of(own, table.schema, device=CPU).arm
        counted = count(
            model,
            lambda n: (torch.from_numpy(rows.ids[:n].copy()), torch.tensor(rows.numerics[:n])),
        )
        assert (arm.parameters, arm.macs) == (counted.parameters, counted.macs)


@pytest.mark.usefixtures("_no_child")
def test_arms_are_timed_in_turn_in_the_modes_of_their_phases(make_request, table, monkeypatch):
    journal = []

    def spy(arms, *, steps, warm_up_steps, clock, turn):
        assert clock.name == "wall clock"
        for arm in arms:
            arm(0)
        journal.append((len(arms), steps, warm_up_steps, turn, torch.is_inference_mode_enabled()))
        return [1.0 + place for place in range(len(arms))]

    monkeypatch.setattr(cost, "latencies_ms", spy)
    request = make_request()
    findings = cost.run(
        request, request.job.resolve(), table, device=CPU, on_progress=lambda _: None
    )
    # The protocol's forward passes and training steps, then the sizes 1 and 64, twice.
    each = [(12, 2, True), (5, 2, False), (12, 2, True), (6, 2, True)]
    assert journal == [(2, n, w, turn, mode) for turn in (0, 1) for n, w, mode in each]
    assert [arm.training_ms for arm in findings.arms] == [[1.0, 1.0], [2.0, 2.0]]


@pytest.mark.parametrize(
    ("training", "form", "work"),
    [(True, "eager", "eager step"), (True, "graph", "step"), (False, "graph", "graph pass")],
)
def test_a_repetition_does_the_steps_of_its_phase_in_their_mode(
    table, monkeypatch, training, form, work
):
    said = []
    trainer = SimpleNamespace(
        arm=SimpleNamespace(train=said.append),
        optimizer=SimpleNamespace(step=lambda _: said.append("eager step")),
        step=lambda _: said.append("step"),
    )
    monkeypatch.setattr(
        cost, "forward_of", lambda _, form, **_like: lambda _: said.append(f"{form} pass")
    )
    pool = Pool(table.split("train"), n_rows=8, seed=1, device=CPU)
    phase = cost.Phase(training=training, form=form, batch_size=4, steps=1, warm_up_steps=1)

    assert len(cost.repeat(phase, [trainer], pool=pool, device=CPU, turn=0)) == 1
    assert said == [training, work, work]


def test_other_batch_sizes_keep_the_rows_within_those_of_the_protocol():
    sizes = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 1 << 20]
    probe = CostProbe(device="x", threads=1, arms=[], other_batch_sizes=sizes)

    phases = phases_of(
        probe,
        batch_size=4096,
        forms=("eager", "graph", "compiled"),
        training_forms=("eager", "graph"),
    )
    protocol = [p for p in phases if p.batch_size == 4096]
    assert [(p.training, p.form, p.steps, p.warm_up_steps) for p in protocol] == [
        (False, "eager", 100, 20),
        (False, "graph", 100, 20),
        (False, "compiled", 100, 20),
        (True, "eager", 50, 20),
        (True, "graph", 50, 20),
    ]
    steps = {p.batch_size: p.steps for p in phases if p.form == "graph" and not p.training}
    assert steps == dict.fromkeys((1, 4, 16, 64, 256, 1024, 4096), 100) | {
        16384: 25,
        65536: 6,
        1 << 20: 5,
    }
    assert {p.warm_up_steps for p in phases if p.batch_size == 65536} == {6}
    assert {p.warm_up_steps for p in phases if p.batch_size == 16384} == {20}
    assert not [p for p in phases if p.form == "compiled" and p.batch_size != 4096]


def test_with_graphs_a_step_and_a_forward_pass_are_those_and_the_eager_ones_stand_beside_them(
    make_request, table
):
    """As on a GPU, where a run trains with graphs."""
    keys = {"batch_size": 32, "steps": 1, "warm_up_steps": 1}
    measured = [(False, "eager"), (False, "graph"), (True, "eager"), (True, "graph")]
    times = [
        (cost.Phase(training=training, form=form, **keys), [float(ms)])
        for ms, (training, form) in enumerate(measured, start=1)
    ]
    job = make_request().job.resolve()

    arm = cost._cost(job, times, shape=table.schema.shape, peak_bytes=3000)

    assert (arm.training_ms, arm.eager_training_ms) == ([4.0], [3.0])
    assert [(one.form, one.latencies_ms) for one in arm.inference] == [
        ("eager", [1.0]),
        ("graph", [2.0]),
    ]
    assert (arm.deployed(batch_size=32), arm.inference_ms(batch_size=32)) == ([2.0], [1.0])
    half = arm.model_copy(update={"peak_memory_bytes": 2000})
    assert (arm.memory_ratio(half), half.memory_ratio(arm)) == (1.5, 2 / 3)
    unknown = arm.model_copy(update={"peak_memory_bytes": None})
    assert unknown.memory_ratio(arm) is None
    assert arm.memory_ratio(unknown) is None


def test_rows_are_the_tables_own_in_the_order_of_the_first_epoch(table):
    pool = Pool(table.split("train"), n_rows=320, seed=7, device=CPU)

    batches = pool.batches(batch_size=64, n=7)
    order = row_order(150, seed=7, epoch=1).numpy()
    wanted = table.split("train").ids[np.concatenate([order, order, order[:20]])]
    assert pool.distinct_rows == 150
    for number, batch in enumerate(batches):
        start = 64 * (number % 5)
        np.testing.assert_array_equal(batch.ids.numpy(), wanted[start : start + 64])
        assert len(batch.labels) == len(batch.numerics) == 64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trainer_has_the_initial_weights_in_the_type_that_is_asked_for(
    make_request, table, dtype
):
    job = make_request().job.resolve()

    trainer = trainer_of(job, table.schema, device=CPU, dtype=dtype)

    weights = build_arm(job, table.schema).arm.state_dict()
    assert trainer.arm.training
    assert {p.dtype for p in trainer.arm.parameters()} == {dtype}
    for name, value in trainer.arm.state_dict().items():
        assert torch.equal(value, weights[name].to(value.dtype)), name


def test_a_trainer_takes_the_steps_of_a_run(make_request, table):
    job = make_request().job.model_copy(update={"training": TrainSpec(batch_size=50, max_epochs=1)})
    trained = build_arm(job.resolve(), table.schema).arm
    train(
        trained,
        TrainingSplits(train=table.split("train"), valid=table.split("valid")),
        job.training,
        penalty=Penalty.of(job.resolve().backbone),
        seed=job.seed,
        device=CPU,
        on_progress=lambda _: None,
    )

    trainer = trainer_of(job.resolve(), table.schema, device=CPU)
    pool = Pool(table.split("train"), n_rows=150, seed=job.seed, device=CPU)
    for batch in pool.batches(batch_size=50, n=3):
        trainer.step(batch)
    weights = trained.state_dict()
    for name, value in trainer.arm.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_a_forward_pass_is_the_arms_own_and_leaves_no_trace_of_training(make_request, table):
    request = make_request()
    job = request.job.resolve()
    trainer = trainer_of(job_of(job, job.probe_as(CostProbe).arms[0]), table.schema, device=CPU)
    pool = Pool(table.split("train"), n_rows=32, seed=1, device=CPU)
    batch = pool.batches(batch_size=32, n=1)[0]
    trainer.arm.eval()
    before = {name: value.clone() for name, value in trainer.arm.state_dict().items()}

    with torch.inference_mode():
        found = forward_of(trainer.arm, "eager", like=batch)(batch)
    assert torch.equal(found, trainer.arm(batch.ids, batch.numerics))
    assert trainer.arm.plugin.take_routing() is None
    after = trainer.arm.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_compiled_form_runs_what_was_compiled_and_on_a_cpu_no_graph(table, monkeypatch):
    batch = Pool(table.split("train"), n_rows=4, seed=1, device=CPU).batches(batch_size=4, n=1)[0]
    monkeypatch.setattr("prime_bench.probes.arms.compiled", lambda arm: lambda *given: (arm, given))

    given = (batch.ids, batch.numerics)
    assert forward_of("it", "compiled", like=batch)(batch) == ("it", given)
    assert forward_of(lambda *each: each, "eager", like=batch)(batch) == given


def test_forms_of_a_device():
    assert forms_on(CPU, with_compiled=False) == ("eager",)
    assert forms_on(CPU, with_compiled=True) == ("eager", "compiled")
    assert forms_on(torch.device("cuda"), with_compiled=True) == ("eager", "graph", "compiled")


@pytest.mark.parametrize("other", [{"device": "another card"}, {"threads": 3}])
def test_another_place_than_the_jobs_is_refused(make_request, table, other):
    torch.set_num_threads(1)
    request = make_request(**other)
    with pytest.raises(UsageError) as caught:
        cost.run(request, request.job.resolve(), table, device=CPU, on_progress=lambda _: None)
    wanted = {"device": device_name(CPU), "threads": 1, **other}
    assert caught.value.message == (
        f"the job is to be measured on {wanted['device']} with {wanted['threads']} threads, "
        f"this is {device_name(CPU)} with 1"
    )
    assert "prime-bench profile" in caught.value.hint


def test_the_list_of_arms_and_the_place_are_part_of_the_id(make_request):
    ids = {
        make_request(**probe).job.id
        for probe in ({}, {"arms": []}, {"device": "another"}, {"threads": 2}, {"repetitions": 3})
    }
    assert len(ids) == 5


class TestMemory:
    def test_a_process_of_its_own_sees_at_least_weights_and_adams_state(self, make_request, table):
        request = make_request()
        wide = {**request.job.backbone_settings, "hidden_units": [2000, 2000]}
        job = request.job.model_copy(update={"backbone_settings": wide})

        peak = memory.peak_training_bytes(
            request.model_copy(update={"job": job}), job.resolve(), table, device=CPU
        )
        weights = sum(
            p.numel() * 4
            for p in trainer_of(job.resolve(), table.schema, device=CPU).arm.parameters()
        )
        # Weight, gradient and two moments of Adam; far from twice as much again.
        assert 4 * weights <= peak < 10 * weights

    def test_a_process_that_fails_is_an_error_with_its_last_words(self, make_request, table):
        request = make_request().model_copy(update={"table": "/nowhere"})

        with pytest.raises(EnvironmentFault, match="no prepared table"):
            memory.peak_training_bytes(request, request.job.resolve(), table, device=CPU)

    def test_the_process_has_the_arithmetic_and_the_threads_of_the_job(
        self, make_request, monkeypatch
    ):
        job = make_request().job.model_copy(update={"training": TrainSpec(matmul="tf32")})
        request = make_request().model_copy(update={"job": job, "threads": 3})
        given = []

        def fix(**arithmetic):
            given.append(arithmetic)
            raise RuntimeError("enough")

        monkeypatch.setattr(memory, "fix_arithmetic", fix)
        monkeypatch.setattr(memory, "keep_freed_memory", lambda: None)
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(request.plain())))
        with pytest.raises(RuntimeError, match="enough"):
            memory.main()
        assert given == [{"threads": 3, "matmul": "tf32"}]

    def test_the_process_finds_the_modules_that_this_one_finds(
        self, make_request, table, monkeypatch
    ):
        given = {}

        def run(_command, **keys):
            given.update(keys)
            return SimpleNamespace(returncode=0, stdout="12345\n")

        monkeypatch.setattr(memory.subprocess, "run", run)
        monkeypatch.syspath_prepend("/of/my/plugins")
        monkeypatch.setenv("A_VARIABLE", "is kept")
        request = make_request()

        peak = memory.peak_training_bytes(request, request.job.resolve(), table, device=CPU)

        assert peak == 12345
        assert "/of/my/plugins" in given["env"]["PYTHONPATH"].split(os.pathsep)
        assert given["env"]["A_VARIABLE"] == "is kept"
        assert json.loads(given["input"]) == request.plain()

    def test_where_nothing_can_be_read_nothing_is_claimed(
        self, make_request, table, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(memory, "_STATUS", tmp_path / "none")

        assert memory.memory_label(CPU, compiled=False) == "not measured"
        request = make_request()
        assert memory.peak_training_bytes(request, request.job.resolve(), table, device=CPU) is None

    def test_a_compiler_is_not_counted(self, make_request, table):
        request = make_request()
        training = request.job.training.model_copy(update={"compile": True})
        job = request.job.model_copy(update={"training": training})
        request = request.model_copy(update={"job": job})

        assert memory.memory_label(CPU, compiled=True) == "not measured"
        assert memory.memory_label(torch.device("cuda"), compiled=True) == "max_memory_allocated"
        assert memory.peak_training_bytes(request, request.job.resolve(), table, device=CPU) is None


def test_an_arm_takes_the_place_of_the_jobs_own(make_request):
    job = make_request().job.resolve()
    arm = CostArm(plugin="prime", settings={"rank": 2})

    other = job_of(job, arm)
    assert (other.job.plugin, other.job.plugin_settings) == ("prime", {"rank": 2})
    assert other.arm == PrimeConfig(rank=2)
    assert (other.seed, other.training, other.backbone) == (job.seed, job.training, job.backbone)
