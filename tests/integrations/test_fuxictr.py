"""FuxiCTR's checkpoints and outputs: loaded, reproduced, and written back tensor for tensor."""

from pathlib import Path

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_arm, build_backbone
from prime_bench.base.errors import UsageError
from prime_bench.data.schema import Field, Schema
from prime_bench.integrations.fuxictr import export_checkpoint, load_checkpoint
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec

VECTORS = Path(__file__).parents[1] / "vectors"
SIZES = {"C1": 7, "C2": 5, "C3": 11}
DEEP = {"batch_norm": True, "net_dropout": 0.1}
TOP = {"hidden_units": [16, 12, 8], **DEEP}
DNN_BESIDE = {"dnn_hidden_units": [16, 12, 8], **DEEP}
DCNV2 = {"parallel_dnn_hidden_units": [16, 12, 8], **DEEP}
APG = {"rank_k": 4, "overparam_p": 16, "hypernet_hidden_units": [32, 16]}
# The settings that the FuxiCTR models had which wrote the vectors.
MODELS = {
    "AFM": ("AFM", {"attention_dim": 16, "attention_dropout": [0.2, 0.2]}),
    "AutoInt": (
        "AutoInt",
        {
            **DNN_BESIDE,
            **{"attention_layers": 2, "num_heads": 2, "attention_dim": 16, "layer_norm": True},
            **{"use_scale": True, "use_wide": True, "use_residual": True},
        },
    ),
    "DCN": ("DCN", DNN_BESIDE),
    "DNN": ("DNN", TOP),
    "DeepFM": ("DeepFM", TOP),
    "FiBiNET": ("FiBiNET", {**TOP, "bilinear_type": "field_all"}),
    "FiBiNET_field_interaction": ("FiBiNET", {**TOP, "bilinear_type": "field_interaction"}),
    "FwFM_FeLV": ("FwFM", {"linear_type": "FeLV"}),
    "GDCN": ("GDCN", DNN_BESIDE),
    "MaskNet": (
        "MaskNet",
        {"dnn_hidden_units": [16, 12, 8], "net_dropout": 0.1, "reduction_ratio": 2.0},
    ),
    "NFM": ("NFM", TOP),
    "PNN": ("PNN", TOP),
    "WideDeep": ("WideDeep", TOP),
    "DCNv2": ("DCNv2", DCNV2),
    "APG_DCNv2": ("DCNv2", DCNV2),
}


def build(vector, *, sizes=SIZES, numeric="I1", seed=0, **changes):
    """The backbone as an arm's part, on the vectors' fields."""
    name, settings = MODELS[vector]
    fields = [Field(name=numeric, kind="numeric")]
    fields += [Field(name=n, kind="categorical", vocabulary_size=v) for n, v in sizes.items()]
    apg = vector.startswith("APG")
    job = Job(
        fingerprint="0",
        backbone=name,
        backbone_settings={**settings, **changes},
        plugin="apg" if apg else "dense",
        plugin_settings=APG if apg else {},
        training=TrainSpec(),
        seed=seed,
    )
    return build_arm(job.resolve(), Schema(fields=fields)).arm.eval().backbone


def checkpoint(vector):
    stored = np.load(VECTORS / f"{vector}.npz")
    return {
        key.removeprefix("state/"): torch.from_numpy(stored[key])
        for key in stored.files
        if key.startswith("state/")
    }


def inputs(vector):
    stored = np.load(VECTORS / f"{vector}.npz")
    ids = np.stack([stored[f"input/{name}"] for name in SIZES], axis=1)
    return torch.from_numpy(ids), torch.from_numpy(stored["input/I1"])[:, None]


def test_every_vector_and_every_backbone_of_the_paper_is_here():
    assert {path.stem for path in VECTORS.glob("*.npz")} == set(MODELS)
    assert {name for name, _ in MODELS.values()} == set(load_recipe("main13").backbones)


@pytest.mark.parametrize("vector", MODELS)
def test_fuxictrs_outputs_are_reproduced(vector):
    model = build(vector)
    load_checkpoint(model, checkpoint(vector))
    found = torch.sigmoid(model(*inputs(vector))).detach().numpy()
    expected = np.load(VECTORS / f"{vector}.npz")["probability"]
    assert expected.shape == (32,)
    assert np.ptp(expected) > 1e-3, "outputs that tell models apart"
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("vector", MODELS)
def test_a_checkpoint_goes_in_and_out_tensor_for_tensor(vector):
    given = checkpoint(vector)
    model = build(vector)
    before = model.embedding.table.detach().clone()
    load_checkpoint(model, given)
    assert not torch.equal(model.embedding.table, before)
    written = export_checkpoint(model)
    assert set(written) == set(given)
    for name, tensor in given.items():
        assert written[name].dtype == tensor.dtype, name
        assert written[name].is_contiguous(), name
        assert torch.equal(written[name], tensor), name
    other = build(vector, seed=1)
    load_checkpoint(other, written)
    assert torch.equal(other(*inputs(vector)), model(*inputs(vector)))


@pytest.mark.parametrize("vector", MODELS)
def test_what_is_written_shares_no_memory_with_the_model(vector):
    model = build(vector)
    written = export_checkpoint(model)
    copies = {name: tensor.clone() for name, tensor in written.items()}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(1)
    assert all(torch.equal(written[name], copies[name]) for name in written)


TABLE = "embedding_layer.embedding_layer.embedding_layers"
WRONG = [
    ("DNN", {"sizes": {**SIZES, "C2": 6}}, f"{TABLE}.C2.weight", "(6, 10)", "(5, 10)"),
    ("DNN", {"numeric": "I2"}, f"{TABLE}.I2.weight", "(10, 1)", "no such tensor"),
    ("DNN", {"embedding_dim": 8}, f"{TABLE}.I1.weight", "(8, 1)", "(10, 1)"),
    ("DNN", {"batch_norm": False}, "mlp.mlp.3.weight", "(12, 16)", "no such tensor"),
    ("DCNv2", {"num_cross_layers": 2}, "crossnet.cross_layers.2.weight", "no such", "(40, 40)"),
    ("DCNv2", {"num_cross_layers": 4}, "crossnet.cross_layers.3.weight", "(40, 40)", "no such"),
    ("MaskNet", {"emb_layernorm": False}, "emb_norm.0.weight", "no such", "(10,)"),
]


@pytest.mark.parametrize(("vector", "changes", "tensor", "expected", "found"), WRONG)
def test_the_first_tensor_that_does_not_fit_is_named(vector, changes, tensor, expected, found):
    model = build(vector, **changes)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError) as raised:
        load_checkpoint(model, checkpoint(vector))
    message = raised.value.message
    assert message.startswith(f"{tensor}: ")
    assert f"the model has {expected}" in message or f"the model has {expected} tensor" in message
    assert found in message
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_another_models_checkpoint_is_refused():
    with pytest.raises(UsageError, match=r"mlp\.mlp\.0\.weight"):
        load_checkpoint(build("DNN"), checkpoint("DCN"))
    with pytest.raises(UsageError, match="no such tensor"):
        load_checkpoint(build("DCNv2"), checkpoint("APG_DCNv2"))
    with_prime = checkpoint("DNN") | {"prime.alpha": torch.zeros(())}
    with pytest.raises(UsageError, match=r"prime\.alpha: is a tensor of PRIME") as error:
        load_checkpoint(build("DNN"), with_prime)
    assert 'not k.startswith("prime.")' in error.value.hint


def test_apg_on_fibinet_has_no_checkpoint_there():
    fields = [Field(name=n, kind="categorical", vocabulary_size=v) for n, v in SIZES.items()]
    job = Job(
        fingerprint="0",
        backbone="FiBiNET",
        backbone_settings={},
        plugin="apg",
        plugin_settings={},
        training=TrainSpec(),
        seed=0,
    )
    arm = build_arm(job.resolve(), Schema(fields=fields)).arm
    with pytest.raises(UsageError, match="sites embedding"):
        export_checkpoint(arm.backbone)
    assert "lr_layer.embedding_layer.embedding_layer.embedding_layers.C1.weight" in (
        export_checkpoint(arm.detach())
    )


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
def test_fields_of_one_kind_alone(kind):
    size = 5 if kind == "categorical" else None
    schema = Schema(fields=[Field(name=f"f{i}", kind=kind, vocabulary_size=size) for i in (1, 2)])
    model = build_backbone("DNN", schema, {}, seed=0)
    written = export_checkpoint(model)
    tables = {name: tuple(t.shape) for name, t in written.items() if name.startswith(TABLE)}
    shape = (5, 10) if kind == "categorical" else (10, 1)
    assert tables == {f"{TABLE}.f{i}.weight": shape for i in (1, 2)}
    other = build_backbone("DNN", schema, {}, seed=1)
    load_checkpoint(other, written)
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
