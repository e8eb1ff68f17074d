"""PRIME's controls, against float64 oracles in NumPy and by the properties that they isolate."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prime_bench.assemble import build_plugin
from prime_bench.base.streams import derive
from prime_bench.plugins.prime import Prime
from prime_bench.plugins.residual import MacMatchedResidual, ParameterMatchedResidual
from prime_bench.settings.plugins import (
    PrimeConfig,
    ResidualMacsSettings,
    ResidualParametersSettings,
)

D, ROUTER_D, B = 6, 5, 4
SMALL = {"bags": 2, "experts_per_bag": 3, "rank": 3}
VARIANTS = {
    "uniform": {"routing": "uniform"},
    "uniform_single_bag": {"routing": "uniform", "bags": 1},
    "permuted": {"routing": "permuted"},
    "logit": {"output": "logit"},
    "logit_no_layer_norm": {"output": "logit", "layer_norm": False},
    "detached": {"detach_router": True},
    "detached_no_layer_norm": {"detach_router": True, "layer_norm": False},
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def double(n, *shape):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def random_prime(config, *, router_width=None, seed=1):
    """In float64 and eval mode, nothing at its start value."""
    generator = torch.Generator().manual_seed(seed)
    prime = Prime(D, config, router_width=router_width, generator=generator).double().eval()
    with torch.no_grad():
        for tensor in (*prime.parameters(), prime.load_bias):
            tensor.normal_(generator=generator)
    return prime


@pytest.fixture
def oracle(layer_norm):
    """(arrays, config, permutation of rows) -> p (B,); all experts at once, bag by bag."""

    def evaluate(arrays, config, permutation):
        normalise = layer_norm if config.layer_norm else np.asarray
        h, read = normalise(arrays["z"]), normalise(arrays["read"])
        bags, logit = [], arrays["dense_logit"][:, None]
        for g in range(config.bags):
            own = slice(g * config.experts_per_bag, (g + 1) * config.experts_per_bag)
            inside = np.einsum("bd,eqd->beq", h, arrays["expert_in"][own])
            delta = np.einsum("beq,eq->be", silu(inside), arrays["expert_out"][own])
            delta += arrays["expert_bias"][own]
            if config.routing == "uniform":
                r = np.full(delta.shape, 1 / config.experts_per_bag)
            else:
                scores = read @ arrays["router"][own].T + arrays["load_bias"][g]
                r = softmax(scores / config.temperature)[permutation]
            bags.append(
                (r * (delta if config.output == "logit" else sigmoid(logit + delta))).sum(1)
            )
        mean = np.mean(bags, axis=0)
        if config.output == "logit":
            return sigmoid(arrays["dense_logit"] + mean)
        anchor = sigmoid(arrays["dense_logit"])
        return config.dense_weight * anchor + (1 - config.dense_weight) * mean

    return evaluate


@pytest.mark.parametrize("router_width", [None, ROUTER_D])
@pytest.mark.parametrize("variant", VARIANTS)
def test_forward_and_every_gradient(variant, router_width, oracle, finite_differences):
    config = PrimeConfig(**(SMALL | VARIANTS[variant]))
    prime = random_prime(config, router_width=router_width)
    prime.use_seed(7)
    inputs = {"z": double(2, B, D), "dense_logit": double(3, B)}
    if router_width:
        inputs["router_input"] = double(4, B, router_width)
    for tensor in inputs.values():
        tensor.requires_grad_()
    permutation = np.arange(B)
    if config.routing == "permuted":
        stream = torch.Generator().manual_seed(derive(7, "permute/0"))
        permutation = torch.randperm(B, generator=stream).numpy()
        assert (permutation != np.arange(B)).any()

    leaves = {**dict(prime.named_parameters()), **inputs}
    fixed = {"load_bias": prime.load_bias.numpy().copy()}
    free = {name: tensor.detach().numpy().copy() for name, tensor in leaves.items()}
    read = "router_input" if router_width else "z"
    if config.detach_router:  # what is detached is a constant
        fixed["read"] = free[read].copy()
    weight = np.linspace(-1, 2, B)

    def expect(now):
        return oracle({"read": now[read], **now, **fixed}, config, permutation)

    log_p, log_not_p = prime.log_probabilities(**inputs)
    found = prime(**inputs)
    np.testing.assert_allclose(found.detach(), expect(free), rtol=0, atol=1e-14)
    np.testing.assert_allclose(log_p.detach(), np.log(expect(free)), atol=1e-13)
    np.testing.assert_allclose(log_not_p.detach(), np.log1p(-expect(free)), atol=1e-13)
    for output, function in (
        (found, lambda now: expect(now) @ weight),
        (log_p, lambda now: np.log(expect(now)) @ weight),
    ):
        target = finite_differences(function, free)
        gradients = torch.autograd.grad(
            output @ torch.from_numpy(weight), list(leaves.values()), allow_unused=True
        )
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            value = torch.zeros_like(leaf) if gradient is None else gradient
            np.testing.assert_allclose(value, target[name], atol=3e-9, err_msg=name)
    if config.routing == "uniform":
        assert "router" not in leaves


def test_uniform_routing_is_prime_with_a_zero_router_and_no_bias():
    uniform = random_prime(PrimeConfig(**SMALL, routing="uniform"))
    prime = random_prime(PrimeConfig(**SMALL))
    prime.load_state_dict(uniform.state_dict(), strict=False)
    with torch.no_grad():
        prime.router.zero_()
        prime.load_bias.zero_()
    z, logit = double(2, B, D), double(3, B)
    uniform.load_bias.zero_()
    assert torch.equal(uniform(z, logit), prime(z, logit))
    before = uniform.load_average.clone()
    uniform.train()(z, logit)
    assert torch.equal(uniform.load_average, before), "no router, no load to follow"


@settings(deadline=None)  # the first example waits for torch
@given(st.permutations(range(3)), st.permutations(range(3)))
def test_the_order_of_experts_in_a_bag_means_nothing(first, second):
    prime, other = (random_prime(PrimeConfig(**SMALL)) for _ in range(2))
    order = torch.tensor([*first, *(3 + e for e in second)])
    with torch.no_grad():
        for name in ("expert_in", "expert_out", "expert_bias", "router"):
            getattr(other, name).copy_(getattr(prime, name)[order])
        other.load_bias.copy_(prime.load_bias.flatten()[order].view(2, 3))
    z, logit = double(2, B, D), double(3, B)
    torch.testing.assert_close(other(z, logit), prime(z, logit), rtol=0, atol=1e-14)


def test_experts_of_two_bags_cannot_change_places():
    prime, other = (random_prime(PrimeConfig(**SMALL)) for _ in range(2))
    order = torch.tensor([3, 1, 2, 0, 4, 5])
    with torch.no_grad():
        for name in ("expert_in", "expert_out", "expert_bias", "router"):
            getattr(other, name).copy_(getattr(prime, name)[order])
    z, logit = double(2, B, D), double(3, B)
    assert not torch.allclose(other(z, logit), prime(z, logit), rtol=1e-6)


@pytest.mark.parametrize("layer_norm_on", [True, False])
def test_one_bag_of_one_expert_is_the_residual_of_its_rank(layer_norm_on):
    keys = {"dense_weight": 0.3, "layer_norm": layer_norm_on}
    prime = random_prime(PrimeConfig(bags=1, experts_per_bag=1, rank=5, **keys))
    residual = ParameterMatchedResidual(
        D, ResidualParametersSettings(width=5, **keys), generator=torch.Generator()
    ).double()
    with torch.no_grad():
        residual.weight_in.copy_(prime.expert_in[0])
        residual.weight_out.copy_(prime.expert_out[0])
        residual.bias.copy_(prime.expert_bias[0])
    z, logit = double(2, B, D).requires_grad_(), double(3, B).requires_grad_()
    found, expected = prime(z, logit), residual(z, logit)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)
    for one, other in zip(
        torch.autograd.grad(found.sum(), [z, logit]),
        torch.autograd.grad(expected.sum(), [z, logit]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


# ---- permuted routing


def routing_of(prime, z):
    return prime.routing(z).detach()


def test_permuted_routing_keeps_the_load_and_moves_it_to_other_rows():
    permuted, prime = (
        random_prime(PrimeConfig(**SMALL, routing=routing)) for routing in ("permuted", "learned")
    )
    z, logit = double(2, 40, D), double(3, 40)
    moved, own = routing_of(permuted, z), routing_of(prime, z)
    torch.testing.assert_close(moved.mean(dim=0), own.mean(dim=0), rtol=0, atol=1e-15)
    assert sorted(map(tuple, moved.flatten(1).tolist())) == sorted(
        map(tuple, own.flatten(1).tolist())
    )
    stays = (moved == own).flatten(1).all(dim=1)
    assert stays.float().mean().item() < 0.2
    assert not torch.allclose(permuted(z, logit), prime(z, logit), rtol=1e-3)


def test_each_training_batch_has_its_own_permutation_and_an_evaluation_always_the_same():
    prime, again, other = (random_prime(PrimeConfig(**SMALL, routing="permuted")) for _ in range(3))
    for each, seed in ((prime, 1), (again, 1), (other, 2)):
        each.use_seed(seed)
    z, logit = double(2, 40, D), double(3, 40)
    evaluated = prime.eval()(z, logit)
    trained = [prime.train()._order(40) for _ in range(2)]
    assert not torch.equal(*trained)
    assert [order.tolist() for order in trained] == [
        torch.randperm(
            40, generator=torch.Generator().manual_seed(derive(1, f"permute/{batch}"))
        ).tolist()
        for batch in (1, 2)
    ]
    assert torch.equal(prime.eval()(z, logit), evaluated), "a checkpoint is scored as its run was"
    assert torch.equal(again(z, logit), evaluated)
    assert not torch.allclose(other(z, logit), evaluated, rtol=1e-3)


def test_a_plugins_own_streams_come_from_the_jobs_seed_and_not_from_the_global_generator():
    before = torch.get_rng_state()
    plugins = [build_plugin("permuted_routing", D, SMALL, seed=seed) for seed in (1, 1, 2)]
    orders = [plugin.train()._order(40) for plugin in plugins]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    assert torch.equal(torch.get_rng_state(), before)


# ---- load


def test_the_load_bias_pulls_a_loaded_expert_down_and_stays_in_its_bound():
    steps = {"load_ema": 0.5, "load_bias_step": 0.2, "load_bias_bound": 0.7}
    prime = random_prime(PrimeConfig(**SMALL, **steps, layer_norm=False)).train()
    with torch.no_grad():  # in each bag one expert is wanted by all rows
        prime.load_bias.zero_()
        prime.router.mul_(0.1)
        prime.router[[0, 4]] = 0.1
    z, loads = double(2, 60, D) + 3, []
    for _ in range(30):
        loads.append(routing_of(prime, z).mean(dim=0))
        prime(z, double(3, 60))
        assert prime.load_bias.abs().max().item() <= 0.7
    assert loads[0].argmax(dim=1).tolist() == [0, 1]
    for bag, expert in ((0, 0), (1, 1)):
        assert prime.load_bias[bag, expert].item() == prime.load_bias.min(dim=1).values[bag].item()
        assert prime.load_bias[bag, expert].item() < -0.3
        assert loads[-1][bag, expert] < loads[0][bag, expert] - 0.05


def test_the_auxiliary_loss_and_its_gradient(finite_differences, layer_norm):
    config = PrimeConfig(**SMALL, load_bias_step=0.0, auxiliary_weight=0.3)
    prime = random_prime(config).train()
    with torch.no_grad():
        prime.load_bias.zero_()
    z = double(2, B, D).requires_grad_()
    prime(z, double(3, B))
    found = prime.auxiliary_loss()

    def expect(now):
        scores = (layer_norm(now["z"]) @ now["router"].T).reshape(B, 2, 3)
        load = softmax(scores).mean(axis=0)
        return float(np.mean([0.3 * 3 * (load[g] ** 2).sum() for g in range(2)]))

    free = {"z": z.detach().numpy().copy(), "router": prime.router.detach().numpy().copy()}
    assert found.item() == pytest.approx(expect(free), rel=1e-12)
    target = finite_differences(expect, free)
    for gradient, name in zip(
        torch.autograd.grad(found, [z, prime.router]), ("z", "router"), strict=True
    ):
        np.testing.assert_allclose(gradient, target[name], atol=1e-9)
    assert prime.auxiliary_loss() is None, "it is given out once"
    assert not prime.load_bias.any()


def test_there_is_no_auxiliary_loss_elsewhere():
    z, logit = double(2, B, D), double(3, B)
    prime = random_prime(PrimeConfig(**SMALL)).train()
    prime(z, logit)
    assert prime.auxiliary_loss() is None
    asked = build_plugin("auxiliary_loss", D, SMALL, seed=1).double()
    asked.eval()(z, logit)
    assert asked.auxiliary_loss() is None, "nothing is trained in evaluation"
    for forward in (asked.train(), asked.log_probabilities):
        forward(z, logit)
        # No more than a perfectly even load gives: lambda M (1 / M) = lambda.
        assert asked.auxiliary_loss().item() >= 1e-2
        assert not asked.load_bias.any()


# ---- the MAC-matched residual


@pytest.mark.parametrize("dense_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("layer_norm_on", [True, False])
def test_mac_matched_residual(dense_weight, layer_norm_on, layer_norm, finite_differences):
    config = ResidualMacsSettings(
        experts=2, rank=3, dense_weight=dense_weight, layer_norm=layer_norm_on
    )
    residual = MacMatchedResidual(D, config, generator=torch.Generator()).double()
    assert residual.weight_between.shape == (4, 4)
    with torch.no_grad():
        for number, parameter in enumerate(residual.parameters()):
            parameter.copy_(double(number, *parameter.shape))
    inputs = {"z": double(20, B, D).requires_grad_(), "dense_logit": double(21, B).requires_grad_()}
    leaves = {**dict(residual.named_parameters()), **inputs}
    weight = np.linspace(-1, 2, B)

    def expect(a):
        h = layer_norm(a["z"]) if layer_norm_on else a["z"]
        first = silu(h @ a["weight_in"].T + a["bias_in"])
        second = silu(first @ a["weight_between"].T + a["bias_between"])
        shifted = a["dense_logit"] + second @ a["weight_out"] + a["bias"]
        anchor = sigmoid(a["dense_logit"])
        return dense_weight * anchor + (1 - dense_weight) * sigmoid(shifted)

    free = {name: tensor.detach().numpy().copy() for name, tensor in leaves.items()}
    found = residual(**inputs)
    np.testing.assert_allclose(found.detach(), expect(free), atol=1e-14)
    log_p, log_not_p = residual.log_probabilities(**inputs)
    np.testing.assert_allclose(log_p.detach(), np.log(expect(free)), atol=1e-13)
    np.testing.assert_allclose(log_not_p.detach(), np.log1p(-expect(free)), atol=1e-13)
    target = finite_differences(lambda now: expect(now) @ weight, free)
    gradients = torch.autograd.grad(found @ torch.from_numpy(weight), list(leaves.values()))
    for name, gradient in zip(leaves, gradients, strict=True):
        np.testing.assert_allclose(gradient, target[name], atol=2e-9, err_msg=name)


def test_its_initial_values():
    residual = MacMatchedResidual(
        220, ResidualMacsSettings(), generator=torch.Generator().manual_seed(1)
    )
    assert residual.weight_in.shape == (253, 220)
    assert residual.weight_in.std().item() == pytest.approx((2 / 473) ** 0.5, rel=0.02)
    assert residual.weight_between.std().item() == pytest.approx((2 / 506) ** 0.5, rel=0.02)
    for name in ("bias_in", "bias_between", "weight_out", "bias"):
        assert not getattr(residual, name).any()


# ---- extremes

CONTROLS = [
    *("residual_parameters", "residual_macs", "residual_no_layernorm"),
    *("prime", "uniform_routing", "permuted_routing", "no_anchor", "single_bag", "auxiliary_loss"),
]


@pytest.mark.parametrize("size", [30.0, 1e4])
@pytest.mark.parametrize(
    ("name", "keys"), [*((name, {}) for name in CONTROLS), ("prime", {"output": "logit"})]
)
def test_extreme_logits_give_finite_values_and_gradients(name, size, keys):
    plugin = build_plugin(name, D, keys, seed=1).train()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in plugin.parameters():
            parameter.normal_(generator=generator)
    z = torch.randn(6, D, generator=generator).requires_grad_()
    logit = torch.tensor([size, -size, size, -size, 0.0, 1.0], requires_grad=True)
    labels = torch.tensor([1.0, 0, 0, 1, 1, 0])
    probability = plugin(z, logit)
    log_p, log_not_p = plugin.log_probabilities(z, logit)
    assert bool(((probability >= 0) & (probability <= 1)).all())
    for loss in (
        torch.nn.functional.binary_cross_entropy(probability, labels),
        -(labels * log_p + (1 - labels) * log_not_p).mean(),
    ):
        gradients = torch.autograd.grad(loss, [z, logit, *plugin.parameters()])
        assert loss.isfinite()
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)
