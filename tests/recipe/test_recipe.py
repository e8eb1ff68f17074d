"""The grid: its order, its narrowing, `on` tables and arms that refine a plug-in."""

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.interface import DenseSettings
from prime_bench.settings.plugins import PrimeConfig

TWO_SETS = """
[dataset.criteo]
[backbone.DNN.on.criteo]
hidden_units = [5]
embedding_dim = 7
"""


@pytest.fixture
def grid(write, sound):
    """2 seeds, 2 data sets, 3 backbones, 2 arms."""
    return load_recipe(write(sound + "[backbone.NFM]\nhidden_units = [6]\n" + TWO_SETS))


def test_jobs_come_seed_by_seed_and_the_arms_of_a_pair_side_by_side(grid):
    expected = [
        f"{dataset} {backbone} {arm} seed {seed}"
        for seed in (7, 3)
        for dataset in ("synthetic", "criteo")
        for backbone in ("DNN", "DCNv2", "NFM")
        for arm in ("dense", "prime")
    ]

    assert [str(job_spec) for job_spec in grid.job_specs()] == expected


def test_a_cut_anywhere_leaves_at_most_one_half_pair(grid):
    job_specs = grid.job_specs()
    for length in range(len(job_specs)):
        pairs = {}
        for job_spec in job_specs[:length]:
            pairs.setdefault((job_spec.dataset, job_spec.backbone, job_spec.seed), set()).add(
                job_spec.arm.name
            )
        assert sum(len(arms) == 1 for arms in pairs.values()) <= 1


@pytest.mark.parametrize(
    ("only", "number"),
    [
        ([], 24),
        (["seed=7"], 12),
        (["seed=7", "seed=3"], 24),
        (["backbone=DNN"], 8),
        (["backbone=DNN", "arm=prime"], 4),
        (["backbone=DNN", "arm=prime", "dataset=criteo", "seed=3"], 1),
    ],
)
def test_only_narrows(grid, only, number):
    job_specs = grid.job_specs(only=only)

    assert len(job_specs) == number
    for item in only:
        key, value = item.split("=")
        values = {other.split("=")[1] for other in only if other.startswith(f"{key}=")}
        seen = {
            str(job_spec.arm.name if key == "arm" else getattr(job_spec, key))
            for job_spec in job_specs
        }
        assert seen == values
        assert value in seen


@pytest.mark.parametrize(
    ("only", "wanted"),
    [
        ("seed", "--only seed: expected KEY=VALUE with KEY one of dataset, backbone, arm, seed"),
        ("model=DNN", "--only model=DNN: expected KEY=VALUE"),
        ("backbone=DNM", "--only backbone=DNM: no such backbone in the recipe; did you mean"),
        ("backbone=AFM", "--only backbone=AFM: no such backbone in the recipe"),
        ("seed=8", "--only seed=8: no such seed in the recipe"),
        ("arm=", "--only arm=: no such arm in the recipe"),
        ("backbone=DNN,DNN", "--only backbone=DNN,DNN: one backbone at a time"),
    ],
)
def test_only_refuses_values_that_the_recipe_lacks(grid, only, wanted):
    with pytest.raises(UsageError) as caught:
        grid.job_specs(only=[only])

    assert caught.value.message.startswith(wanted)


def test_on_tables_hold_on_their_data_set_alone(grid):
    settings = grid.backbones["DNN"]

    assert settings["synthetic"].hidden_units == (8,)
    assert settings["criteo"].hidden_units == (5,)
    assert settings["criteo"].embedding_dim == 7


def test_the_width_of_training_holds_for_every_backbone_that_sets_none(grid):
    assert grid.backbones["DNN"]["synthetic"].embedding_dim == 4
    assert {settings.embedding_dim for settings in grid.backbones["DCNv2"].values()} == {4}


def test_arms_refine_plugins(write, sound):
    arms = (
        '[arm.prime]\nlabel = "P"\n[arm.narrow]\nplugin = "prime"\nrank = 2\n'
        '[arm.wide]\nplugin = "prime"\nlabel = "Wide"\nrank = 64\n'
    )
    text = sound.replace('"prime"]', '"prime", "narrow", "wide"]') + arms

    dense, prime, narrow, wide = load_recipe(write(text)).arms

    assert (dense.plugin, dense.label, dense.settings) == ("dense", "Dense", DenseSettings())
    assert (prime.plugin, prime.label) == ("prime", "P")
    assert prime.settings == PrimeConfig()
    assert (narrow.plugin, narrow.label) == ("prime", "narrow")
    assert narrow.settings == PrimeConfig(rank=2)
    assert (wide.label, wide.settings.rank) == ("Wide", 64)


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ("[arm.mine]\nrank = 2\n", "arm.mine: `plugin` is missing"),
        ('[arm.mine]\nplugin = "prime"\nlabel = 3\n', "arm.mine.label: must be a text"),
        ('[arm.mine]\nplugin = "dense"\nrank = 3\n', "arm.mine.rank: unknown key"),
    ],
)
def test_faulty_arms(write, sound, table, wanted):
    with pytest.raises(UsageError) as caught:
        load_recipe(write(sound.replace('"prime"', '"mine"') + table))

    assert wanted in caught.value.message


def test_an_arm_that_does_not_fit_a_backbone_is_a_fault_of_the_recipe(write, sound):
    path = write(sound.replace('"prime"', '"apg"'))

    with pytest.raises(UsageError) as caught:
        load_recipe(path)

    assert caught.value.message.startswith(
        f"{path}:4: arms: `apg` does not fit DNN: APG is defined"
    )
    assert len(caught.value.message.splitlines()) == 1
    text = path.read_text().replace("[backbone.DNN]\nhidden_units = [8]\n", "")
    assert len(load_recipe(write(text)).job_specs()) == 4
