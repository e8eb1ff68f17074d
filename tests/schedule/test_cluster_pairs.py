"""On a cluster with several kinds of device, arms that are compared run on one of them."""

import pytest

from prime_bench.schedule.cluster import _Kind, _Pairs

A, B = _Kind("an old CPU", "2.13.0"), _Kind("a new CPU", "2.13.0")


def _prime(request):
    job = request.job.model_copy(update={"plugin": "prime", "plugin_settings": {"bags": 2}})
    return request.model_copy(update={"job": job, "arm": "prime"})


@pytest.mark.parametrize("allow_mixed", [False, True])
def test_the_first_arm_decides_for_its_pair_alone(request_of, allow_mixed):
    dense, other_seed = request_of(1), request_of(2)
    pairs = _Pairs([dense, other_seed], allow_mixed=allow_mixed)
    assert pairs.fits(_prime(dense), kind=B)
    pairs.bind(dense, A)

    assert pairs.fits(_prime(dense), kind=A)
    assert pairs.fits(_prime(dense), kind=B) == allow_mixed
    assert pairs.fits(other_seed, kind=B)
    assert pairs.kind_of(_prime(dense)) == A


def test_a_record_decides_too_and_a_version_of_torch_is_a_kind(request_of, finish):
    dense = request_of(1)
    finish(dense.job, device=A.device, versions={"torch": A.torch})
    pairs = _Pairs([_prime(dense)], allow_mixed=False)

    assert pairs.fits(_prime(dense), kind=A)
    assert not pairs.fits(_prime(dense), kind=B)
    assert not pairs.fits(_prime(dense), kind=A._replace(torch="2.14.0"))


def test_a_probe_runs_on_the_kind_of_its_arm_and_of_what_that_is_compared_with(request_of):
    dense = request_of(1)
    probe = _prime(dense)
    job = probe.job.model_copy(update={"kind": "routing", "probe": {"split": "valid"}})
    probe = probe.model_copy(update={"job": job})
    pairs = _Pairs([dense, probe], allow_mixed=False)
    pairs.bind(dense, None)
    assert pairs.fits(probe, kind=B), "a node of no known kind decides nothing"
    pairs.bind(dense, A)

    assert not pairs.fits(probe, kind=B)
    pairs.bind(probe, B)
    assert pairs.kind_of(dense) == A, "the first decides"
