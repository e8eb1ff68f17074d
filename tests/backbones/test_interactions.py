"""DCN, GDCN, FiBiNET, MaskNet and AutoInt against their equations in float64 NumPy, in the forms
that FuxiCTR's outputs do not cover, too.
"""

import itertools

import numpy as np
import pytest
import torch

from prime_bench.backbones.autoint import AutoInt
from prime_bench.backbones.dcn import DCN
from prime_bench.backbones.fibinet import Bilinear, FiBiNET
from prime_bench.backbones.gdcn import GDCN, GatedCrossNet
from prime_bench.backbones.masknet import MaskNet
from prime_bench.data.schema import Field, Schema
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.backbones import (
    AutoIntSettings,
    DCNSettings,
    FiBiNETSettings,
    GDCNSettings,
    MaskNetSettings,
)

N, K, FIELDS = 11, 4, 5  # rows, embedding width, fields of the schema
EXACT = {"rtol": 1e-9, "atol": 1e-9}


class Seen:
    """A model with random weights, run once in float64: logits, sites, weights as arrays."""

    def __init__(self, build, settings, schema, rows):
        torch.manual_seed(0)
        model = build(schema, settings).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
        self.at = {}
        for name, site in model.sites.items():
            site.register_forward_hook(
                lambda _m, _i, out, name=name: self.at.update({name: out.detach().numpy()})
            )
        ids, numerics = rows(N)
        self.logits = model(ids, numerics.double()).detach().numpy()
        assert tuple(self.at) == settings.sites, "each site is passed, in this order"
        self.state = {name: value.numpy() for name, value in model.state_dict().items()}
        self.embeddings = self.at["embedding"]
        assert self.embeddings.shape == (N, FIELDS, K)
        self.z = self.embeddings.reshape(N, -1)
        self.linear = 0.0
        if getattr(model, "lr_layer", None) is not None:
            self.linear = model.lr_layer(ids, numerics.double()).detach().numpy()
            assert np.ptp(self.linear) > 0

    def linear_layer(self, x, name):
        bias = self.state.get(f"{name}.bias", 0.0)
        return x @ self.state[f"{name}.weight"].T + bias

    def mlp(self, x, name, n_layers, *, out=True):
        for layer in range(n_layers):
            x = np.maximum(self.linear_layer(x, f"{name}.mlp.{2 * layer}"), 0)
        return self.linear_layer(x, f"{name}.mlp.{2 * n_layers}")[:, 0] if out else x

    def layer_norm(self, x, name):
        return normalise(x) * self.state[f"{name}.weight"] + self.state[f"{name}.bias"]


def normalise(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture
def run(schema, rows):
    return lambda build, settings: Seen(build, settings, schema, rows)


@pytest.mark.parametrize("widths", [(6, 3), ()])
def test_dcn(run, widths):
    seen = run(DCN, DCNSettings(embedding_dim=K, dnn_hidden_units=widths, num_cross_layers=2))
    x = seen.z
    for layer in range(2):
        name = f"crossnet.cross_net.{layer}"
        share = x @ seen.state[f"{name}.weight.weight"][0]
        x = x + share[:, None] * seen.z + seen.state[f"{name}.bias"]
        np.testing.assert_allclose(seen.at[f"cross_{layer + 1}"], x, **EXACT)
    if widths:
        np.testing.assert_allclose(seen.at["top_input"], seen.z, **EXACT)
        x = np.concatenate([x, seen.mlp(seen.z, "dnn", 2, out=False)], axis=1)
    np.testing.assert_allclose(seen.logits, seen.linear_layer(x, "fc")[:, 0], **EXACT)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_gdcn(run, n_layers):
    settings = GDCNSettings(embedding_dim=K, dnn_hidden_units=(6, 3), num_cross_layers=n_layers)
    seen = run(GDCN, settings)
    x = seen.z
    names = [*(f"cross_{i + 1}" for i in range(n_layers - 1)), "cross_out"]
    assert set(names) <= set(seen.at)
    for layer, name in enumerate(names):
        w, gate, b = (
            seen.state[f"cross_net.{part}"]
            for part in (f"w.{layer}.weight", f"wg.{layer}.weight", f"b.{layer}")
        )
        x = seen.z * (x @ w.T + b) * sigmoid(x @ gate.T) + x
        np.testing.assert_allclose(seen.at[name], x, **EXACT)
    np.testing.assert_allclose(seen.at["top_input"], x, **EXACT)
    np.testing.assert_allclose(seen.logits, seen.mlp(x, "dnn", 2), **EXACT)


def pairs(embeddings, weight, bilinear_type):
    """One pair at a time."""
    of = {"field_all": lambda _p, _i: weight, "field_each": lambda _p, i: weight[i]}
    of["field_interaction"] = lambda p, _i: weight[p]
    return np.stack(
        [
            (embeddings[:, i] @ of[bilinear_type](p, i)) * embeddings[:, j]
            for p, (i, j) in enumerate(itertools.combinations(range(embeddings.shape[1]), 2))
        ],
        axis=1,
    )


@pytest.mark.parametrize("ratio", [1, 2, 9, 0.3])
@pytest.mark.parametrize("bilinear_type", ["field_all", "field_each", "field_interaction"])
def test_fibinet(run, bilinear_type, ratio):
    settings = FiBiNETSettings(
        embedding_dim=K, hidden_units=(6, 3), bilinear_type=bilinear_type, reduction_ratio=ratio
    )
    seen = run(FiBiNET, settings)
    squeezed = np.maximum(
        seen.embeddings.mean(2) @ seen.state["senet_layer.excitation.0.weight"].T, 0
    )
    assert squeezed.shape[1] == {1: 5, 2: 2, 9: 1, 0.3: 16}[ratio]  # int(5 / 0.3)
    excitation = np.maximum(squeezed @ seen.state["senet_layer.excitation.2.weight"].T, 0)
    inputs = [seen.embeddings, seen.embeddings * excitation[:, :, None]]
    products = np.concatenate(
        [
            pairs(x, seen.state[f"bilinear_interaction{i}.bilinear_W"], bilinear_type)
            for i, x in enumerate(inputs, start=1)
        ],
        axis=1,
    )
    np.testing.assert_allclose(seen.at["bilinear"], products, **EXACT)
    flat = products.reshape(N, -1)
    np.testing.assert_allclose(seen.at["top_input"], flat, **EXACT)
    np.testing.assert_allclose(seen.logits, seen.mlp(flat, "dnn", 2) + seen.linear, **EXACT)


@pytest.mark.parametrize("norms", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("form", ["SerialMaskNet", "ParallelMaskNet"])
def test_masknet(run, form, norms):
    emb_layernorm, net_layernorm = norms
    settings = MaskNetSettings(
        embedding_dim=K,
        dnn_hidden_units=(6, 3),
        model_type=form,
        parallel_num_blocks=3,
        parallel_block_dim=7,
        reduction_ratio=0.7,
        emb_layernorm=emb_layernorm,
        net_layernorm=net_layernorm,
    )
    seen = run(MaskNet, settings)
    first = seen.layer_norm(seen.embeddings, "emb_norm") if emb_layernorm else seen.embeddings
    first = first.reshape(N, -1)

    def block(number, hidden):
        name = f"mask_net.mask_blocks.{number}"
        inside = np.maximum(seen.linear_layer(seen.z, f"{name}.mask_layer.0"), 0)
        assert inside.shape[1] == int(hidden.shape[1] * 0.7)
        masked = seen.linear_layer(inside, f"{name}.mask_layer.2") * hidden
        out = masked @ seen.state[f"{name}.hidden_layer.0.weight"].T
        out = seen.layer_norm(out, f"{name}.hidden_layer.1") if net_layernorm else out
        return masked, np.maximum(out, 0)

    if form == "SerialMaskNet":
        reads, hidden = block(0, first)
        hidden = block(1, hidden)[1]
        expected = seen.linear_layer(hidden, "mask_net.fc.0")[:, 0]
    else:
        reads = np.concatenate([block(number, first)[1] for number in range(3)], axis=1)
        expected = seen.mlp(reads, "mask_net.dnn", 2)
    np.testing.assert_allclose(seen.at["top_input"], reads, **EXACT)
    np.testing.assert_allclose(seen.logits, expected, **EXACT)


AUTOINT = {
    "plain": {"dnn_hidden_units": ()},
    "heads": {"num_heads": 3, "use_scale": True},
    "norm_wide": {"layer_norm": True, "use_wide": True, "num_heads": 2},
    "no_residual": {"use_residual": False, "dnn_hidden_units": ()},
    "same_width": {"attention_dim": K, "num_heads": 2, "use_scale": True},
}


@pytest.mark.parametrize("form", AUTOINT)
def test_autoint(run, form):
    settings = AutoIntSettings(
        **{
            **{"embedding_dim": K, "dnn_hidden_units": (6, 3), "attention_dim": 6},
            **AUTOINT[form],
        }
    )
    seen = run(AutoInt, settings)
    x, heads = seen.embeddings, settings.num_heads
    for layer in range(2):
        name = f"self_attention.{layer}"
        query, key, value = (x @ seen.state[f"{name}.W_{part}.weight"].T for part in "qkv")
        width = query.shape[2] // heads
        parts = []
        for head in range(heads):
            own = slice(head * width, (head + 1) * width)
            scores = np.einsum("bik,bjk->bij", query[..., own], key[..., own])
            scores = np.exp(scores / (np.sqrt(width) if settings.use_scale else 1.0))
            weights = scores / scores.sum(axis=2, keepdims=True)
            parts.append(np.einsum("bij,bjk->bik", weights, value[..., own]))
        out = np.concatenate(parts, axis=2)
        if settings.use_residual:
            projected = f"{name}.W_res.weight" in seen.state
            assert projected == (x.shape[2] != settings.attention_dim)
            out = out + (x @ seen.state[f"{name}.W_res.weight"].T if projected else x)
        out = seen.layer_norm(out, f"{name}.layer_norm") if settings.layer_norm else out
        x = np.maximum(out, 0)
    expected = seen.linear_layer(x.reshape(N, -1), "fc")[:, 0] + seen.linear
    if settings.dnn_hidden_units:
        expected = expected + seen.mlp(seen.z, "dnn", 2)
        np.testing.assert_allclose(seen.at["top_input"], seen.z, **EXACT)
    np.testing.assert_allclose(seen.logits, expected, **EXACT)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_autoint_drops_attention_weights_in_training_alone(schema, rows, p):
    settings = AutoIntSettings(dnn_hidden_units=(), net_dropout=p)
    model = AutoInt(schema, settings)
    with torch.no_grad():
        model.embedding.table.normal_()
    batch = rows(N)
    assert torch.equal(model.eval()(*batch), model(*batch))
    assert torch.equal(model.train()(*batch), model(*batch)) == (p == 0)


@pytest.mark.parametrize("bilinear_type", ["field_all", "field_each", "field_interaction"])
def test_gradients_of_the_pairs(bilinear_type):
    layer = Bilinear(FIELDS, 3, bilinear_type).double()
    x = torch.randn(2, FIELDS, 3, dtype=torch.float64, requires_grad=True)

    def of(x, weight):
        return torch.func.functional_call(layer, {"bilinear_W": weight}, (x,))

    assert torch.autograd.gradcheck(of, (x, layer.bilinear_W))


def test_initial_values_that_no_reset_reaches():
    """FuxiCTR's: GDCN's bias uniform; a bilinear's fans from the axes of its 3-D weight."""
    bias = torch.cat(list(GatedCrossNet(2000, 3).b.parameters()))
    assert 0 <= bias.min().item() < 0.01
    assert 0.99 < bias.max().item() <= 1
    assert bias.mean().item() == pytest.approx(0.5, abs=0.02)
    for kind, fans in (("field_all", 40 + 40), ("field_each", 1600 + 30 * 40)):
        weight = Bilinear(30, 40, kind).bilinear_W
        expected = (2 / fans) ** 0.5
        assert weight.std().item() == pytest.approx(expected, rel=0.07), kind
    per_pair = Bilinear(30, 10, "field_interaction").bilinear_W
    assert per_pair.shape == (435, 10, 10)
    assert per_pair.std().item() == pytest.approx((2 / (100 + 4350)) ** 0.5, rel=0.03)


AVAZU = [2] * 21 + [1_298_621 - 42]  # ids of the training rows; only their sum counts
CRITEO = [2] * 38 + [910_747 - 76]
PUBLISHED = {  # in all and beside the embeddings, at the values of main13
    AutoInt: ((14_203_076, 1_216_866), (10_913_195, 894_978)),
    DCN: ((13_397_351, 411_141), (9_587_801, 480_331)),
    FiBiNET: ((16_457_340, 2_172_509), (16_416_252, 6_398_035)),
    GDCN: ((13_689_271, 703_061), (10_498_841, 1_391_371)),
    MaskNet: ((14_586_111, 1_599_901), (9_774_939, 667_469)),
}


@pytest.mark.parametrize(("dataset", "sizes"), [("avazu", AVAZU), ("criteo", CRITEO)])
@pytest.mark.parametrize("build", PUBLISHED)
def test_published_parameter_counts(build, dataset, sizes):
    fields = [
        Field(name=f"f{i}", kind="categorical", vocabulary_size=n) for i, n in enumerate(sizes)
    ]
    settings = load_recipe("main13").backbones[build.__name__][dataset]
    with torch.device("meta"):
        model = build(Schema(fields=fields), settings)
    counted = sum(p.numel() for p in model.parameters() if p.requires_grad)
    embeddings = sum(p.numel() for p in model.embedding_parameters())
    assert (counted, counted - embeddings) == PUBLISHED[build][dataset == "criteo"]
