"""What the arms of a pair share: initial weights, row order, dropout masks, first predictions."""

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.base.streams import derive
from prime_bench.training import batches, loop
from prime_bench.training.batches import Rows
from prime_bench.training.evaluation import predict
from prime_bench.training.loop import TrainingSplits, train
from prime_bench.training.optimizer import Penalty

CPU = torch.device("cpu")
ARMS = (
    *("dense", "prime", "residual_parameters", "residual_macs"),
    *("uniform_routing", "permuted_routing", "auxiliary_loss"),
)


@pytest.fixture
def paired_runs(schema, make_split, make_job, monkeypatch):
    """For each arm: its model before training, what it predicted then, and its run of 20 steps."""
    torch.set_num_threads(1)
    splits = TrainingSplits(train=make_split(160, seed=1), valid=make_split(60, seed=2))
    settings = {"net_dropout": 0.3, "batch_norm": True, "embedding_l2": 1e-3}

    def runs(backbone, plugin, *, seed=2021, before=lambda: None):
        training = {"batch_size": 16, "max_epochs": 2}
        job = make_job(backbone, plugin, seed=seed, training=training, **settings)
        assembled = build_arm(job.resolve(), schema)
        found = {"initial_weights": assembled.initial_weights, "orders": [], "states": []}
        found["first"] = predict(assembled.arm, Rows(splits.valid, device=CPU), batch_size=16)
        order = batches.row_order

        def watched(*args, **named):
            found["orders"].append(order(*args, **named))
            return found["orders"][-1]

        step = loop.Optimizer.step

        def stepped(self, batch):
            loss = step(self, batch)
            found["states"].append(torch.get_rng_state())
            return loss

        monkeypatch.setattr(batches, "row_order", watched)
        monkeypatch.setattr(loop.Optimizer, "step", stepped)
        before()
        found["result"] = train(
            assembled.arm,
            splits,
            job.training,
            penalty=Penalty(embedding=1e-3, network=0.0),
            seed=seed,
            device=CPU,
        )
        monkeypatch.undo()
        return found

    return runs


@pytest.mark.parametrize("backbone", ["DNN", "DCNv2"])
def test_arms_share_everything_but_the_arm(backbone, paired_runs):
    dense, *others = (paired_runs(backbone, plugin) for plugin in ARMS)
    assert len(dense["states"]) == 20
    first, second = dense["orders"]
    assert not torch.equal(first, second)
    assert not torch.equal(dense["states"][9], dense["states"][10])
    for other in others:
        assert other["initial_weights"] == dense["initial_weights"]
        assert torch.equal(other["first"], dense["first"])
        assert other["result"].row_order == dense["result"].row_order
        for mine, theirs in zip(other["orders"], dense["orders"], strict=True):
            assert torch.equal(mine, theirs)
        assert torch.equal(other["states"][9], dense["states"][9])
        # The arms do differ once they have been trained.
        assert other["result"].history[-1].train_loss != dense["result"].history[-1].train_loss


@pytest.mark.parametrize("plugin", ARMS)
def test_a_run_repeats_bit_by_bit_whatever_was_drawn_before(plugin, paired_runs):
    def disturb():
        torch.rand(17)
        np.random.default_rng().random()

    first = paired_runs("DCNv2", plugin)
    second = paired_runs("DCNv2", plugin, before=disturb)
    for name, value in first["result"].weights.items():
        assert torch.equal(value, second["result"].weights[name]), name
    pairs = zip(first["result"].history, second["result"].history, strict=True)
    for one, two in pairs:
        assert one.model_copy(update={"wall_s": 0.0}) == two.model_copy(update={"wall_s": 0.0})


def test_another_seed_is_another_run(paired_runs):
    one, two = paired_runs("DNN", "dense"), paired_runs("DNN", "dense", seed=7)
    assert one["initial_weights"] != two["initial_weights"]
    assert one["result"].row_order != two["result"].row_order
    assert not torch.equal(one["states"][9], two["states"][9])


def test_dropout_draws_from_its_own_stream(paired_runs, monkeypatch):
    seeds = []
    seed_all = torch.manual_seed
    monkeypatch.setattr(
        loop.torch, "manual_seed", lambda seed: seeds.append(seed) or seed_all(seed)
    )
    paired_runs("DNN", "dense", before=seeds.clear)
    assert seeds == [derive(2021, "dropout")]
