"""A training step never waits for the device: no operation in it hands a number to the host."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from prime_bench.assemble import build_arm
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch
from prime_bench.training.optimizer import Optimizer, Penalty

# Operations whose result, or its shape, a host needs to know.
WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "_unique2", "equal"}


class Watch(TorchDispatchMode):
    """Collects what was called."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("loss", ["probability", "logit"])
@pytest.mark.parametrize("plugin", ["dense", "prime", "auxiliary_loss", "residual_parameters"])
@pytest.mark.parametrize("backbone", ["DNN", "DCNv2"])
def test_a_step_hands_no_number_to_the_host(backbone, plugin, loss, schema, make_split, make_job):
    settings = {"net_dropout": 0.3, "batch_norm": True}
    arm = build_arm(make_job(backbone, plugin, **settings).resolve(), schema).arm
    spec = TrainSpec(loss=loss)
    optimizer = Optimizer(arm, spec, penalty=Penalty(embedding=0.1, network=0.1))
    split = make_split(20)
    batch = Batch(*(torch.from_numpy(a) for a in (split.ids, split.numerics, split.labels)))
    with Watch() as watch:
        for _ in range(3):
            optimizer.step(batch)
    assert {"index_add_", "_fused_adam_", "mm"} <= watch.seen
    assert not watch.seen & WAITING


def test_the_watch_sees_what_waits():
    with Watch() as watch:
        float(torch.ones(1).sum())
    assert watch.seen & WAITING
