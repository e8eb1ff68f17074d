"""Which half of a pair is stale, and when none is."""

import pytest

from prime_bench.recipe.job import Job
from prime_bench.schedule.plan import group_of, outdated, stale_halves
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.training import TrainSpec


@pytest.fixture
def job():
    def job(plugin, seed=1, **changes):
        return Job(
            fingerprint="f" * 64,
            backbone="DNN",
            backbone_settings=DNNSettings().plain(),
            plugin=plugin,
            plugin_settings={},
            training=TrainSpec(),
            seed=seed,
            **changes,
        )

    return job


@pytest.fixture
def done(job, record_of):
    def done(plugin, kind, seed=1):
        return record_of(job(plugin, seed), device_kind=kind)

    return done


def test_of_a_pair_on_two_kinds_the_half_elsewhere_is_stale(done):
    dense, prime = done("dense", "cpu"), done("prime", "cuda")

    assert stale_halves([dense, prime], [], here="cuda") == {
        dense.job_id: "its record is on cpu, its pair is on cuda"
    }
    assert stale_halves([dense, prime], [], here="cpu") == {
        prime.job_id: "its record is on cuda, its pair is on cpu"
    }


@pytest.mark.parametrize("here", ["cpu", "cuda"])
def test_a_whole_pair_is_never_stale(done, here):
    assert stale_halves([done("dense", "cpu"), done("prime", "cpu")], [], here=here) == {}


def test_a_half_whose_pair_would_be_done_elsewhere_is_stale(done, job):
    dense = done("dense", "cpu")

    assert stale_halves([dense], [job("prime")], here="cuda") == {
        dense.job_id: "its record is on cpu, its pair would be done on cuda"
    }
    assert stale_halves([dense], [job("prime")], here="cpu") == {}


def test_other_seeds_and_data_are_no_pair(done, job):
    dense = done("dense", "cpu")
    others = [job("prime", seed=2), job("prime").model_copy(update={"fingerprint": "e" * 64})]

    assert stale_halves([dense], others, here="cuda") == {}


def test_a_record_of_an_older_version_is_found(job, runs, record_of):
    now = job("dense", numerics=3)
    assert outdated(now, runs) is None

    runs.put(record_of(job("dense", numerics=1)))
    assert outdated(now, runs) == 1
    runs.put(record_of(job("dense", numerics=2)))
    assert outdated(now, runs) == 2
    assert outdated(job("prime", numerics=3), runs) is None
    runs.put(record_of(job("dense", numerics=3)))
    assert outdated(now, runs) == 2, "its own record is none of an older version"
    assert outdated(job("dense", numerics=1), runs) is None, "nor are those of newer ones"


def test_arms_of_one_backbone_data_set_and_seed_are_a_group_whatever_their_code(job):
    own = {"backbone": "a:Net", "code": {"a:Net": "1" * 64}}
    dense = job("dense").model_copy(update=own)
    code = {**own["code"], "a:Gate": "2" * 64}
    gate = job("a:Gate").model_copy(update={**own, "code": code, "plugin_settings": {"rank": 3}})
    assert group_of(dense) == group_of(gate)
    for change in ({"code": {"a:Net": "3" * 64}}, {"seed": 2}, {"fingerprint": "e" * 64}):
        assert group_of(dense.model_copy(update=change)) != group_of(gate)
