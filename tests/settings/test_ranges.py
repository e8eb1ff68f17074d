"""Each bound of each setting is tried from outside."""

import pytest

from prime_bench.settings.backbones import (
    AutoIntSettings,
    DCNSettings,
    DCNv2Settings,
    DNNSettings,
    FiBiNETSettings,
    GDCNSettings,
    MaskNetSettings,
)
from prime_bench.settings.data import DataSettings, LogSettings, SyntheticSettings
from prime_bench.settings.plugins import (
    APGSettings,
    AuxiliaryLoss,
    HiddenSubspaceSettings,
    MultilayerBaggedSettings,
    NoAnchor,
    PermutedRouting,
    PrimeConfig,
    ResidualMacsSettings,
    ResidualNoLayerNorm,
    ResidualParametersSettings,
    SingleBag,
    UniformRouting,
)
from prime_bench.settings.training import TrainSpec

OUTSIDE = [
    (TrainSpec, "batch_size", 1),
    (TrainSpec, "learning_rate", 0.0),
    (TrainSpec, "max_epochs", 0),
    (TrainSpec, "patience", 0),
    (TrainSpec, "min_delta", -1e-9),
    (TrainSpec, "learning_rate_factor", 0.0),
    (TrainSpec, "learning_rate_factor", 1.1),
    (TrainSpec, "learning_rate_floor", -1e-9),
    (TrainSpec, "max_gradient_norm", 0.0),
    (TrainSpec, "loss", "hinge"),
    (PrimeConfig, "bags", 0),
    (PrimeConfig, "experts_per_bag", 0),
    (PrimeConfig, "rank", 0),
    (PrimeConfig, "dense_weight", -0.1),
    (PrimeConfig, "dense_weight", 1.1),
    (PrimeConfig, "anchor", "odds"),
    (PrimeConfig, "temperature", 0.0),
    (PrimeConfig, "load_ema", 1.1),
    (PrimeConfig, "load_bias_step", -1.0),
    (PrimeConfig, "load_bias_bound", -1.0),
    (PrimeConfig, "auxiliary_weight", -1.0),
    (PrimeConfig, "routing", "random"),
    (PrimeConfig, "output", "logits"),
    (PrimeConfig, "detach_router", 1),
    (UniformRouting, "routing", "learned"),
    (PermutedRouting, "routing", "uniform"),
    (NoAnchor, "dense_weight", 1.1),
    (SingleBag, "bags", 0),
    (SingleBag, "experts_per_bag", 0),
    (AuxiliaryLoss, "load_bias_step", -1.0),
    (AuxiliaryLoss, "auxiliary_weight", -1.0),
    (ResidualMacsSettings, "experts", 0),
    (ResidualMacsSettings, "rank", 0),
    (ResidualMacsSettings, "dense_weight", -0.1),
    (ResidualNoLayerNorm, "width", 0),
    (HiddenSubspaceSettings, "bags", 0),
    (HiddenSubspaceSettings, "experts_per_bag", 0),
    (MultilayerBaggedSettings, "rank", 0),
    (ResidualParametersSettings, "width", 0),
    (ResidualParametersSettings, "dense_weight", 1.1),
    (DNNSettings, "embedding_dim", 0),
    (DNNSettings, "embedding_l2", -1.0),
    (DNNSettings, "network_l2", -1.0),
    (DNNSettings, "hidden_units", []),
    (DNNSettings, "hidden_units", [400, 0]),
    (DNNSettings, "hidden_units", [400, "400"]),
    (DNNSettings, "hidden_units", [400, True]),
    (DNNSettings, "net_dropout", 1.0),
    (DNNSettings, "net_dropout", -0.1),
    (DCNv2Settings, "num_cross_layers", 0),
    (DCNv2Settings, "model_structure", "paralel"),
    (DCNv2Settings, "parallel_dnn_hidden_units", [0]),
    (DCNv2Settings, "batch_norm", 1),
    (DCNSettings, "num_cross_layers", 0),
    (DCNSettings, "net_dropout", 1.0),
    (GDCNSettings, "num_cross_layers", 0),
    (GDCNSettings, "dnn_hidden_units", []),
    (FiBiNETSettings, "bilinear_type", "field"),
    (FiBiNETSettings, "reduction_ratio", 0),
    (MaskNetSettings, "dnn_hidden_units", []),
    (MaskNetSettings, "model_type", "Serial"),
    (MaskNetSettings, "parallel_num_blocks", 0),
    (MaskNetSettings, "parallel_block_dim", 0),
    (MaskNetSettings, "reduction_ratio", 0.0),
    (AutoIntSettings, "attention_layers", 0),
    (AutoIntSettings, "num_heads", 0),
    (AutoIntSettings, "attention_dim", 0),
    (AutoIntSettings, "net_dropout", -0.1),
    (APGSettings, "rank_k", 0),
    (APGSettings, "overparam_p", 0),
    (APGSettings, "hypernet_hidden_units", [0]),
    (DataSettings, "vocabulary", "valid"),
    (DataSettings, "numeric", "zscore"),
    (DataSettings, "min_count", 0),
    (LogSettings, "split_fractions", [0.5, 0.2, 0.2]),
    (LogSettings, "split_fractions", [0.5, 0.5, 0.0]),
    (LogSettings, "split_fractions", [0.5, 0.5]),
    (LogSettings, "split_seed", -1),
    (SyntheticSettings, "rows", 0),
    (SyntheticSettings, "strength", -1.0),
    (SyntheticSettings, "shape", "movielens"),
]


@pytest.mark.parametrize(("model", "key", "value"), OUTSIDE, ids=lambda part: str(part)[:40])
def test_a_value_outside_its_range_is_a_fault_of_that_key(model, key, value):
    settings, faults = model.check({key: value})

    assert settings is None
    assert {fault.path[0] for fault in faults} == {key}


@pytest.mark.parametrize("model", sorted({row[0] for row in OUTSIDE}, key=lambda m: m.__name__))
def test_defaults_are_inside(model):
    assert model.check(model().plain()) == (model(), [])


def test_the_papers_values_are_the_defaults():
    """Section 4.1 and appendix; what the paper leaves to FuxiCTR is fidelity 11 and 12."""
    assert PrimeConfig().plain() == {
        "bags": 4,
        "experts_per_bag": 8,
        "rank": 16,
        "dense_weight": 0.5,
        "temperature": 1.0,
        "load_ema": 0.99,
        "load_bias_step": 0.001,
        "load_bias_bound": 2.0,
        "auxiliary_weight": 0.0,
        "layer_norm": True,
        "routing": "learned",
        "output": "probability",
        "expert_input": "embedding",
        "router_input": "embedding",
        "detach_router": False,
    }
    assert TrainSpec().plain() == {
        "batch_size": 4096,
        "learning_rate": 0.001,
        "max_epochs": 100,
        "patience": 2,
        "min_delta": 1e-6,
        "learning_rate_factor": 0.1,
        "learning_rate_floor": 1e-6,
        "max_gradient_norm": 10.0,
        "loss": "probability",
        "matmul": "float32",
        "compile": False,
    }
