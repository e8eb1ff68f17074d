"""The training loop: what it sees, when it stops, what it leaves behind."""

import copy
import dataclasses
import inspect

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.base.errors import DataError
from prime_bench.findings import Validation
from prime_bench.recipe.events import EpochProgress
from prime_bench.training import loop
from prime_bench.training.batches import Rows, row_order, row_order_digest
from prime_bench.training.evaluation import check_labels, degeneracy, predict, score
from prime_bench.training.loop import TrainingSplits, train
from prime_bench.training.optimizer import Penalty

CPU = torch.device("cpu")
NO_PENALTY = Penalty(embedding=0.0, network=0.0)


@pytest.fixture
def splits(make_split):
    return TrainingSplits(train=make_split(300, seed=1), valid=make_split(200, seed=2))


@pytest.fixture
def run(schema, make_job, splits):
    """Train an arm; returns it, the result and the events."""

    def run(job=None, *, on=splits, **spec):
        job = job or make_job(training={"batch_size": 32, "learning_rate": 0.02, **spec})
        arm, events = build_arm(job.resolve(), schema).arm, []
        result = train(
            arm,
            on,
            job.training,
            penalty=NO_PENALTY,
            seed=job.seed,
            device=CPU,
            on_progress=events.append,
            on_validation=events.append,
        )
        return arm, result, events

    return run


def script(monkeypatch, aucs):
    """Let validations find these AUCs; None is a run of NaN."""
    remaining = iter(aucs)

    def scripted(labels, probabilities):  # noqa: ARG001
        auc = next(remaining)
        return loop_score(auc)

    def loop_score(auc):
        real = score(np.array([0, 1]), torch.tensor([0.4, 0.6]))
        return real.model_copy(update={"auc": auc, "logloss": None if auc is None else 0.5})

    monkeypatch.setattr(loop, "score", scripted)


def test_the_loop_has_no_way_to_the_test_split():
    assert {field.name for field in dataclasses.fields(TrainingSplits)} == {"train", "valid"}
    names = set(inspect.signature(train).parameters)
    assert names == {
        *("model", "splits", "spec", "penalty", "seed", "device"),
        *("on_progress", "on_validation", "state", "on_state", "capture", "log"),
    }


def test_rates_misses_and_steps_are_recorded(monkeypatch, run):
    script(monkeypatch, [0.6, 0.5, 0.7, 0.7, 0.7])
    _, result, events = run()
    rates = [0.02, 0.02, 0.002, 0.002, 0.0002]
    assert [v.learning_rate for v in result.history] == pytest.approx(rates)
    assert [v.improved for v in result.history] == [True, False, True, False, False]
    assert [v.epoch for v in result.history] == [1, 2, 3, 4, 5]
    assert [v.step for v in result.history] == [10, 20, 30, 40, 50]
    assert (result.best_epoch, result.stopped) == (3, "patience")
    assert [e for e in events if isinstance(e, Validation)] == result.history


def test_seconds_go_on_where_an_earlier_process_has_stopped(monkeypatch, schema, make_job, splits):
    """Each validation takes 100 s here, and the process is away for 10,000 s."""
    now_s, states = [5000.0], []

    def scored(*given):
        now_s[0] += 100
        return score(*given)

    def counter():
        now_s[0] += 1e-6
        return now_s[0]

    def trained(state=None):
        job = make_job(training={"batch_size": 100, "max_epochs": 2})
        return train(
            build_arm(job.resolve(), schema).arm,
            splits,
            job.training,
            penalty=NO_PENALTY,
            seed=job.seed,
            device=CPU,
            on_progress=lambda _: None,
            on_validation=lambda _: None,
            state=state,
            on_state=lambda newest: states.append(copy.deepcopy(newest)),
        )

    monkeypatch.setattr(loop, "score", scored)
    monkeypatch.setattr(loop.time, "perf_counter", counter)
    whole = trained()
    now_s[0] += 10_000
    again = trained(states[0])

    for result, earlier_s in ((whole, 0), (again, 100)):
        assert [v.wall_s for v in result.history] == pytest.approx([100, 200], abs=0.1)
        assert result.earlier_s == pytest.approx(earlier_s, abs=0.1)
    assert states[0]["wall_s"] == pytest.approx(100, abs=0.1)


def test_the_last_epoch_is_the_upper_bound(monkeypatch, run):
    script(monkeypatch, [0.6, 0.5, 0.7])
    _, result, _ = run(max_epochs=2)
    assert (len(result.history), result.best_epoch, result.stopped) == (2, 1, "max_epochs")


def test_the_best_weights_come_back_and_training_went_on_from_the_worse(monkeypatch, run):
    script(monkeypatch, [0.6, 0.5, 0.4])
    arm, result, _ = run()
    script(monkeypatch, [0.6])
    once, _, _ = run(max_epochs=1)
    script(monkeypatch, [0.6, 0.65])
    twice, _, _ = run(max_epochs=2)
    for name, value in arm.state_dict().items():
        assert torch.equal(value, once.state_dict()[name])
        assert torch.equal(value, result.weights[name])
    # The second epoch starts from the first's weights whatever its AUC was.
    script(monkeypatch, [0.6, 0.5])
    worse, _, _ = run(max_epochs=2)
    script(monkeypatch, [0.6, 0.5, 0.7])
    third, _, _ = run(max_epochs=3)
    assert not torch.equal(twice.backbone.embedding.table, once.backbone.embedding.table)
    assert torch.equal(worse.backbone.embedding.table, once.backbone.embedding.table)
    assert not torch.equal(third.backbone.embedding.table, twice.backbone.embedding.table)


def test_the_kept_weights_are_a_copy(run):
    arm, result, _ = run(max_epochs=1)
    kept = result.weights["backbone.embedding.table"].clone()
    with torch.no_grad():
        arm.backbone.embedding.table.fill_(9.0)
    assert torch.equal(result.weights["backbone.embedding.table"], kept)


def test_it_learns(run, splits):
    arm, result, _ = run()
    assert result.history[0].train_loss > result.history[-1].train_loss
    found = score(splits.valid.labels, predict(arm, Rows(splits.valid, device=CPU), batch_size=32))
    best = result.history[result.best_epoch - 1]
    assert found.auc == best.valid_auc == max(v.valid_auc for v in result.history) > 0.65
    assert found.logloss == best.valid_logloss


@pytest.mark.parametrize("n_rows", [33, 64, 65])
def test_every_row_is_seen_once_an_epoch(monkeypatch, run, make_split, n_rows):
    seen = []
    step = loop.Optimizer.step

    def watched(self, batch):
        seen.append(batch)
        return step(self, batch)

    monkeypatch.setattr(loop.Optimizer, "step", watched)
    split = make_split(n_rows, seed=5)
    _, result, events = run(max_epochs=1, on=TrainingSplits(train=split, valid=make_split(50)))
    order = row_order(n_rows, seed=2021, epoch=1)
    rows = torch.cat([batch.numerics for batch in seen])
    assert torch.equal(rows, torch.from_numpy(split.numerics[order.numpy()]))
    assert result.row_order == row_order_digest(order)
    assert min(len(batch.labels) for batch in seen) > 1
    last = [e for e in events if isinstance(e, EpochProgress)][-1]
    assert (last.epoch, last.rows, last.rows_total) == (1, n_rows, n_rows)


def test_every_epoch_reads_its_own_order_and_the_first_one_is_recorded(
    monkeypatch, run, make_split
):
    seen = []
    step = loop.Optimizer.step
    monkeypatch.setattr(
        loop.Optimizer, "step", lambda self, batch: (seen.append(batch), step(self, batch))[1]
    )
    split = make_split(64, seed=5)
    on = TrainingSplits(train=split, valid=make_split(50))
    _, result, events = run(max_epochs=3, patience=9, on=on)

    epochs = torch.cat([batch.numerics for batch in seen]).chunk(3)
    for epoch, rows in enumerate(epochs, start=1):
        order = row_order(64, seed=2021, epoch=epoch)
        assert torch.equal(rows, torch.from_numpy(split.numerics[order.numpy()])), epoch
    assert result.row_order == row_order_digest(row_order(64, seed=2021, epoch=1))
    ends = [e for e in events if isinstance(e, EpochProgress) and e.rows == 64]
    assert [e.epoch for e in ends] == [1, 2, 3]


def test_patience_that_ends_with_the_last_epoch_has_ended_the_run(monkeypatch, run):
    script(monkeypatch, [0.6, 0.5, 0.5])
    _, result, _ = run(max_epochs=3)
    assert (len(result.history), result.stopped) == (3, "patience")


@pytest.mark.parametrize("name", ["train", "valid"])
def test_neither_split_may_be_of_one_class(run, splits, name):
    one = dataclasses.replace(getattr(splits, name), labels=np.ones(300, dtype=np.uint8))
    with pytest.raises(DataError, match=f"all 300 labels of the split {name} are 1"):
        run(on=dataclasses.replace(splits, **{name: one}))


def test_the_training_loss_is_the_mean_over_batches(monkeypatch, run):
    losses = iter([1.0, 2.0, 6.0] * 2)
    monkeypatch.setattr(
        loop.Optimizer, "_losses", lambda *_: (torch.tensor(next(losses)).requires_grad_(), None)
    )
    _, result, _ = run(batch_size=100, max_epochs=2)
    assert [v.train_loss for v in result.history] == [3.0, 3.0]


def test_a_run_that_turns_nan_ends_and_keeps_what_was_best(monkeypatch, run, splits):
    step, n_steps = loop.Optimizer.step, []

    def broken(self, batch):
        n_steps.append(1)
        if len(n_steps) == 25:  # in epoch 3
            batch = dataclasses.replace(batch, numerics=batch.numerics * torch.nan)
        return step(self, batch)

    monkeypatch.setattr(loop.Optimizer, "step", broken)
    arm, result, _ = run()
    assert [v.valid_auc is None for v in result.history] == [False, False, True, True]
    assert [v.train_loss is None for v in result.history] == [False, False, True, True]
    assert (result.best_epoch, result.stopped) == (2, "patience")
    assert predict(arm, Rows(splits.valid, device=CPU), batch_size=32).isfinite().all()
    for validation in result.history:
        Validation.model_validate_json(validation.model_dump_json())


def test_a_run_that_is_nan_from_the_start_ends_too(run, splits):
    numerics = splits.train.numerics.copy()
    numerics[17, 0] = np.nan
    broken = dataclasses.replace(splits.train, numerics=numerics)
    _, result, _ = run(on=TrainingSplits(train=broken, valid=splits.valid))
    assert [v.valid_auc for v in result.history] == [None, None]
    assert (result.best_epoch, result.stopped) == (None, "patience")


def test_constant_and_undefined_predictions_are_degenerate():
    labels = np.array([0, 1, 0, 1], dtype=np.uint8)

    def verdict(*values):
        p = {"valid": torch.tensor(values)}
        return degeneracy(p, {"valid": score(labels, p["valid"])})

    assert verdict(0.25, 0.25, 0.25, 0.25) == "valid: every prediction is 0.25"
    assert verdict(0.1, 0.1, 0.2, 0.2) == "valid: the AUC is 0.5"
    assert verdict(0.1, np.nan, 0.2, 0.2) == "valid: 1 of 4 predictions are not finite"
    assert verdict(0.1, 0.2, 0.3, 0.4) is None
    assert verdict(0.1, np.inf, 0.2, np.nan) == "valid: 2 of 4 predictions are not finite"
    for lost in (torch.nan, torch.inf, -torch.inf):
        assert score(labels, torch.tensor([0.1, 0.2, 0.3, lost])).auc is None


def test_prediction_leaves_the_mode_and_the_load_buffers_alone(schema, make_job, make_split):
    arm = build_arm(make_job(plugin="prime", net_dropout=0.5).resolve(), schema).arm
    before = {name: value.clone() for name, value in arm.state_dict().items()}
    rows = Rows(make_split(50), device=CPU)
    first, second = (predict(arm, rows, batch_size=size) for size in (7, 50))
    assert arm.training
    predict(arm.eval(), rows, batch_size=7)
    assert not arm.training
    np.testing.assert_allclose(first, second, atol=1e-7)
    assert all(torch.equal(before[name], value) for name, value in arm.state_dict().items())


@pytest.mark.parametrize(
    ("labels", "message"),
    [([], "valid has no rows"), ([1, 1, 1], "all 3 labels of the split valid are 1")],
)
def test_splits_that_cannot_be_scored_are_refused_before_training(labels, message):
    with pytest.raises(DataError, match=message):
        check_labels("valid", np.array(labels, dtype=np.uint8))


def test_progress_is_reported_at_most_twice_a_second(monkeypatch, run):
    clock = iter(np.arange(0.0, 1e6, 0.2))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(clock)))
    _, _, events = run(max_epochs=1)
    progress = [e for e in events if isinstance(e, EpochProgress)]
    assert [e.rows for e in progress] == [96, 192, 288, 300]
    assert progress[0].rows_per_s == pytest.approx(96 / 0.6)


def test_each_epochs_routing_is_in_the_history(run, make_job):
    spec = {"batch_size": 32, "max_epochs": 2, "learning_rate": 0.02}
    prime, result, _ = run(make_job(plugin="prime", training=spec))
    config = prime.plugin.config
    for validation in result.history:
        routing = validation.routing
        assert len(routing.entropy) == config.bags
        np.testing.assert_allclose(np.exp(routing.entropy), routing.effective_experts, rtol=1e-6)
        assert all(1 <= n <= config.experts_per_bag + 1e-4 for n in routing.effective_experts)
        assert all(1 / config.experts_per_bag <= load < 1 for load in routing.largest_load)
    assert result.history[0].routing != result.history[1].routing

    _, dense, _ = run(make_job(plugin="dense", training=spec))
    assert [validation.routing for validation in dense.history] == [None, None]
