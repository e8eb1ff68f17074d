"""The parameter-matched residual against fidelity 22 in float64 NumPy."""

import numpy as np
import pytest
import torch

from prime_bench.plugins.residual import ParameterMatchedResidual
from prime_bench.settings.plugins import PrimeConfig, ResidualParametersSettings

D, B = 6, 5


@pytest.fixture
def oracle(layer_norm):
    def evaluate(arrays, settings):
        h = layer_norm(arrays["z"]) if settings.layer_norm else arrays["z"]
        hidden = h @ arrays["weight_in"].T
        delta = (hidden / (1 + np.exp(-hidden))) @ arrays["weight_out"] + arrays["bias"]
        p_d = 1 / (1 + np.exp(-arrays["dense_logit"]))
        p_s = 1 / (1 + np.exp(-(arrays["dense_logit"] + delta)))
        return settings.dense_weight * p_d + (1 - settings.dense_weight) * p_s

    return evaluate


@pytest.mark.parametrize("dense_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("layer_norm_on", [True, False])
def test_forward_and_every_gradient(
    dense_weight, layer_norm_on, generator, oracle, finite_differences
):
    settings = ResidualParametersSettings(
        width=7, dense_weight=dense_weight, layer_norm=layer_norm_on
    )
    residual = ParameterMatchedResidual(D, settings, generator=generator).double()
    leaves = dict(residual.named_parameters())
    with torch.no_grad():
        for parameter in leaves.values():
            parameter.normal_(generator=generator)
    for name, shape in (("z", (B, D)), ("dense_logit", (B,))):
        leaves[name] = torch.randn(shape, generator=generator, dtype=torch.float64)
        leaves[name].requires_grad_()
    weight = np.linspace(-1, 2, B)
    arrays = {name: tensor.detach().numpy().copy() for name, tensor in leaves.items()}

    probability = residual(leaves["z"], leaves["dense_logit"])
    log_p, log_not_p = residual.log_probabilities(leaves["z"], leaves["dense_logit"])
    expected = oracle(arrays, settings)
    np.testing.assert_allclose(probability.detach(), expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(log_p.detach(), np.log(expected), atol=1e-13)
    np.testing.assert_allclose(log_not_p.detach(), np.log1p(-expected), atol=1e-13)

    of_probability = finite_differences(lambda now: oracle(now, settings) @ weight, arrays)
    of_log = finite_differences(lambda now: np.log(oracle(now, settings)) @ weight, arrays)
    for found, target in ((probability, of_probability), (log_p, of_log)):
        gradients = torch.autograd.grad(found @ torch.from_numpy(weight), list(leaves.values()))
        for name, gradient in zip(leaves, gradients, strict=True):
            np.testing.assert_allclose(gradient, target[name], atol=2e-9, err_msg=name)


def test_budget_is_primes_plus_one(generator):
    for width, parameters in ((220, 120_225), (390, 212_705)):
        settings = ResidualParametersSettings()
        residual = ParameterMatchedResidual(width, settings, generator=generator)
        assert sum(p.numel() for p in residual.parameters()) == parameters
        assert settings.parameters(width) == parameters == PrimeConfig().parameters(width) + 1


def test_initial_values_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (
        ParameterMatchedResidual(
            220, ResidualParametersSettings(), generator=torch.Generator().manual_seed(seed)
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.weight_in, again.weight_in)
    assert not torch.equal(first.weight_in, other.weight_in)
    assert first.weight_in.std().item() == pytest.approx((2 / (220 + 544)) ** 0.5, rel=0.01)
    assert not first.weight_out.any()
    assert not first.bias.any()


def test_a_router_input_is_refused(generator):
    residual = ParameterMatchedResidual(D, ResidualParametersSettings(), generator=generator)
    z = torch.zeros(2, D)
    with pytest.raises(ValueError, match="router_input"):
        residual(z, torch.zeros(2), z)


@pytest.mark.parametrize("size", [30.0, 1e4])
def test_extreme_logits_give_finite_values_and_gradients(size, generator):
    residual = ParameterMatchedResidual(D, ResidualParametersSettings(), generator=generator)
    with torch.no_grad():
        residual.weight_out.normal_(generator=generator).mul_(size)
    z = torch.randn(4, D, generator=generator).requires_grad_()
    logit = torch.tensor([size, -size, size, -size], requires_grad=True)
    labels = torch.tensor([1.0, 0, 0, 1])
    log_p, log_not_p = residual.log_probabilities(z, logit)
    for loss in (
        torch.nn.functional.binary_cross_entropy(residual(z, logit), labels),
        -(labels * log_p + (1 - labels) * log_not_p).mean(),
    ):
        assert loss.isfinite()
        gradients = torch.autograd.grad(loss, [z, logit, *residual.parameters()])
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)
