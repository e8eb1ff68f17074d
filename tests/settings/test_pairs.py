"""WideDeep, DeepFM, NFM, PNN, AFM, FwFM: counts by hand on a table with both kinds, and ranges."""

import pytest

from prime_bench.settings.backbones import (
    AFMSettings,
    DeepFMSettings,
    FwFMSettings,
    NFMSettings,
    PNNSettings,
    WideDeepSettings,
)
from prime_bench.settings.interface import TableShape

RAW = TableShape(vocabulary_sizes=(5, 7), n_numeric=3)
K, V, F, P, D = 4, 15, 5, 10, 20
TOP = {"embedding_dim": K, "hidden_units": [6, 3], "batch_norm": True}


def linear(width_in, width_out):
    return width_in * width_out + width_out


def top(width):
    return linear(width, 6) + linear(6, 3) + linear(3, 1) + 2 * (6 + 3)


def top_macs(width):
    return width * 6 + 6 * 3 + 3


ATTENTION = linear(K, 7) + 7 + K
HAND = [
    (WideDeepSettings, TOP, K * V + V + top(D), top_macs(D)),
    (DeepFMSettings, TOP, K * V + V + 1 + top(D), top_macs(D)),
    (NFMSettings, TOP, K * V + V + top(K), top_macs(K)),
    (PNNSettings, TOP, K * V + top(D + P), F * F * K + top_macs(D + P)),
    (
        AFMSettings,
        {"embedding_dim": K, "attention_dim": 7},
        K * V + V + 1 + ATTENTION,
        P * (K * 7 + 7) + F * F * K + K,
    ),
    (AFMSettings, {"embedding_dim": K, "use_attention": False}, K * V + V + 1, 0),
    (FwFMSettings, {"embedding_dim": K, "linear_type": "LW"}, K * V + V + P + 1, F * F * K),
    (FwFMSettings, {"embedding_dim": K, "linear_type": "FeLV"}, 2 * K * V + P + 1, F * F * K),
    (FwFMSettings, {"embedding_dim": K, "linear_type": "FiLV"}, K * V + D + P + 1, F * F * K + D),
]


def test_the_shape_counts_pairs():
    assert RAW.n_pairs == P
    assert TableShape(vocabulary_sizes=(2,) * 39, n_numeric=0).n_pairs == 741
    assert TableShape(vocabulary_sizes=(2,), n_numeric=0).n_pairs == 0


@pytest.mark.parametrize(("model", "table", "parameters", "macs"), HAND)
def test_counts_by_hand(model, table, parameters, macs):
    settings = model.parse(table, where="")

    assert settings.parameters(RAW) == parameters
    assert settings.macs(RAW) == macs


@pytest.mark.parametrize(
    ("model", "table", "paths"),
    [
        (AFMSettings, {"attention_dim": 0}, {"attention_dim"}),
        (AFMSettings, {"attention_dropout": [0.1]}, {"attention_dropout.1"}),
        (AFMSettings, {"attention_dropout": [0.1, 1.0]}, {"attention_dropout.1"}),
        (
            AFMSettings,
            {"attention_dropout": ["0.1", -0.1]},
            {f"attention_dropout.{i}" for i in (0, 1)},
        ),
        (AFMSettings, {"attention_dropout": 0.1}, {"attention_dropout"}),
        (AFMSettings, {"use_attention": 1}, {"use_attention"}),
        (FwFMSettings, {"linear_type": "felv"}, {"linear_type"}),
        (FwFMSettings, {"regularizer": 1e-5}, {"regularizer"}),
        (PNNSettings, {"hidden_units": []}, {"hidden_units"}),
        (NFMSettings, {"net_dropout": 1.0}, {"net_dropout"}),
        (WideDeepSettings, {"dnn_hidden_units": [4]}, {"dnn_hidden_units"}),
        (DeepFMSettings, {"batch_norm": "yes"}, {"batch_norm"}),
    ],
)
def test_a_value_out_of_range_is_a_fault_of_its_key(model, table, paths):
    settings, faults = model.check(table)

    assert settings is None
    assert {".".join(fault.path) for fault in faults} == paths


@pytest.mark.parametrize("model", sorted({row[0] for row in HAND}, key=lambda m: m.__name__))
def test_defaults_survive_json(model):
    assert model.parse(model().plain(), where="") == model()


def test_defaults_are_fuxictrs_and_the_papers():
    assert AFMSettings().plain() == {
        "embedding_dim": 10,
        "embedding_l2": 0.0,
        "network_l2": 0.0,
        "attention_dim": 10,
        "attention_dropout": [0.0, 0.0],
        "use_attention": True,
    }
    assert FwFMSettings().linear_type == "FiLV"
    for model in (WideDeepSettings, DeepFMSettings, NFMSettings, PNNSettings):
        assert model().hidden_units == (400, 400, 400)
        assert (model().net_dropout, model().batch_norm) == (0.0, False)
