"""APG against its equation in float64 NumPy, and what attaching it does to a backbone."""

import copy
import pickle

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_arm, build_plugin, weights_digest
from prime_bench.base.errors import UsageError
from prime_bench.catalog import BACKBONES
from prime_bench.data.schema import Field, Schema
from prime_bench.plugins.apg import APGLinear, OfFields, SelfWise
from prime_bench.recipe.job import Job
from prime_bench.settings.backbones import DCNv2Settings, FiBiNETSettings
from prime_bench.settings.interface import TableShape
from prime_bench.settings.plugins import APGSettings, APGShape
from prime_bench.settings.training import TrainSpec

SIZES = (7, 4, 9)
SCHEMA = Schema(
    fields=[Field(name=f"c{i}", kind="categorical", vocabulary_size=n) for i, n in enumerate(SIZES)]
)
SMALL = {"rank_k": 3, "overparam_p": 5, "hypernet_hidden_units": [8, 6]}
DCNV2 = {"parallel_dnn_hidden_units": [12, 8], "net_dropout": 0.1, "batch_norm": True}
FIBINET = {"hidden_units": [12], "bilinear_type": "field_all"}


def arm(backbone, settings, *, plugin="apg", apg=SMALL, seed=3):
    job = Job(
        fingerprint="0",
        backbone=backbone,
        backbone_settings=settings,
        plugin=plugin,
        plugin_settings=apg if plugin == "apg" else {},
        training=TrainSpec(),
        seed=seed,
    )
    return build_arm(job.resolve(), SCHEMA)


def batch(n_rows=9):
    generator = torch.Generator().manual_seed(n_rows)
    columns = [torch.randint(n, (n_rows,), generator=generator) for n in SIZES]
    return torch.stack(columns, dim=1), torch.zeros(n_rows, 0)


def shape(width_in, width_out, condition, *, vectors=1):
    return APGShape(
        width_in=width_in,
        width_out=width_out,
        condition=condition,
        vectors=vectors,
        replaced=vectors == 1,
    )


def oracle(layer, x, condition):
    """One row and one vector at a time: x (B, n, in), condition (B, c)."""
    state = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    rank, width_out = state["U_r"].shape[1], state["V_r"].shape[1]
    out = np.zeros((*x.shape[:2], width_out))
    for row in range(len(x)):
        hidden = condition[row]
        for number in (0, 2):
            weight, bias = state[f"hypernet.{number}.weight"], state[f"hypernet.{number}.bias"]
            hidden = np.maximum(weight @ hidden + bias, 0)
        generated = state["hypernet.4.weight"] @ hidden + state["hypernet.4.bias"]
        bias, matrix = generated[:width_out], generated[width_out:].reshape(rank, rank)
        for vector in range(x.shape[1]):
            inside = x[row, vector] @ state["U_l"] @ state["U_r"] @ matrix
            out[row, vector] = inside @ state["V_l"] @ state["V_r"] + bias
    return out


def random(kind, of, generator):
    layer = kind(of, APGSettings.parse(SMALL, where=""), generator=generator).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer


def test_self_wise(generator):
    layer = random(SelfWise, shape(6, 4, 6), generator)
    x = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    expected = oracle(layer, x.numpy()[:, None], x.numpy())[:, 0]
    np.testing.assert_allclose(layer(x).detach(), expected, rtol=1e-10)


def test_of_fields_conditioned_on_all_of_them(generator):
    layer = random(OfFields, shape(6, 6, 3 * 6, vectors=3), generator)
    x = torch.randn(5, 3, 6, generator=generator, dtype=torch.float64)
    expected = oracle(layer, x.numpy(), x.numpy().reshape(5, -1))
    np.testing.assert_allclose(layer(x).detach(), expected, rtol=1e-10)


def test_initial_values_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (
        SelfWise(shape(220, 400, 220), APGSettings(), generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert weights_digest(first) == weights_digest(again) != weights_digest(other)
    checked = 0
    for name, parameter in first.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
            continue
        assert parameter.std().item() == pytest.approx((2 / sum(parameter.shape)) ** 0.5, rel=0.15)
        checked += 1
    assert checked == 4 + 3


def test_on_dcnv2_every_hidden_linear_of_the_parallel_mlp_is_replaced():
    built = arm("DCNv2", DCNV2)
    backbone = built.arm.backbone
    layers = [backbone.get_submodule(path) for path in backbone.top_layers]
    assert [type(layer) for layer in layers] == [SelfWise, SelfWise]
    assert [layer.U_l.shape[0] for layer in layers] == [30, 12]
    assert sum(isinstance(m, APGLinear) for m in backbone.modules()) == 2
    assert set(backbone.top_parameters) <= set(dict(backbone.named_parameters()))
    assert f"{backbone.top_layers[0]}.hypernet.0.weight" in backbone.top_parameters


def test_on_fibinet_senet_and_both_bilinears_read_the_new_embeddings():
    built = arm("FiBiNET", FIBINET)
    backbone = built.arm.eval().backbone
    apg = backbone.sites["embedding"]
    assert type(apg) is OfFields
    read = []
    for reader in (backbone.senet_layer, backbone.bilinear_interaction1):
        reader.register_forward_pre_hook(lambda _m, inputs: read.append(inputs[0]))
    ids, numerics = batch()
    built.arm(ids, numerics)
    expected = apg(backbone.embedding(ids, numerics))
    assert len(read) == 2
    assert all(torch.equal(x, expected) for x in read)
    with torch.no_grad():  # the linear term is left alone
        for parameter in backbone.dnn.parameters():
            parameter.zero_()
    linear = backbone.lr_layer(ids, numerics)
    torch.testing.assert_close(built.arm(ids, numerics), torch.sigmoid(linear))


@pytest.mark.parametrize(("backbone", "settings"), [("DCNv2", DCNV2), ("FiBiNET", FIBINET)])
def test_detach_gives_the_plain_backbone_back(backbone, settings):
    built, dense = arm(backbone, settings), arm(backbone, settings, plugin="dense")
    assert built.initial_weights == dense.initial_weights == weights_digest(dense.arm.backbone)
    assert set(built.arm.state_dict()) != set(dense.arm.state_dict())
    plain = built.arm.eval().double().detach()
    assert plain is built.arm.backbone
    expected = dense.arm.double().eval()(*batch())
    assert torch.equal(built.arm(*batch()), expected), "moved with the rest to float64"
    assert plain.top_parameters == dense.arm.backbone.top_parameters
    assert set(built.arm.state_dict()) == set(dense.arm.state_dict())
    built.arm.detach()
    assert torch.equal(built.arm(*batch()), expected)


@pytest.mark.parametrize("carry", [copy.deepcopy, lambda arm: pickle.loads(pickle.dumps(arm))])
@pytest.mark.parametrize(("backbone", "settings"), [("DCNv2", DCNV2), ("FiBiNET", FIBINET)])
def test_a_copy_is_an_arm_of_its_own(backbone, settings, carry):
    built = arm(backbone, settings).arm.eval()
    with torch.no_grad():  # initial embeddings are so small that their products vanish
        built.backbone.embedding.table.normal_()
    expected = built(*batch())
    twin = carry(built)
    assert torch.equal(twin(*batch()), expected)
    twin.detach()
    assert not torch.equal(twin(*batch()), expected)
    assert torch.equal(built(*batch()), expected)


def test_its_weights_are_network_and_not_embedding():
    built = arm("FiBiNET", FIBINET).arm
    own = {id(p) for p in built.backbone.sites["embedding"].parameters()}
    assert own <= {id(p) for p in built.network_parameters()}
    assert not own & {id(p) for p in built.embedding_parameters()}


PLAIN = {name: entry.settings() for name, entry in BACKBONES.items()}


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_elsewhere_it_is_not_defined_and_says_where_it_is(name):
    table = TableShape(vocabulary_sizes=SIZES, n_numeric=0)
    if name in ("DCNv2", "FiBiNET"):
        assert APGSettings().misfit(PLAIN[name]) is None
        assert APGSettings().added_parameters(PLAIN[name], table) > 0
        return
    for count in (APGSettings().added_parameters, APGSettings().added_macs):
        with pytest.raises(UsageError, match=r"FiBiNET.*DCNv2"):
            count(PLAIN[name], table)
    with pytest.raises(UsageError, match=rf"arm apg on {name}: .*FiBiNET.*DCNv2"):
        arm(name, {})


@pytest.mark.parametrize(
    ("backbone", "apg", "words"),
    [
        (FiBiNETSettings(), {"rank_k": 11}, "11 is more than 10"),
        (DCNv2Settings.parse(DCNV2, where=""), {"rank_k": 9}, "9 is more than 8"),
        (DCNv2Settings.parse({"model_structure": "stacked"}, where=""), {}, "parallel"),
        (DCNv2Settings.parse({"embedding_dim": 1}, where=""), {}, "8 is more than 3"),
    ],
)
def test_a_rank_or_a_structure_that_does_not_fit(backbone, apg, words):
    settings = APGSettings.parse(apg, where="")
    with pytest.raises(UsageError, match=words):
        settings.layers(backbone, TableShape(vocabulary_sizes=SIZES, n_numeric=0))


def test_over_parameterisation_is_not_narrower_than_the_rank():
    with pytest.raises(UsageError, match="overparam_p = 3 is less than rank_k = 4"):
        APGSettings.parse({"overparam_p": 3, "rank_k": 4}, where="arm")


def test_it_cannot_be_built_without_a_backbone():
    with pytest.raises(UsageError, match="changes the backbone"):
        build_plugin("apg", 20, {}, seed=0)


def test_counts_by_hand():
    """U, V, hypernetwork; on DCNv2 less the Linears, and their products, that are gone."""
    table = TableShape(vocabulary_sizes=SIZES, n_numeric=0)
    settings = APGSettings.parse(SMALL, where="")

    def hypernet(width_in, width_out):
        parameters = width_in * 8 + 8 + 8 * 6 + 6 + 6 * (9 + width_out) + 9 + width_out
        return parameters, width_in * 8 + 8 * 6 + 6 * (9 + width_out)

    fields_parameters, fields_macs = hypernet(30, 10)
    fibinet = FiBiNETSettings()
    matrices = 10 * 5 + 5 * 3 + 3 * 5 + 5 * 10
    assert settings.added_parameters(fibinet, table) == matrices + fields_parameters
    assert settings.added_macs(fibinet, table) == 3 * (10 * 3 + 3 * 3 + 3 * 10) + fields_macs

    dcnv2 = DCNv2Settings.parse(DCNV2, where="")
    parameters = macs = 0
    for a, b in ((30, 12), (12, 8)):
        more, products = hypernet(a, b)
        parameters += a * 5 + 5 * 3 + 3 * 5 + 5 * b + more - (a * b + b)
        macs += a * 3 + 3 * 3 + 3 * b + products - a * b
    assert settings.added_parameters(dcnv2, table) == parameters
    assert settings.added_macs(dcnv2, table) == macs
