"""Recipes that measure: their table, their jobs, and what they refuse."""

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.probes import PROBES, GradientsSettings


@pytest.fixture
def measured(sound):
    """The sound recipe as one of a kind that measures."""

    def measured(kind, probe=""):
        return sound.replace("schema = 1", f'schema = 1\nkind = "{kind}"') + f"[probe]\n{probe}"

    return measured


def _message(path):
    with pytest.raises(UsageError) as caught:
        load_recipe(path)
    return caught.value.message


def test_trials_carry_kind_and_resolved_settings_and_need_their_training(write, sound, measured):
    training = load_recipe(write(sound)).job_specs()
    job_specs = load_recipe(write(measured("gradients", "blocks = 4\n"), "g.toml")).job_specs()

    assert [job_spec.needed_job for job_spec in job_specs] == training
    assert {job_spec.kind for job_spec in job_specs} == {"gradients"}
    assert job_specs[0].probe == GradientsSettings(blocks=4)
    assert str(job_specs[0]) == f"{training[0]} gradients"
    jobs = [job_spec.bind("f") for job_spec in job_specs]
    assert [job.training_run.id for job in jobs] == [job_spec.bind("f").id for job_spec in training]
    assert len({job.id for job in jobs}) == len(job_specs)
    assert {job_spec.needed_job for job_spec in training} == {None}


def test_one_trial_of_the_cost_kind_has_all_arms_of_its_group(write, measured):
    recipe = load_recipe(write(measured("cost")))

    job_specs = recipe.job_specs()
    assert len(job_specs) == 4
    assert {job_spec.arm.name for job_spec in job_specs} == {"dense+prime"}
    assert {tuple(arm.plugin for arm in t.others) for t in job_specs} == {("prime",)}
    assert {job_spec.needed_job for job_spec in job_specs} == {None}
    assert recipe.job_specs(only=["arm=dense", "seed=7"])[0].others == ()


def test_only_kinds_that_measure_have_a_probe_table(write, sound, measured):
    path = write(sound + "[probe]\nblocks = 4\n")
    assert _message(path) == (
        f"{path}:18: probe: only a recipe whose `kind` is a probe has this table"
    )
    assert "probe.block: unknown key; did you mean `blocks`?" in _message(
        write(measured("gradients", "block = 1"))
    )
    assert "kind: input should be 'train', 'gradients'" in _message(write(measured("gradient")))


def test_what_cannot_be_measured_is_refused_with_its_reason(write, measured):
    text = measured("gradients").replace("[backbone.DCNv2]", "[backbone.FwFM]\n[backbone.DCNv2]")
    lines = _message(write(text)).splitlines()
    assert [line.partition("arms: ")[2] for line in lines] == [
        f"`{arm}` on FwFM cannot be measured: it has no Top-NN, so there are no shared weights "
        "whose gradients could compete"
        for arm in ("dense", "prime")
    ]

    lines = _message(write(measured("routing"))).splitlines()
    assert [line.partition("arms: ")[2] for line in lines] == [
        f"`dense` on {backbone} cannot be measured: the arm has no routers"
        for backbone in ("DNN", "DCNv2")
    ]

    permuted = measured("gradients").replace('"prime"]', '"permuted_routing"]')
    assert "no row has a gradient of its own" in _message(write(permuted))


def test_every_kind_has_settings_that_stand_on_their_defaults():
    for settings in PROBES.values():
        assert settings.parse(settings().plain(), where="") == settings()
