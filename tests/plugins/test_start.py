"""Before the first update every plug-in gives the Dense probability, bit by bit (fidelity 14)."""

import math

import pytest
import torch

from prime_bench.plugins.prime import Prime
from prime_bench.plugins.residual import ParameterMatchedResidual
from prime_bench.settings.plugins import PrimeConfig, ResidualParametersSettings

BATCHES = [1, 7, 1005, 1012, 4096]
PLUGINS = {
    "prime": (Prime, PrimeConfig()),
    "prime_odd": (Prime, PrimeConfig(bags=3, experts_per_bag=7, dense_weight=0.1)),
    "prime_no_anchor": (Prime, PrimeConfig(dense_weight=0.0)),
    "residual": (ParameterMatchedResidual, ResidualParametersSettings()),
}


def assert_equal_to_dense(name, n_rows, *, train, generator):
    build, settings = PLUGINS[name]
    plugin = build(20, settings, generator=generator).train(train)
    for spread in (0.1, 3.0, 20.0):
        z = torch.randn(n_rows, 20, generator=generator)
        # As a backbone's last Linear leaves it: (B, 1), squeezed.
        logit = (spread * torch.randn(n_rows, 1, generator=generator)).squeeze(-1)
        assert torch.equal(plugin(z, logit), torch.sigmoid(logit))


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("n_rows", BATCHES)
@pytest.mark.parametrize("name", PLUGINS)
def test_equal_to_dense(name, n_rows, train, generator):
    assert_equal_to_dense(name, n_rows, train=train, generator=generator)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("n_rows", BATCHES)
@pytest.mark.parametrize("name", PLUGINS)
def test_equal_to_dense_with_two_threads(name, n_rows, generator):
    assert_equal_to_dense(name, n_rows, train=True, generator=generator)


@pytest.mark.parametrize("anchor_epsilon", [1e-7, 1e-3])
@pytest.mark.parametrize("n_rows", [7, 1012])
@pytest.mark.parametrize("name", PLUGINS)
def test_the_probability_as_anchor_moves_what_it_clamps_and_nothing_else(
    name, n_rows, anchor_epsilon, generator
):
    build, settings = PLUGINS[name]
    keys = {"anchor": "probability", "anchor_epsilon": anchor_epsilon}
    settings = settings.parse(settings.plain() | keys, where="")
    plugin = build(20, settings, generator=generator)
    z = torch.randn(n_rows, 20, generator=generator)
    logit = (20.0 * torch.randn(n_rows, 1, generator=generator)).squeeze(-1)
    p, dense = plugin(z, logit).detach(), torch.sigmoid(logit)

    clamped = logit.abs() > math.log((1 - anchor_epsilon) / anchor_epsilon)
    assert torch.equal(p[~clamped], dense[~clamped])
    moved = (p.double() - dense.double()).abs()[clamped]
    # Rounding of a float32 next to 1 comes on top.
    assert moved.max() <= (1 - settings.dense_weight) * anchor_epsilon + 2**-24
    assert moved.max() > 0.9 * (1 - settings.dense_weight) * anchor_epsilon
    assert bool((p > 0).all())
    assert bool((p < 1).all())


@pytest.mark.parametrize("name", PLUGINS)
def test_equality_holds_without_cutting_the_gradient(name, generator):
    build, settings = PLUGINS[name]
    plugin = build(20, settings, generator=generator)
    z, logit = torch.randn(50, 20, generator=generator), torch.randn(50, generator=generator)
    plugin(z, logit).sum().backward()
    out = plugin.expert_out if isinstance(plugin, Prime) else plugin.weight_out
    assert out.grad.abs().min() > 0
