"""The recipes that come with the package are test cases, and they are counted."""

import tomllib
from pathlib import Path

import pytest

from prime_bench.base.files import bundled_folder
from prime_bench.catalog import BACKBONES
from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.plugins import AnchoredSettings
from prime_bench.settings.probes import CostSettings, GradientsSettings

RECIPES = sorted(bundled_folder("recipes").glob("*.toml"))
JOBS = {
    "apg": 30,  # 2 backbones x 3 arms x 5 seeds
    "apg_selected": 70,  # 2 x 7 x 5
    "controls": 180,  # 4 x 9 x 5
    "cost": 26,  # 13 x 2 data sets, all arms in one
    "criteo_anchor": 630,  # 6 data sets x 3 x 7 x 5
    "criteo_numeric": 375,  # 3 data sets x 5 x 5 x 5
    "criteo_x1_13": 195,  # 13 x 3 x 5
    "dense_weight": 80,  # 4 x 4 x 5
    "frappe13": 195,  # 13 x 3 x 5
    "gdcn_attachment": 50,  # 10 x 5
    "gdcn_routing": 45,  # 9 x 5
    "gradients": 36,  # 4 x 3 x 3
    "main13": 260,
    "main13_by_validation": 260,
    "main13_logit_anchor": 260,
    "main13_train_vocabulary": 260,
    "movielens13": 195,  # 13 x 3 x 5
    "quick": 18,
    "routing": 20,  # 4 x 1 x 5
    "structural": 120,  # 4 x 6 x 5
    "subgroups": 60,  # 4 x 3 x 5
    "sweep": 60,  # 2 x (1 + 9) x 3
}


def test_all_recipes_were_found():
    assert [path.stem for path in RECIPES] == sorted(JOBS)
    assert RECIPES[0].parent == Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_and_has_its_jobs(path):
    recipe = load_recipe(path)

    job_specs = recipe.job_specs()
    assert len(job_specs) == JOBS[path.stem]
    assert len({str(job_spec) for job_spec in job_specs}) == len(job_specs)
    assert recipe.report.family or recipe.kind != "train"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipes_data_sets_have_cards_that_take_its_keys(path):
    for name, keys in load_recipe(path).datasets.items():
        assert resolve(name, keys).name == keys.get("card", name)


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
    assert MAIN13["arm"] == {"prime": {"anchor": "probability"}}


def test_main13_has_the_thirteen_backbones_and_no_other():
    assert len(REFERENCE) == 13
    assert set(MAIN13["backbone"]) == set(REFERENCE) <= set(BACKBONES)


@pytest.mark.parametrize("dataset", ["avazu", "criteo"])
@pytest.mark.parametrize("backbone", REFERENCE)
def test_main13_has_every_reference_value(backbone, dataset):
    table = dict(MAIN13["backbone"][backbone])
    on = table.pop("on")

    assert set(on) == {"avazu", "criteo"}
    assert {**table, **on[dataset]} == REFERENCE[backbone][dataset]
    assert not set(table) & set(on[dataset]), "a key is set twice"


@pytest.mark.parametrize("backbone", sorted(REFERENCE))
@pytest.mark.parametrize("dataset", ["avazu", "criteo"])
def test_main13_hands_the_values_on_to_the_jobs(backbone, dataset):
    settings = load_recipe("main13").backbones[backbone][dataset].plain()

    assert REFERENCE[backbone][dataset].items() <= settings.items()
    assert settings["embedding_dim"] == 10


def test_main13_asks_for_the_data_that_the_bare_prepare_command_makes():
    recipe = load_recipe("main13")

    commands = [resolve(name, keys).prepare_command() for name, keys in recipe.datasets.items()]
    assert commands == [f"prime-bench prepare {name}" for name in ("avazu", "criteo")]


# ---- the others

FOUR = ["DNN", "AutoInt", "FiBiNET", "DCNv2"]


def _recipe(name):
    return tomllib.loads((bundled_folder("recipes") / f"{name}.toml").read_text(encoding="utf-8"))


def _ids(name):
    """Job ids, each bound to the digest of its data set's settings."""
    recipe = load_recipe(name)
    digests = {data: resolve(data, keys).digest for data, keys in recipe.datasets.items()}
    return {
        job_spec.bind(digests[job_spec.dataset]).id: job_spec for job_spec in recipe.job_specs()
    }


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("controls", 40),
        ("apg", 20),
        ("apg_selected", 20),
        ("dense_weight", 40),
        ("gdcn_attachment", 10),
        ("structural", 40),
        ("criteo_numeric", 50),
        ("main13_by_validation", 260 - (7 + 2) * 10),
        ("main13_logit_anchor", 130),
        ("main13_train_vocabulary", 0),
    ],
)
def test_what_main13_trains_is_not_trained_again(name, shared):
    """Dense and PRIME of the same backbone, data and seed have main13's very ids."""
    main, own = _ids("main13"), _ids(name)

    common = set(main) & set(own)
    assert len(common) == shared
    assert {own[job].arm.name for job in common} <= {"dense", "prime"}
    assert {own[job].dataset for job in common} <= {"avazu", "criteo"}, "a report looks by name"


@pytest.mark.parametrize("name", sorted(set(JOBS) - {"quick", "sweep", "cost"}))
def test_seeds_and_protocol_are_the_papers(name):
    checkpoints = 3 if name == "gradients" else 5
    assert _recipe(name)["seeds"] == MAIN13["seeds"][:checkpoints]
    few_rows = {"batch_size": 256} if name == "criteo_anchor" else {}
    assert _recipe(name)["training"] == ADAM | few_rows


def test_costs_are_measured_by_the_papers_protocol_on_main13s_backbones():
    recipe = _recipe("cost")
    arms = {
        (job_spec.dataset, job_spec.backbone): tuple(arm.plugin for arm in job_spec.others)
        for job_spec in load_recipe("cost").job_specs()
    }

    assert {key: recipe[key] for key in ("dataset", "training", "backbone")} == {
        key: MAIN13[key] for key in ("dataset", "training", "backbone")
    }
    assert recipe["seeds"] == MAIN13["seeds"][:1]
    assert recipe["probe"] == CostSettings().plain()
    assert recipe["report"]["tables"] == ["cost"]
    assert {on for on, plugins in arms.items() if "apg" in plugins} == {
        (dataset, backbone) for dataset in recipe["dataset"] for backbone in ("FiBiNET", "DCNv2")
    }
    assert all(plugins[-1] == "prime" for plugins in arms.values())


@pytest.mark.parametrize(
    ("name", "trained_by"),
    [
        ("gradients", "controls"),
        ("routing", "controls"),
        ("subgroups", "controls"),
        ("gdcn_routing", "gdcn_attachment"),
    ],
)
def test_probes_measure_arms_that_another_recipe_trains(name, trained_by):
    recipe, known = load_recipe(name), _ids(trained_by)
    digests = {data: resolve(data, keys).digest for data, keys in recipe.datasets.items()}

    needed = {t.bind(digests[t.dataset]).training_run.id for t in recipe.job_specs()}

    assert len(needed) == JOBS[name]
    assert needed <= set(known)


def test_gradients_are_measured_by_the_papers_protocol():
    probe = load_recipe("gradients").probe

    ours = {"null_labels": 1, "include_head": True}
    assert probe == GradientsSettings(**ours)


def test_controls_are_figure_4():
    recipe = _recipe("controls")
    controls = ["residual_parameters", "residual_macs", "uniform_routing", "permuted_routing"]
    controls += ["no_anchor", "single_bag", "auxiliary_loss"]

    assert recipe["arms"] == ["dense", "prime", *controls]
    assert list(recipe["dataset"]) == ["avazu"]
    assert list(recipe["backbone"]) == FOUR
    assert recipe["report"]["family"] == [["prime", control] for control in controls]


def test_apg_stands_where_it_is_defined():
    recipe = _recipe("apg")

    assert list(recipe["backbone"]) == ["FiBiNET", "DCNv2"]
    assert recipe["report"]["family"] == [["prime", "apg"]]


def test_apgs_candidates_are_one_step_from_the_template():
    recipe = load_recipe("apg_selected")
    template = next(arm for arm in recipe.arms if arm.name == "apg").settings.plain()
    steps = {
        arm.name: {key: v for key, v in arm.settings.plain().items() if v != template[key]}
        for arm in recipe.arms
        if arm.plugin == "apg"
    }

    assert steps == {
        "apg": {},
        "apg_rank_4": {"rank_k": 4},
        "apg_inner_32": {"overparam_p": 32},
        "apg_inner_128": {"overparam_p": 128},
        "apg_hypernet_256": {"hypernet_hidden_units": [256, 128]},
    }
    assert len(set(_ids("apg")) & set(_ids("apg_selected"))) == 30


def test_dense_weights():
    weights = {
        arm.name: arm.settings.plain().get("dense_weight")
        for arm in load_recipe("dense_weight").arms
    }

    assert list(_recipe("dense_weight")["backbone"]) == FOUR
    assert weights == {
        **{"dense": None, "prime": 0.5},
        **{"dense_weight_25": 0.25, "dense_weight_75": 0.75},
    }


def test_gdcn_attachments_are_the_ten_rows_of_the_supplement():
    recipe = load_recipe("gdcn_attachment")
    rows = [
        (
            arm.label,
            arm.settings.router_input,
            arm.settings.expert_input,
            arm.settings.detach_router,
            arm.settings.output,
            arm.settings.layer_norm,
        )
        for arm in recipe.arms[1:]
    ]
    pre, post = "embedding", "cross_out"
    assert recipe.arms[0].name == "dense"
    assert rows == [
        ("PRIME", pre, pre, False, "probability", True),
        ("Post/Post", post, post, False, "probability", True),
        ("Post/Pre", post, pre, False, "probability", True),
        ("Pre/Post", pre, post, False, "probability", True),
        ("Post/Pre, detached", post, pre, True, "probability", True),
        ("Post/Pre, logit", post, pre, False, "logit", True),
        ("Cross-1/Pre", "cross_1", pre, False, "probability", True),
        ("Cross-2/Pre", "cross_2", pre, False, "probability", True),
        ("Cross-2/Pre, no LN", "cross_2", pre, False, "probability", False),
    ]


def test_structural_rivals_have_the_ranks_of_fidelity_27_and_28():
    ranks = {arm.name: arm.settings.plain().get("rank") for arm in load_recipe("structural").arms}

    assert list(_recipe("structural")["backbone"]) == FOUR
    assert ranks == {
        **{"dense": None, "prime": 16, "hidden_subspace": 4},
        **{f"multilayer_bagged_{rank}": rank for rank in (4, 8, 16)},
    }


def test_criteo_numeric_has_three_rules_and_equal_backbones_under_each():
    recipe = load_recipe("criteo_numeric")

    assert [(name, keys["numeric"]) for name, keys in recipe.datasets.items()] == [
        ("criteo", "raw"),
        ("criteo_log_bucket", "log_bucket"),
        ("criteo_log1p", "log1p"),
    ]
    for name, settings in recipe.backbones.items():
        assert settings["criteo"] == settings["criteo_log_bucket"] == settings["criteo_log1p"]
        assert REFERENCE[name]["criteo"].items() <= settings["criteo"].plain().items()


BEST_BY_VALIDATION = {
    ("AFM", "avazu"): {"attention_dropout": [0.4, 0.4]},
    ("AutoInt", "avazu"): {"use_wide": True},
    ("DCN", "avazu"): {"net_dropout": 0.4, "embedding_l2": 0.01},
    ("DeepFM", "avazu"): {"net_dropout": 0.2, "embedding_l2": 0.01},
    ("FwFM", "avazu"): {"linear_type": "FiLV"},
    ("MaskNet", "avazu"): {"reduction_ratio": 0.5, "net_dropout": 0.3, "embedding_l2": 0.05},
    ("MaskNet", "criteo"): {"reduction_ratio": 0.1, "net_dropout": 0.3},
    ("NFM", "criteo"): {"embedding_l2": 1e-3},
    ("DCNv2", "avazu"): {"num_cross_layers": 2},
}


@pytest.mark.parametrize("dataset", ["avazu", "criteo"])
@pytest.mark.parametrize("backbone", REFERENCE)
def test_by_validation_differs_from_main13_in_the_chosen_trials_alone(backbone, dataset):
    expected = REFERENCE[backbone][dataset] | BEST_BY_VALIDATION.get((backbone, dataset), {})

    found = load_recipe("main13_by_validation").backbones[backbone][dataset].plain()
    assert expected.items() <= found.items()
    assert found.keys() == load_recipe("main13").backbones[backbone][dataset].plain().keys()


def test_the_logit_as_anchor_is_all_that_main13_logit_anchor_changes():
    recipe = _recipe("main13_logit_anchor")

    assert "own logit" in recipe["report"]["notes"].pop()
    assert {**recipe, "title": ""} == {k: v for k, v in MAIN13.items() if k != "arm"} | {
        "title": ""
    }


ANCHORED = sorted(set(JOBS) - {"quick", "sweep", "criteo_anchor", "main13_logit_anchor"})


@pytest.mark.parametrize("name", ANCHORED)
def test_every_arm_of_the_papers_experiments_has_the_literal_anchor(name):
    """All but the direct logit residual, which has none (fidelity 32, 40)."""
    anchors = {
        arm.name: arm.settings.anchor
        for arm in load_recipe(name).arms
        if isinstance(arm.settings, AnchoredSettings)
    }

    assert anchors.pop("post_pre_logit", "logit") == "logit"
    assert set(anchors.values()) == {"probability"}


def test_criteo_anchor_has_both_readings_of_each_arm():
    recipe = load_recipe("criteo_anchor")
    pairs = {
        arm.name: (arm.plugin, arm.settings.anchor)
        for arm in recipe.arms
        if isinstance(arm.settings, AnchoredSettings)
    }

    assert {name.rsplit("_", 1)[1] for name in pairs} == {"logit", "probability"}
    for name, (plugin, anchor) in pairs.items():
        assert name.rsplit("_", 1)[1] == anchor
        other = "logit" if anchor == "probability" else "probability"
        assert pairs[f"{name.rsplit('_', 1)[0]}_{other}"] == (plugin, other)
    assert {keys["numeric"] for keys in recipe.datasets.values()} == {"raw", "log_bucket", "log1p"}


def test_the_table_of_gdcn_shows_routing_of_the_rows_that_the_supplement_names():
    assert load_recipe("gdcn_routing").probe.split == "test"
    assert load_recipe("routing").probe.split == "valid"


def test_train_vocabulary_is_main13_but_for_the_vocabulary():
    recipe = _recipe("main13_train_vocabulary")

    assert {keys.pop("vocabulary") for keys in recipe["dataset"].values()} == {"train"}
    for keys in recipe["dataset"].values():
        keys["vocabulary"] = "all"
    assert {**recipe, "title": ""} == {**MAIN13, "title": ""}


# ---- BARS's own data sets

BARS = {"frappe13": "frappe", "movielens13": "movielens", "criteo_x1_13": "criteo-x1"}


@pytest.mark.parametrize("name", BARS)
def test_bars_recipes_have_every_backbone_with_dense_prime_and_the_matched_residual(name):
    recipe = load_recipe(name)

    assert set(recipe.backbones) == set(REFERENCE)
    assert [arm.plugin for arm in recipe.arms] == ["dense", "prime", "residual_parameters"]
    assert list(recipe.datasets) == [BARS[name]]


@pytest.mark.parametrize("name", BARS)
def test_bars_recipes_ask_for_the_data_that_the_bare_prepare_command_makes(name):
    recipe = load_recipe(name)

    commands = [resolve(data, keys).prepare_command() for data, keys in recipe.datasets.items()]
    assert commands == [f"prime-bench prepare {BARS[name]}"]
    assert [keys["vocabulary"] for keys in recipe.datasets.values()] == ["train"]


@pytest.mark.parametrize("name", BARS)
def test_gdcn_has_dcnv2s_values_where_bars_has_none(name):
    tables = _recipe(name)["backbone"]
    shared = {"net_dropout", "batch_norm", "embedding_l2", "network_l2"}

    assert {k: tables["GDCN"][k] for k in shared} == {k: tables["DCNv2"][k] for k in shared}
    assert tables["GDCN"]["dnn_hidden_units"] == tables["DCNv2"]["parallel_dnn_hidden_units"]


def test_criteo_x1_has_main13s_criteo_values_but_for_the_wider_dcnv2():
    """`main13` carries the trials of Criteo_x1 over to Criteo_x4 (fidelity 10)."""
    own, main = load_recipe("criteo_x1_13").backbones, load_recipe("main13").backbones
    wide = {"dnn_hidden_units": [500] * 3, "parallel_dnn_hidden_units": [500] * 3}

    for name in REFERENCE:
        expected = main[name]["criteo"].plain()
        if name in ("DCNv2", "GDCN"):
            expected |= {key: wide[key] for key in wide if expected.get(key)}
        assert own[name]["criteo-x1"].plain() == expected


# net_dropout, batch_norm, embedding_l2 of each published trial, and what else it sets.
BARS_TRIALS = {
    "frappe13": {
        "AutoInt": (0.1, True, 0.1, {"attention_dim": 128, "attention_layers": 5, "num_heads": 4}),
        "DCN": (0.2, True, 0.05, {"num_cross_layers": 3}),
        "DNN": (0.2, True, 0.05, {}),
        "DeepFM": (0.2, True, 0.05, {}),
        "FiBiNET": (0.3, True, 0.05, {"bilinear_type": "field_all", "reduction_ratio": 2}),
        "NFM": (0.4, False, 1e-4, {}),
        "PNN": (0.3, False, 0.05, {}),
        "WideDeep": (0.6, True, 0.1, {}),
        "DCNv2": (0.4, True, 0.05, {"num_cross_layers": 4, "model_structure": "parallel"}),
        "AFM": (None, None, 1e-5, {"attention_dim": 128, "attention_dropout": [0.1, 0.1]}),
        "FwFM": (None, None, 5e-6, {"linear_type": "FeLV", "network_l2": 5e-6}),
        "MaskNet": (
            *(0.1, None, 0.1),
            {
                "model_type": "ParallelMaskNet",
                "parallel_num_blocks": 3,
                "parallel_block_dim": 50,
                "reduction_ratio": 2.0,
                "emb_layernorm": False,
                "net_layernorm": True,
            },
        ),
    },
    "movielens13": {
        "AutoInt": (0.1, True, 0.01, {"attention_dim": 128, "attention_layers": 2, "num_heads": 4}),
        "DCN": (0.2, True, 0.01, {"num_cross_layers": 4}),
        "DNN": (0.4, True, 0.005, {}),
        "DeepFM": (0.3, True, 0.01, {}),
        "FiBiNET": (0.3, True, 0.05, {"bilinear_type": "field_all", "reduction_ratio": 0.3}),
        "NFM": (0.2, False, 1e-4, {}),
        "PNN": (0.1, False, 0.01, {}),
        "WideDeep": (0.1, True, 0.01, {}),
        "DCNv2": (0.2, True, 0.01, {"num_cross_layers": 5, "model_structure": "parallel"}),
        "AFM": (None, None, 1e-5, {"attention_dim": 16, "attention_dropout": [0.4, 0.4]}),
        "FwFM": (None, None, 5e-6, {"linear_type": "FeLV", "network_l2": 5e-6}),
        "MaskNet": (
            *(0.5, None, 0.005),
            {
                "model_type": "SerialMaskNet",
                "reduction_ratio": 4.0,
                "emb_layernorm": False,
                "net_layernorm": True,
            },
        ),
    },
}


@pytest.mark.parametrize("name", BARS_TRIALS)
@pytest.mark.parametrize("backbone", sorted(set(REFERENCE) - {"GDCN"}))
def test_bars_recipes_have_the_published_trial(name, backbone):
    dropout, batch_norm, embedding_l2, others = BARS_TRIALS[name][backbone]
    settings = load_recipe(name).backbones[backbone][BARS[name]].plain()
    own = {"net_dropout": dropout, "batch_norm": batch_norm}
    expected = {k: v for k, v in own.items() if v is not None} | {"network_l2": 0.0} | others

    assert (expected | {"embedding_l2": embedding_l2}).items() <= settings.items()
    widths = ("hidden_units", "dnn_hidden_units", "parallel_dnn_hidden_units")
    assert all(settings[key] == H for key in widths if key in settings)
