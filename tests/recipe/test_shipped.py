"""The recipes that come with the package are test cases, and they are counted."""

import tomllib
from pathlib import Path

import pytest

from prime_bench.base.bundled import bundled_folder
from prime_bench.catalog import BACKBONES
from prime_bench.data.variant import resolve
from prime_bench.recipe.load import load_recipe

RECIPES = sorted(bundled_folder("recipes").glob("*.toml"))
JOBS = {"main13": 260, "quick": 18}


def test_all_recipes_were_found():
    assert [path.stem for path in RECIPES] == sorted(JOBS)
    assert RECIPES[0].parent == Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_and_has_its_jobs(path):
    recipe = load_recipe(path)

    trials = recipe.trials()
    assert len(trials) == JOBS[path.stem]
    assert len({str(trial) for trial in trials}) == len(trials)
    assert recipe.report.family


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipes_data_sets_have_cards_that_take_its_keys(path):
    for name, keys in load_recipe(path).datasets.items():
        assert resolve(name, keys).name == name


# ---- main13

H = [400, 400, 400]
ADAM = {
    "embedding_dim": 10,
    "batch_size": 4096,
    "learning_rate": 1e-3,
    "max_epochs": 100,
    "patience": 2,
    "min_delta": 1e-6,
    "learning_rate_factor": 0.1,
    "learning_rate_floor": 1e-6,
    "max_gradient_norm": 10.0,
    "loss": "probability",
}
# The reference values: BARS's Avazu_x1 and Criteo_x1 trials, with the deviations of fidelity 7-10.
AFM = {"use_attention": True, "network_l2": 0.0}
AUTOINT = {
    "dnn_hidden_units": H,
    "num_heads": 2,
    "attention_dim": 256,
    "net_dropout": 0.1,
    "batch_norm": True,
    "layer_norm": True,
    "use_residual": True,
    "network_l2": 0.0,
}
CROSS = {"dnn_hidden_units": H, "num_cross_layers": 3, "network_l2": 0.0}
MLP = {"hidden_units": H, "network_l2": 0.0}
MASK = {
    "dnn_hidden_units": H,
    "model_type": "SerialMaskNet",
    "net_layernorm": True,
    "network_l2": 0.0,
}
V2 = {
    "model_structure": "parallel",
    "parallel_dnn_hidden_units": H,
    "num_cross_layers": 3,
    "network_l2": 0.0,
}


def _mlp(dropout, batch_norm, l2):
    return {"net_dropout": dropout, "batch_norm": batch_norm, "embedding_l2": l2}


REFERENCE = {
    "AFM": {
        "avazu": AFM
        | {"attention_dim": 16, "attention_dropout": [0.2, 0.2], "embedding_l2": 1e-05},
        "criteo": AFM
        | {"attention_dim": 32, "attention_dropout": [0.0, 0.0], "embedding_l2": 1e-06},
    },
    "AutoInt": {
        "avazu": AUTOINT
        | {"attention_layers": 5, "use_scale": True, "use_wide": False, "embedding_l2": 0.01},
        "criteo": AUTOINT
        | {"attention_layers": 3, "use_scale": False, "use_wide": True, "embedding_l2": 1e-05},
    },
    "DCN": {
        "avazu": CROSS | _mlp(0.1, False, 0.05),
        "criteo": CROSS | _mlp(0.1, False, 1e-05),
    },
    "DNN": {
        "avazu": MLP | _mlp(0.1, False, 0.01),
        "criteo": MLP | _mlp(0.1, False, 1e-05),
    },
    "DeepFM": {
        "avazu": MLP | _mlp(0.3, True, 0.1),
        "criteo": MLP | _mlp(0.1, True, 1e-05),
    },
    "FiBiNET": {
        "avazu": MLP | {"bilinear_type": "field_all", "reduction_ratio": 3} | _mlp(0.2, True, 0.1),
        "criteo": MLP
        | {"bilinear_type": "field_interaction", "reduction_ratio": 12}
        | _mlp(0.5, False, 1e-05),
    },
    "FwFM": {
        "avazu": {"linear_type": "FeLV", "embedding_l2": 1e-05, "network_l2": 1e-05},
        "criteo": {"linear_type": "FeLV", "embedding_l2": 5e-06, "network_l2": 5e-06},
    },
    "GDCN": {
        "avazu": CROSS | _mlp(0.2, True, 0.05),
        "criteo": CROSS | _mlp(0.1, False, 1e-05),
    },
    "MaskNet": {
        "avazu": MASK
        | {"reduction_ratio": 2.0, "emb_layernorm": True, "net_dropout": 0.4, "embedding_l2": 0.1},
        "criteo": MASK
        | {
            "reduction_ratio": 0.2,
            "emb_layernorm": False,
            "net_dropout": 0.2,
            "embedding_l2": 1e-05,
        },
    },
    "NFM": {
        "avazu": MLP | _mlp(0.3, False, 0.0005),
        "criteo": MLP | _mlp(0.1, False, 0.0001),
    },
    "PNN": {
        "avazu": MLP | _mlp(0.2, False, 5e-05),
        "criteo": MLP | _mlp(0.1, True, 1e-05),
    },
    "WideDeep": {
        "avazu": MLP | _mlp(0.2, True, 0.005),
        "criteo": MLP | _mlp(0.1, True, 1e-05),
    },
    "DCNv2": {
        "avazu": V2 | _mlp(0.2, True, 0.05),
        "criteo": V2 | _mlp(0.1, False, 1e-05),
    },
}
MAIN13 = tomllib.loads((bundled_folder("recipes") / "main13.toml").read_text(encoding="utf-8"))


def test_main13_is_the_papers_grid():
    assert MAIN13["seeds"] == [2021, 190034, 27011, 948432, 992817]
    assert MAIN13["arms"] == ["dense", "prime"]
    assert MAIN13["training"] == ADAM
    assert MAIN13["dataset"] == {
        "avazu": {"vocabulary": "all", "min_count": 1},
        "criteo": {"vocabulary": "all", "numeric": "raw", "min_count": 10},
    }
    assert MAIN13["report"]["tables"] == ["main"]
    assert MAIN13["report"]["family"] == [["prime", "dense"]]
    assert "arm" not in MAIN13


def test_main13_has_the_thirteen_backbones_and_no_other():
    assert len(REFERENCE) == 13
    assert set(MAIN13["backbone"]) == set(REFERENCE) == set(BACKBONES)


@pytest.mark.parametrize("dataset", ["avazu", "criteo"])
@pytest.mark.parametrize("backbone", REFERENCE)
def test_main13_has_every_reference_value(backbone, dataset):
    table = dict(MAIN13["backbone"][backbone])
    on = table.pop("on")

    assert set(on) == {"avazu", "criteo"}
    assert {**table, **on[dataset]} == REFERENCE[backbone][dataset]
    assert not set(table) & set(on[dataset]), "a key is set twice"


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
@pytest.mark.parametrize("dataset", ["avazu", "criteo"])
def test_main13_hands_the_values_on_to_the_jobs(backbone, dataset):
    settings = load_recipe("main13").backbones[backbone][dataset]

    assert REFERENCE[backbone][dataset].items() <= settings.items()
    assert settings["embedding_dim"] == 10


def test_main13_asks_for_the_data_that_the_bare_prepare_command_makes():
    recipe = load_recipe("main13")

    commands = [resolve(name, keys).prepare_command() for name, keys in recipe.datasets.items()]
    assert commands == [f"prime-bench prepare {name}" for name in ("avazu", "criteo")]
