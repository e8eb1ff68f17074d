"""DNN and DCNv2 against FuxiCTR's outputs and against their equations."""

from pathlib import Path

import numpy as np
import pytest
import torch

from prime_bench.backbones.afm import AFM
from prime_bench.backbones.dcnv2 import DCNv2
from prime_bench.backbones.deepfm import DeepFM
from prime_bench.backbones.dnn import DNN
from prime_bench.backbones.fwfm import FwFM
from prime_bench.backbones.nfm import NFM
from prime_bench.backbones.pnn import PNN
from prime_bench.backbones.widedeep import WideDeep
from prime_bench.data.schema import Field, Schema
from prime_bench.settings.backbones import (
    AFMSettings,
    DCNv2Settings,
    DeepFMSettings,
    DNNSettings,
    FwFMSettings,
    NFMSettings,
    PNNSettings,
    WideDeepSettings,
)

VECTORS = Path(__file__).parent.parent / "vectors"
FUXICTR_TABLES = "embedding_layer.embedding_layer.embedding_layers."
DEEP = {"batch_norm": True, "net_dropout": 0.1}

# Ids of each field with the training vocabulary, PAD and out-of-vocabulary included.
# fmt: off
AVAZU_X1 = [
    9, 9, 3480, 4271, 26, 4864, 305, 33, 228186, 1048285, 6515, 6, 6, 1940, 10, 11, 349, 6, 61,
    171, 52, 26,
]
CRITEO_X4_001 = [
    44, 99, 122, 41, 220, 112, 80, 69, 92, 6, 27, 37, 72, 1446, 554, 157339, 117822, 306, 18, 11882,
    630, 5, 39530, 5131, 156656, 3176, 28, 11043, 148913, 12, 4560, 2003, 5, 154564, 18, 17, 53031,
    82, 40955,
]
# fmt: on


def categories(sizes):
    return Schema(
        fields=[
            Field(name=f"f{i}", kind="categorical", vocabulary_size=n) for i, n in enumerate(sizes)
        ]
    )


def weights(model):
    return {name: value.detach().double().numpy() for name, value in model.state_dict().items()}


def mlp(x, state, name, n_layers):
    """Linear and ReLU `n_layers` times, no batch norm or dropout: Linears sit at 0, 2, 4, ..."""
    for layer in range(n_layers):
        linear = f"{name}.mlp.{2 * layer}"
        x = np.maximum(x @ state[f"{linear}.weight"].T + state[f"{linear}.bias"], 0)
    return x


@pytest.mark.parametrize(
    ("name", "build", "settings"),
    [
        ("DNN", DNN, DNNSettings(hidden_units=(16, 12, 8), **DEEP)),
        ("DCNv2", DCNv2, DCNv2Settings(parallel_dnn_hidden_units=(16, 12, 8), **DEEP)),
    ],
)
def test_fuxictrs_outputs_are_reproduced(name, build, settings):
    vector = np.load(VECTORS / f"{name}.npz")
    fields = [Field(name="I1", kind="numeric")]
    fields += categories([7, 5, 11]).fields
    model = build(Schema(fields=fields), settings).eval()
    given = {
        key.removeprefix("state/"): torch.from_numpy(vector[key])
        for key in vector.files
        if key.startswith("state/")
    }
    tables = {
        key.removeprefix(FUXICTR_TABLES).removesuffix(".weight"): given.pop(key)
        for key in list(given)
        if key.startswith(FUXICTR_TABLES)
    }
    given["embedding.table"] = torch.cat([tables["C1"], tables["C2"], tables["C3"]])
    given["embedding.numeric_weight"] = tables["I1"].T
    model.load_state_dict(given)
    ids = torch.from_numpy(np.stack([vector[f"input/C{i}"] for i in (1, 2, 3)], axis=1))
    numerics = torch.from_numpy(vector["input/I1"])[:, None]
    found = torch.sigmoid(model(ids, numerics)).detach().numpy()
    assert len(found) == 32
    np.testing.assert_allclose(found, vector["probability"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("structure", ["crossnet_only", "stacked", "parallel", "stacked_parallel"])
def test_dcnv2_follows_its_equations(schema, rows, structure):
    settings = DCNv2Settings.parse(
        {
            "model_structure": structure,
            "embedding_dim": 3,
            **({"stacked_dnn_hidden_units": [6, 5]} if structure.startswith("stacked") else {}),
            **({"parallel_dnn_hidden_units": [4]} if structure.endswith("parallel") else {}),
        },
        where="backbone",
    )
    model = DCNv2(schema, settings).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    seen = {}
    for name, site in model.sites.items():
        site.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out}))
    ids, numerics = rows(11)
    logits = model(ids, numerics.double()).detach().numpy()

    state = weights(model)
    z = seen["embedding"].detach().numpy().reshape(11, -1)
    x = z
    for layer in range(3):
        x = x + z * (x @ state[f"crossnet.cross_layers.{layer}.weight"].T)
        x = x + z * state[f"crossnet.cross_layers.{layer}.bias"]
        np.testing.assert_allclose(seen[f"cross_{layer + 1}"].detach(), x, rtol=1e-10)
    parts = [mlp(x, state, "stacked_dnn", 2) if structure.startswith("stacked") else x]
    if structure.endswith("parallel"):
        parts.append(mlp(z, state, "parallel_dnn", 1))
    expected = np.concatenate(parts, axis=1) @ state["fc.weight"][0] + state["fc.bias"]
    np.testing.assert_allclose(logits, expected, rtol=1e-10)

    top = {"stacked": "stacked_dnn", "crossnet_only": None}.get(structure, "parallel_dnn")
    assert {path.split(".")[0] for path in model.top_layers} == ({top} if top else set())
    assert len(model.top_layers) == {"stacked": 2, "crossnet_only": 0}.get(structure, 1)
    heads = [name for name in model.top_parameters if name.startswith("fc")]
    assert heads == (["fc.weight", "fc.bias"] if structure == "stacked" else [])
    if top:
        read = x if structure == "stacked" else z
        np.testing.assert_allclose(seen["top_input"].detach(), read, rtol=1e-10)
    else:
        assert "top_input" not in model.sites


def test_dnn_follows_its_equation(schema, rows):
    model = DNN(schema, DNNSettings(hidden_units=(6, 5), embedding_dim=3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    ids, numerics = rows(11)
    state = weights(model)
    z = model.embedding(ids, numerics.double()).detach().numpy().reshape(11, -1)
    expected = mlp(z, state, "mlp", 2) @ state["mlp.mlp.4.weight"][0] + state["mlp.mlp.4.bias"]
    np.testing.assert_allclose(model(ids, numerics.double()).detach(), expected, rtol=1e-10)
    assert model.top_layers == ["mlp.mlp.0", "mlp.mlp.2"]
    assert len(model.top_parameters) == 6


def test_linears_start_xavier_normal_with_zero_bias(schema):
    models = [
        DNN(schema, DNNSettings(hidden_units=(400, 300))),
        DCNv2(schema, DCNv2Settings(embedding_dim=40, parallel_dnn_hidden_units=(400,))),
    ]
    checked = 0
    for model in models:
        for layer in (m for m in model.modules() if isinstance(m, torch.nn.Linear)):
            assert not layer.bias.any()
            std = (2 / (layer.in_features + layer.out_features)) ** 0.5
            tolerance = 4 / (2 * layer.weight.numel()) ** 0.5  # four standard errors
            assert layer.weight.std().item() == pytest.approx(std, rel=tolerance)
            checked += 1
    assert checked == 3 + 3 + 1 + 1


@pytest.mark.parametrize(
    ("build", "settings", "sizes", "total", "beside_embeddings"),
    [
        (DNN, DNNSettings(), AVAZU_X1, 13_395_811, 409_601),
        (DNN, DNNSettings(), CRITEO_X4_001, 9_585_071, 477_601),
        (DCNv2, DCNv2Settings(batch_norm=True), AVAZU_X1, 13_544_291, 558_081),
        (DCNv2, DCNv2Settings(batch_norm=True, num_cross_layers=5), AVAZU_X1, 13_641_531, 655_321),
        (DCNv2, DCNv2Settings(), CRITEO_X4_001, 10_042_931, 935_461),
        (WideDeep, WideDeepSettings(batch_norm=True), AVAZU_X1, 14_696_832, 412_001),
        (WideDeep, WideDeepSettings(batch_norm=True), CRITEO_X4_001, 10_498_218, 480_001),
        (DeepFM, DeepFMSettings(batch_norm=True), AVAZU_X1, 14_696_833, 412_002),
        (DeepFM, DeepFMSettings(batch_norm=True), CRITEO_X4_001, 10_498_219, 480_002),
        (NFM, NFMSettings(), AVAZU_X1, 14_610_432, 325_601),
        (NFM, NFMSettings(), CRITEO_X4_001, 10_343_818, 325_601),
        (PNN, PNNSettings(), AVAZU_X1, 13_488_211, 502_001),
        (PNN, PNNSettings(batch_norm=True), CRITEO_X4_001, 9_883_871, 776_401),
        (AFM, AFMSettings(attention_dim=16), AVAZU_X1, 14_285_034, 203),
        (AFM, AFMSettings(attention_dim=32), CRITEO_X4_001, 10_018_612, 395),
        (FwFM, FwFMSettings(linear_type="FeLV"), AVAZU_X1, 25_972_652, 232),
        (FwFM, FwFMSettings(linear_type="FeLV"), CRITEO_X4_001, 18_215_682, 742),
    ],
)
def test_published_parameter_counts(build, settings, sizes, total, beside_embeddings):
    schema = categories(sizes)
    assert settings.parameters(schema.shape) == total
    with torch.device("meta"):
        model = build(schema, settings)
    counted = sum(p.numel() for p in model.parameters() if p.requires_grad)
    embeddings = sum(p.numel() for p in model.embedding_parameters())
    assert (counted, counted - embeddings) == (total, beside_embeddings)
