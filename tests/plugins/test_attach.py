"""ArmModel on a backbone of the test's own: all that it may rely on is the interface."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from prime_bench.backbones.interface import Backbone
from prime_bench.plugins.attach import ArmModel
from prime_bench.plugins.prime import Prime
from prime_bench.settings.plugins import PrimeConfig

FIELDS, WIDTH = 2, 3


class Toy(Backbone):
    def __init__(self):
        super().__init__()
        self.sites = nn.ModuleDict({"embedding": nn.Identity()})
        self.top_layers, self.top_parameters = [], ["head.weight", "head.bias"]
        self.table = nn.Embedding(8, WIDTH)
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.head = nn.Linear(FIELDS * WIDTH, 1)

    def forward(self, ids, numerics):  # noqa: ARG002
        return self.head(self.sites["embedding"](self.table(ids)).flatten(1)).squeeze(-1)

    def embedding_parameters(self):
        return [self.table.weight]


@pytest.fixture
def arm(generator):
    plugin = Prime(FIELDS * WIDTH, PrimeConfig(bags=2, experts_per_bag=2), generator=generator)
    with torch.no_grad():
        for parameter in plugin.parameters():
            parameter.normal_(generator=generator)
    return ArmModel(Toy(), plugin)


@pytest.fixture
def batch():
    return torch.tensor([[0, 1], [2, 3], [4, 5]]), torch.zeros(3, 0)


def test_the_plugin_reads_flattened_embeddings_and_the_logit(arm, batch):
    z = arm.backbone.table(batch[0]).flatten(1)
    logit = arm.backbone.head(z).squeeze(-1)
    arm.eval()
    assert torch.equal(arm(*batch), arm.plugin(z, logit))
    for found, expected in zip(
        arm.log_probabilities(*batch), arm.plugin.log_probabilities(z, logit), strict=True
    ):
        assert torch.equal(found, expected)


def test_dense_is_the_backbone_and_a_sigmoid(batch):
    backbone = Toy()
    arm = ArmModel(backbone)
    probability = torch.sigmoid(backbone(*batch))
    assert torch.equal(arm(*batch), probability)
    log_p, log_not_p = arm.log_probabilities(*batch)
    torch.testing.assert_close(log_p, probability.log())
    torch.testing.assert_close(log_not_p, (1 - probability).log())
    assert not backbone.sites["embedding"]._forward_hooks


def test_nothing_keeps_the_graph_alive(arm, batch):
    arm(*batch)
    with pytest.raises(IndexError):
        arm(torch.tensor([[0, 99]]), batch[1])  # fails before the site
    arm.backbone.head = nn.Linear(1, 1)
    with pytest.raises(RuntimeError):
        arm(*batch)  # fails after it
    gc.collect()
    assert [tap.take() for tap in arm._taps] == [None]


def test_parameters_fall_into_two_parts(arm):
    embedding, network = arm.embedding_parameters(), arm.network_parameters()
    assert [id(p) for p in embedding] == [id(arm.backbone.table.weight)]
    names = {name for name, p in arm.named_parameters() if any(p is q for q in network)}
    assert names == {
        "backbone.head.weight",
        "backbone.head.bias",
        "plugin.expert_in",
        "plugin.expert_out",
        "plugin.expert_bias",
        "plugin.router",
    }
    assert len(ArmModel(Toy()).network_parameters()) == 2


@pytest.mark.parametrize("carry", [copy.deepcopy, lambda arm: pickle.loads(pickle.dumps(arm))])
def test_a_copy_is_an_arm_of_its_own(arm, batch, carry):
    arm.eval()
    expected = arm(*batch)
    twin = carry(arm)
    assert torch.equal(twin(*batch), expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(arm(*batch), expected)
    assert torch.equal(twin(*batch), torch.full((3,), 0.5))
    twin.detach()
    assert not twin.backbone.sites["embedding"]._forward_hooks
    assert torch.equal(arm(*batch), expected)


def test_state_dict_holds_weights_and_load_only(arm):
    assert set(arm.state_dict()) == {
        "backbone.table.weight",
        "backbone.frozen",
        "backbone.head.weight",
        "backbone.head.bias",
        "plugin.expert_in",
        "plugin.expert_out",
        "plugin.expert_bias",
        "plugin.router",
        "plugin.load_bias",
        "plugin.load_average",
    }


def test_detach_gives_the_plain_backbone_back(arm, batch):
    backbone = arm.backbone
    assert arm.detach() is backbone
    assert not backbone.sites["embedding"]._forward_hooks
    assert torch.equal(arm(*batch), torch.sigmoid(backbone(*batch)))
    plugin_names = [name for name, _ in arm.named_parameters() if name.startswith("plugin")]
    assert plugin_names == []
    arm.detach()


def test_embeddings_are_freed_with_the_step(arm, batch):
    seen = []
    arm.backbone.sites["embedding"].register_forward_hook(
        lambda _module, _inputs, output: seen.append(weakref.ref(output))
    )
    arm(*batch).sum().backward()
    gc.collect()
    assert len(seen) == 1
    assert seen[0]() is None
