"""Identity: all that can change a result is in the id, and nothing else."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.identity import NUMERICS, canonical_json
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.settings.backbones import DCNv2Settings, DNNSettings
from prime_bench.settings.data import DataSettings
from prime_bench.settings.plugins import PrimeConfig, ResidualParametersSettings
from prime_bench.settings.training import TrainSpec

PINNED = {
    "fingerprint": "0123456789abcdef" * 4,
    "backbone": "DNN",
    "backbone_settings": DNNSettings().plain(),
    "plugin": "prime",
    "plugin_settings": PrimeConfig().plain(),
    # The id does not know a key that came later, while it has its default.
    "training": {key: value for key, value in TrainSpec().plain().items() if key != "matmul"},
    "seed": 2021,
    "numerics": 2,
}
PINNED_TEXT = (
    '{"backbone":"DNN","backbone_settings":{"batch_norm":false,"embedding_dim":10,'
    '"embedding_l2":0.0,"hidden_units":[400,400,400],"net_dropout":0.0,"network_l2":0.0},'
    '"fingerprint":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",'
    '"kind":"train","numerics":2,"plugin":"prime","plugin_settings":{"auxiliary_weight":0.0,'
    '"bags":4,"dense_weight":0.5,"detach_router":false,"expert_input":"embedding",'
    '"experts_per_bag":8,"layer_norm":true,"load_bias_bound":2.0,"load_bias_step":0.001,'
    '"load_ema":0.99,"output":"probability","rank":16,"router_input":"embedding",'
    '"routing":"learned","temperature":1.0},"seed":2021,"training":{"batch_size":4096,'
    '"compile":false,"learning_rate":0.001,"learning_rate_factor":0.1,"learning_rate_floor":1e-06,'
    '"loss":"probability","max_epochs":100,"max_gradient_norm":10.0,"min_delta":1e-06,'
    '"patience":2}}'
)
PINNED_ID = "11ba2a32d52dbc7d"
OTHER = {  # another value for each setting there is
    "embedding_dim": 16,
    "embedding_l2": 0.5,
    "network_l2": 0.5,
    "hidden_units": [400, 400],
    "net_dropout": 0.25,
    "batch_norm": True,
    "model_structure": "stacked_parallel",
    "num_cross_layers": 4,
    "parallel_dnn_hidden_units": [100],
    "stacked_dnn_hidden_units": [100],
    "bags": 1,
    "experts_per_bag": 32,
    "rank": 4,
    "dense_weight": 0.25,
    "temperature": 2.0,
    "load_ema": 0.9,
    "load_bias_step": 0.0,
    "load_bias_bound": 1.0,
    "auxiliary_weight": 0.01,
    "layer_norm": False,
    "routing": "uniform",
    "output": "logit",
    "expert_input": "top_input",
    "router_input": "top_input",
    "detach_router": True,
    "width": 32,
    "batch_size": 64,
    "learning_rate": 0.01,
    "max_epochs": 1,
    "patience": 5,
    "min_delta": 0.0,
    "learning_rate_factor": 0.5,
    "learning_rate_floor": 0.0,
    "max_gradient_norm": 1.0,
    "loss": "logit",
    "matmul": "tf32",
    "compile": True,
}
STACKED = DCNv2Settings.parse({"model_structure": "stacked_parallel"}, where="")
SETTINGS = {
    "backbone_settings": [DNNSettings(), DCNv2Settings.parse({}, where=""), STACKED],
    "plugin_settings": [PrimeConfig(), ResidualParametersSettings()],
    "training": [TrainSpec()],
}
CASES = [
    (part, settings, key)
    for part, all_settings in SETTINGS.items()
    for settings in all_settings
    for key in settings.plain()
    if not (key == "stacked_dnn_hidden_units" and settings is not STACKED)
]


def _id(**changes):
    return Job.parse({**PINNED, **changes}, where="").id


def test_the_id_of_one_job_is_pinned():
    """A change here makes every record of every user an orphan; it has to be meant."""
    assert canonical_json(Job.parse(PINNED, where="").plain()) == PINNED_TEXT
    assert hashlib.sha256(PINNED_TEXT.encode()).hexdigest()[:16] == PINNED_ID
    assert _id() == PINNED_ID


def test_a_job_has_the_numerics_of_the_code_unless_it_is_read():
    del (table := dict(PINNED))["numerics"]

    assert Job.parse(table, where="").numerics == NUMERICS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fingerprint", "f" * 64),
        ("backbone", "DCNv2"),
        ("plugin", "x"),
        ("seed", 1),
        ("numerics", 1),
    ],
)
def test_every_field_of_a_job_counts(key, value):
    assert _id(**{key: value}) != _id()


def test_no_field_of_a_job_was_forgotten_here():
    assert set(Job.model_fields) == {"kind", "code", "probe", *PINNED}


def test_a_job_that_measures_counts_its_kind_and_its_settings_and_knows_what_trained_it():
    probe = {"blocks": 8}
    ids = {
        _id(),
        _id(kind="gradients", probe=probe),
        _id(kind="routing", probe=probe),
        _id(kind="gradients", probe={"blocks": 4}),
    }

    assert len(ids) == 4
    measured = Job.parse({**PINNED, "kind": "gradients", "probe": probe}, where="")
    assert measured.training_run.id == PINNED_ID
    assert measured.plain() == {**PINNED, "kind": "gradients", "probe": probe}


@pytest.mark.parametrize(
    ("part", "settings", "key"), CASES, ids=[f"{type(s).__name__}.{k}" for _, s, k in CASES]
)
def test_every_setting_counts(part, settings, key):
    table = settings.plain()
    value = OTHER[key] if OTHER[key] != table[key] else "parallel"
    if key == "model_structure":
        table |= {"stacked_dnn_hidden_units": [], "parallel_dnn_hidden_units": [400, 400, 400]}
        table |= {"stacked_dnn_hidden_units": [400]} if value == "stacked_parallel" else {}
    changed = type(settings).parse({**table, key: value}, where="")

    assert _id(**{part: changed.plain()}) != _id(**{part: settings.plain()})


def test_settings_of_data_are_in_the_fingerprint_and_not_beside_it():
    assert not set(DataSettings.model_fields) & set(Job.model_fields)


@given(st.permutations(list(PINNED)), st.permutations(list(PINNED["plugin_settings"])))
def test_the_order_of_keys_does_not_count(order, inner):
    plugin = {key: PINNED["plugin_settings"][key] for key in inner}
    table = {key: plugin if key == "plugin_settings" else PINNED[key] for key in order}

    assert Job.parse(table, where="").id == _id()


@given(
    *[st.text() for _ in range(4)],
    st.sampled_from(["auto", "cpu", "cuda:1"]),
)
def test_labels_folders_and_the_device_do_not_count(dataset, arm, table, runs, device):
    request = JobRequest(
        job=Job.parse(PINNED, where=""),
        dataset=dataset,
        arm=arm,
        table=table,
        runs=runs,
        device=device,
    )

    read = JobRequest.parse(json.loads(json.dumps(request.plain())), where="")
    assert read == request
    assert read.job.id == _id()


def _ids(recipe):
    return {job_spec.bind("f").id for job_spec in recipe.job_specs()}


def test_the_same_job_in_two_recipes_is_one(write, sound):
    renamed = sound.replace('"prime"]', '"mine"]').replace("Small", "Another title")
    renamed = renamed.replace("[dataset.synthetic]\nrows = 1000", "[dataset.criteo]")
    renamed += '\n[arm.mine]\nplugin = "prime"\nlabel = "Mine"\nrank = 16\n'
    renamed += '[report]\nfamily = [["mine", "dense"]]\nnotes = ["N"]\n'
    renamed = renamed.replace("max_epochs = 1", "learning_rate = 1e-3\nmax_epochs = 1")

    assert _ids(load_recipe(write(renamed, "other.toml"))) == _ids(load_recipe(write(sound)))


def test_whole_and_real_numbers_of_one_value_are_one_job(write, sound):
    path = write(sound)
    one = load_recipe(path, changes=["training.max_gradient_norm=5", "arm.prime.temperature=2"])
    other = load_recipe(
        path, changes=["training.max_gradient_norm=5.0", "arm.prime.temperature=2.0"]
    )

    assert _ids(one) == _ids(other)
    assert _ids(one).isdisjoint(_ids(load_recipe(path)))


def test_all_jobs_of_a_grid_are_different(write, sound):
    assert len(_ids(load_recipe(write(sound)))) == 8
