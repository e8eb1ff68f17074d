"""Arms that change the backbone's own path, against their equations in float64 NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from prime_bench.assemble import build_arm, build_plugin, weights_digest
from prime_bench.base.errors import UsageError
from prime_bench.data.schema import Field, Schema
from prime_bench.plugins.structural import BaggedLayer, NormalisedEmbeddings, SubspaceLayer
from prime_bench.recipe.job import Job
from prime_bench.settings.plugins import HiddenSubspaceSettings, MultilayerBaggedSettings
from prime_bench.settings.training import TrainSpec

IN, OUT, B = 6, 4, 5
SMALL = {"bags": 2, "experts_per_bag": 3, "rank": 2}
SCHEMA = Schema(
    fields=[
        Field(name=f"c{i}", kind="categorical", vocabulary_size=n) for i, n in enumerate((7, 9))
    ]
)


def built(plugin, *, seed=3):
    job = Job(
        fingerprint="0",
        backbone="DNN",
        backbone_settings={"hidden_units": [8, 6], "batch_norm": True},
        plugin=plugin,
        plugin_settings={},
        training=TrainSpec(),
        seed=seed,
    )
    return build_arm(job.resolve(), SCHEMA)


def random(kind, settings):
    """A layer in float64, nothing at its start value."""
    generator = torch.Generator().manual_seed(1)
    layer = kind(nn.Linear(IN, OUT), settings, generator=generator).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer, torch.randn(B, IN, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("bagged", [False, True])
def test_a_layer_one_expert_at_a_time(bagged, layer_norm):
    kind = BaggedLayer if bagged else SubspaceLayer
    settings = (MultilayerBaggedSettings if bagged else HiddenSubspaceSettings)(**SMALL)
    layer, x = random(kind, settings)
    state = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    rows = x.numpy()
    normalised = layer_norm(rows)
    expected = np.zeros((B, OUT))
    for i in range(B):
        for g in range(2):
            experts = range(3 * g, 3 * g + 3)
            scores = np.exp([state["router"][e] @ normalised[i] for e in experts])
            for r, e in zip(scores / scores.sum(), experts, strict=True):
                inside = state["expert_in"][e] @ (normalised[i] if bagged else rows[i])
                if bagged:
                    inside = inside / (1 + np.exp(-inside))
                expected[i] += r / 2 * (state["expert_out"][e].T @ inside)
        if bagged:
            expected[i] += state["bias"]
        else:
            expected[i] += state["linear.weight"] @ rows[i] + state["linear.bias"]
    np.testing.assert_allclose(layer(x).detach(), expected, rtol=1e-12)


def test_initial_values_are_xavier_and_not_zero():
    layer = BaggedLayer(
        nn.Linear(220, 400), MultilayerBaggedSettings(), generator=torch.Generator().manual_seed(1)
    )
    for name, fans in (("expert_in", 220 + 4), ("expert_out", 4 + 400), ("router", 220 + 8)):
        std = getattr(layer, name).std().item()
        assert std == pytest.approx((2 / fans) ** 0.5, rel=0.03), name
    assert not layer.bias.any()


@pytest.mark.parametrize(
    ("plugin", "kind"), [("hidden_subspace", SubspaceLayer), ("multilayer_bagged", BaggedLayer)]
)
def test_every_hidden_linear_of_the_top_nn_is_replaced_and_comes_back(plugin, kind):
    assembled, dense = built(plugin), built("dense")
    backbone = assembled.arm.backbone
    layers = [backbone.get_submodule(path) for path in backbone.top_layers]
    assert [type(layer) for layer in layers] == [kind, kind]
    assert sum(isinstance(module, nn.BatchNorm1d) for module in backbone.modules()) == 2
    assert set(backbone.top_parameters) <= set(dict(backbone.named_parameters()))
    assert f"{backbone.top_layers[0]}.expert_in" in backbone.top_parameters
    if kind is SubspaceLayer:
        own = dense.arm.backbone.get_submodule(backbone.top_layers[0]).weight
        assert torch.equal(layers[0].linear.weight, own), "W starts as Dense's"
    assert assembled.initial_weights == dense.initial_weights
    assert weights_digest(assembled.arm.detach()) == dense.initial_weights
    digests = [weights_digest(built(plugin, seed=seed).arm) for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_dense_layernorm_feeds_the_backbone_with_normalised_embeddings(layer_norm):
    arm, dense = built("dense_layernorm").arm.eval(), built("dense").arm.eval()
    ids, numerics = torch.tensor([[1, 2], [3, 8], [6, 5]]), torch.zeros(3, 0)
    seen = []
    arm.backbone.sites["top_input"].register_forward_hook(lambda _m, _i, out: seen.append(out))
    probability = arm(ids, numerics)
    z = dense.backbone.embedding(ids, numerics).flatten(1)
    expected = layer_norm(z.detach().double().numpy())
    np.testing.assert_allclose(seen[0].detach(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(probability, torch.sigmoid(dense.backbone.mlp(seen[0])).squeeze(1))
    assert isinstance(arm.backbone.sites["embedding"], NormalisedEmbeddings)
    assert torch.equal(torch.sigmoid(arm.detach()(ids, numerics)), dense(ids, numerics))


def test_without_a_top_nn_there_is_nothing_to_replace():
    job = built("hidden_subspace")
    assert job.arm.plugin is None
    with pytest.raises(UsageError, match=r"arm hidden_subspace on FwFM: it has no Top-NN"):
        build_arm(
            Job(
                fingerprint="0",
                backbone="FwFM",
                backbone_settings={},
                plugin="hidden_subspace",
                plugin_settings={},
                training=TrainSpec(),
                seed=1,
            ).resolve(),
            SCHEMA,
        )
    with pytest.raises(UsageError, match="changes the backbone"):
        build_plugin("multilayer_bagged", 20, {}, seed=0)
