"""A recipe of costs: each backbone is measured with the arms that fit it."""

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.recipe.file import load_recipe

RECIPE = """
schema = 1
title = "Costs"
kind = "cost"
seeds = [1]
arms = ["dense", "apg", "prime"]
[dataset.avazu]
[backbone.DNN]
[backbone.DCNv2]
parallel_dnn_hidden_units = [8]
"""


def arms_of(job_spec):
    return [arm.plugin for arm in job_spec.others]


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "costs.toml"
        path.write_text(text)
        return load_recipe(path)

    return load


def test_an_arm_is_left_out_where_it_does_not_fit(load):
    job_specs = load(RECIPE).job_specs()

    assert [
        (job_spec.backbone, job_spec.arm.name, arms_of(job_spec)) for job_spec in job_specs
    ] == [
        ("DNN", "dense+prime", ["prime"]),
        ("DCNv2", "dense+apg+prime", ["apg", "prime"]),
    ]


def test_a_backbone_that_none_of_the_wanted_arms_fits_is_not_measured(load):
    job_specs = load(RECIPE).job_specs(only=["arm=apg"])

    assert [(job_spec.backbone, job_spec.arm.name) for job_spec in job_specs] == [("DCNv2", "apg")]


def test_an_arm_that_fits_no_backbone_is_refused(load):
    with pytest.raises(UsageError, match="arms: `apg` does not fit DNN"):
        load(RECIPE.partition("[backbone.DCNv2]")[0])
    # Of other kinds, each arm must fit everywhere.
    with pytest.raises(UsageError, match="arms: `apg` does not fit DNN"):
        load(RECIPE.replace('kind = "cost"\n', ""))
