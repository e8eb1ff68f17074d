"""PRIME against a float64 oracle in the paper's own form, Eq. 9-17 and 20-22."""

import copy

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from prime_bench.plugins.prime import Prime
from prime_bench.settings.plugins import PrimeConfig

D, ROUTER_D, B = 6, 5, 4
SMALL = {"bags": 2, "experts_per_bag": 3, "rank": 3}
VARIANTS = {
    "plain": {},
    "warm": {"temperature": 0.7, "dense_weight": 0.3},
    "no_layer_norm": {"layer_norm": False},
    "no_anchor": {"dense_weight": 0.0},
    "anchor_only": {"dense_weight": 1.0},
    "single_bag": {"bags": 1, "experts_per_bag": 5},
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture
def oracle(layer_norm):
    """(arrays, config) -> p (B,) and r (B, G, M), one row, bag and expert at a time."""

    def evaluate(arrays, config):
        normalise = layer_norm if config.layer_norm else np.asarray
        h, routed = normalise(arrays["z"]), normalise(arrays.get("router_input", arrays["z"]))
        p = np.zeros(len(h))
        r = np.zeros((len(h), config.bags, config.experts_per_bag))
        for i, logit in enumerate(arrays["dense_logit"]):
            p_d = sigmoid(logit)
            bag_means = []
            for g in range(config.bags):
                experts = range(g * config.experts_per_bag, (g + 1) * config.experts_per_bag)
                scores = [arrays["router"][e] @ routed[i] for e in experts]
                scores = (np.array(scores) + arrays["load_bias"][g]) / config.temperature
                r[i, g] = np.exp(scores) / np.exp(scores).sum()
                bag = 0.0
                for weight, e in zip(r[i, g], experts, strict=True):
                    hidden = arrays["expert_in"][e] @ h[i]
                    silu = hidden * sigmoid(hidden)
                    delta = arrays["expert_out"][e] @ silu + arrays["expert_bias"][e]
                    bag += weight * sigmoid(np.log(p_d / (1 - p_d)) + delta)
                bag_means.append(bag)
            p[i] = config.dense_weight * p_d + (1 - config.dense_weight) * np.mean(bag_means)
        return p, r

    return evaluate


def random_prime(config, generator, *, router_width=None, width=D):
    """In float64 and eval mode, nothing at its start value."""
    prime = Prime(width, config, router_width=router_width, generator=generator).double().eval()
    with torch.no_grad():
        for tensor in (*prime.parameters(), prime.load_bias):
            tensor.normal_(generator=generator)
    return prime


def random_inputs(generator, *, router_width=None, n_rows=B):
    shapes = {"z": (n_rows, D), "dense_logit": (n_rows,)}
    if router_width:
        shapes["router_input"] = (n_rows, router_width)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def as_arrays(prime, inputs):
    tensors = {**dict(prime.named_parameters()), **inputs, "load_bias": prime.load_bias}
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


@pytest.mark.parametrize("router_width", [None, ROUTER_D])
@pytest.mark.parametrize("variant", VARIANTS)
def test_forward_and_every_gradient(variant, router_width, generator, oracle, finite_differences):
    config = PrimeConfig(**(SMALL | VARIANTS[variant]))
    prime = random_prime(config, generator, router_width=router_width)
    inputs = random_inputs(generator, router_width=router_width)
    weight = np.linspace(-1, 2, B)
    for tensor in inputs.values():
        tensor.requires_grad_()
    arrays = as_arrays(prime, inputs)

    probability = prime(**inputs)
    log_p, log_not_p = prime.log_probabilities(**inputs)
    expected, _ = oracle(arrays, config)
    np.testing.assert_allclose(probability.detach(), expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(log_p.detach(), np.log(expected), atol=1e-13)
    np.testing.assert_allclose(log_not_p.detach(), np.log1p(-expected), atol=1e-13)

    free = {name: array for name, array in arrays.items() if name != "load_bias"}
    leaves = {**dict(prime.named_parameters()), **inputs}

    def expect(now):
        return oracle(now | {"load_bias": arrays["load_bias"]}, config)[0]

    of_probability = finite_differences(lambda now: expect(now) @ weight, free)
    of_logs = finite_differences(lambda now: np.log1p(-expect(now)) @ weight, free)
    for found, target in ((probability, of_probability), (log_not_p, of_logs)):
        gradients = torch.autograd.grad(found @ torch.from_numpy(weight), list(leaves.values()))
        for (name, _), gradient in zip(leaves.items(), gradients, strict=True):
            np.testing.assert_allclose(gradient, target[name], atol=2e-9, err_msg=name)


def test_load_follows_equations_20_to_22(generator, oracle):
    """Steps far larger than the paper's, so that both the clipping and the centring bite."""
    config = PrimeConfig(**SMALL, load_ema=0.9, load_bias_step=0.4, load_bias_bound=0.5)
    prime = Prime(D, config, generator=generator).double().train()
    with torch.no_grad():
        prime.router.mul_(3)
    average, bias = np.full((2, 3), 1 / 3), np.zeros((2, 3))
    clipped = off_centre = 0
    for step in range(200):
        inputs = random_inputs(generator, n_rows=8)
        inputs["z"] += torch.linspace(-2, 2, D)  # a load far from even
        _, routing = oracle(as_arrays(prime, inputs), config)
        average = 0.9 * average + 0.1 * routing.mean(axis=0)
        moved = bias + 0.4 * (1 / 3 - average)
        centred = moved - moved.mean(axis=1, keepdims=True)
        bias = np.clip(centred, -0.5, 0.5)
        clipped += int((bias != centred).any())
        off_centre += int((abs(bias.sum(axis=1)) > 0.01).any())
        (prime if step % 2 else prime.log_probabilities)(**inputs)
        np.testing.assert_allclose(prime.load_average, average, atol=1e-12)
        np.testing.assert_allclose(prime.load_bias, bias, atol=1e-12)
    assert 20 < clipped < 200
    assert off_centre > 20, "clipping after centring leaves a sum; the next step must centre again"


def test_load_is_still_in_eval_mode_and_sends_no_gradient(generator):
    prime = Prime(D, PrimeConfig(**SMALL), generator=generator)
    inputs = {name: value.float() for name, value in random_inputs(generator).items()}
    before = prime.load_average.clone()
    prime.eval()(**inputs)
    prime.log_probabilities(**inputs)
    assert torch.equal(prime.load_average, before)
    prime.train()(**inputs).sum().backward()
    assert not torch.equal(prime.load_average, before)
    for buffer in prime.buffers():
        assert not buffer.requires_grad
        assert buffer.grad_fn is None
    assert set(prime.state_dict()) - set(dict(prime.named_parameters())) == {
        *("load_bias", "load_average"),
    }


def test_names_shapes_and_budget(generator):
    for width, parameters in ((220, 120_224), (390, 212_704)):
        config = PrimeConfig()
        prime = Prime(width, config, generator=generator)
        assert {name: tuple(p.shape) for name, p in prime.named_parameters()} == {
            "expert_in": (32, 16, width),
            "expert_out": (32, 16),
            "expert_bias": (32,),
            "router": (32, width),
        }
        assert sum(p.numel() for p in prime.parameters()) == parameters
        assert config.parameters(width) == parameters
    assert config.macs(390) == 212_672


def test_initial_values_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (
        Prime(220, PrimeConfig(), generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    for name in ("expert_in", "router"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))
    # Xavier normal of one expert's V (16, 220) and of one bag's router (8, 220).
    assert first.expert_in.std().item() == pytest.approx((2 / 236) ** 0.5, rel=0.01)
    assert first.router.std().item() == pytest.approx((2 / 228) ** 0.5, rel=0.04)
    assert not first.expert_out.any()
    assert not first.expert_bias.any()
    assert not first.load_bias.any()
    assert torch.equal(first.load_average, torch.full((4, 8), 1 / 8))


def test_another_routers_input_equal_to_z_changes_nothing(generator):
    prime = random_prime(PrimeConfig(**SMALL), generator)
    inputs = random_inputs(generator)
    apart = prime(**inputs, router_input=inputs["z"].clone())
    torch.testing.assert_close(prime(**inputs), apart, rtol=0, atol=1e-14)


class Operations(TorchDispatchMode):
    """Names and result sizes of everything that torch runs."""

    def __init__(self):
        super().__init__()
        self.names, self.sizes = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        results = out if isinstance(out, tuple | list) else (out,)
        self.sizes += [t.numel() for t in results if isinstance(t, torch.Tensor)]
        return out


@pytest.mark.parametrize("train", [False, True])
def test_one_product_no_sync_and_nothing_larger_than_it(train, generator):
    n_rows, width = 300, 20
    prime = Prime(width, PrimeConfig(), generator=generator).train(train)
    z, logit = torch.randn(n_rows, width), torch.randn(n_rows)
    with Operations() as seen:
        prime(z, logit)
    products = [n for n in seen.names if n in {"mm", "addmm", "bmm", "baddbmm", "mv", "linear"}]
    assert products == ["mm"]
    assert max(seen.sizes) == n_rows * 32 * 17
    assert "_local_scalar_dense" not in seen.names
    launches = [name for name in seen.names if name != "slice"]  # a view, one more in old torch
    assert len(launches) == (49 if train else 35), "a launch more or less each step"


@pytest.mark.parametrize("dense_weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("size", [30.0, 1e4])
def test_extreme_logits_give_finite_values_and_gradients(size, dense_weight, generator):
    config = PrimeConfig(**SMALL, dense_weight=dense_weight)
    prime = random_prime(config, generator).float().train()
    z = torch.randn(6, D, generator=generator).requires_grad_()
    logit = torch.tensor([size, -size, size, -size, 0.0, 1.0], requires_grad=True)
    labels = torch.tensor([1.0, 0, 0, 1, 1, 0])
    with torch.no_grad():
        prime.expert_out.mul_(size)
    for _ in range(2):
        probability = prime(z, logit)
        assert bool(((probability >= 0) & (probability <= 1)).all())
        log_p, log_not_p = prime.log_probabilities(z, logit)
        by_probability = torch.nn.functional.binary_cross_entropy(probability, labels)
        by_logit = -(labels * log_p + (1 - labels) * log_not_p).mean()
        for loss in (by_probability, by_logit):
            gradients = torch.autograd.grad(loss, [z, logit, *prime.parameters()])
            assert loss.isfinite()
            assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("dense_weight", [0.0, 0.01, 0.5])
def test_a_probability_never_leaves_its_interval(dense_weight, generator):
    """Rounding alone can do it: routing weights sum to 1 + 1e-7 and all experts say 0."""
    prime = random_prime(PrimeConfig(dense_weight=dense_weight), generator, width=20).float()
    with torch.no_grad():
        prime.expert_bias.fill_(-200.0)
        z = torch.randn(5000, 20, generator=generator)
        for push in (-200.0, 200.0):
            prime.expert_bias.fill_(push)
            p = prime(z, torch.randn(5000, generator=generator) * 4)
            assert p.min().item() >= 0
            assert p.max().item() <= 1


def test_routing_is_kept_over_training_batches_until_it_is_taken(generator, oracle):
    config = PrimeConfig(**SMALL, temperature=0.3)
    prime = random_prime(config, generator)
    assert prime.take_routing() is None
    entropies, loads = [], []
    for step in range(3):
        inputs = random_inputs(generator)
        _, r = oracle(as_arrays(prime, inputs), config)
        prime.eval()(**inputs)
        entropies.append(-(r * np.log(r)).sum(axis=2).mean(axis=0))
        loads.append(r.mean(axis=0))
        prime.train()
        (prime if step % 2 else prime.log_probabilities)(**inputs)

    entropy, load = prime.take_routing()

    np.testing.assert_allclose(entropy, np.mean(entropies, axis=0), atol=1e-12)
    np.testing.assert_allclose(load, np.mean(loads, axis=0), atol=1e-12)
    assert not entropy.requires_grad
    assert not load.requires_grad
    assert prime.take_routing() is None


def test_uniform_routing_has_no_routers_to_speak_of(generator):
    prime = random_prime(PrimeConfig(**SMALL, routing="uniform"), generator)
    prime.train()(**random_inputs(generator))

    assert prime.take_routing() is None


# ---- what an evaluation keeps


def test_an_evaluation_stacks_its_weights_once_and_gives_the_same_bits(generator):
    prime = Prime(20, PrimeConfig(), generator=generator).eval()
    z, logit = torch.randn(2, 300, 20, generator=generator), torch.randn(300)
    with torch.no_grad():
        prime.expert_out.normal_(generator=generator)
    fresh = prime(z[0], logit).detach(), prime(z[1], logit).detach()  # with gradients: not kept
    with torch.no_grad():
        with Operations() as first:
            assert torch.equal(prime(z[0], logit), fresh[0])
        with Operations() as second:
            assert torch.equal(prime(z[1], logit), fresh[1])
    assert first.names.count("cat") == 1
    assert "cat" not in second.names
    assert (
        prime.state_dict().keys()
        == Prime(20, PrimeConfig(), generator=generator).state_dict().keys()
    )


def _in_place(prime, _other):
    for weight in (prime.expert_in, *([] if prime.router is None else [prime.router])):
        weight.add_(torch.linspace(-1, 1, weight.shape[-1]))


def _loaded(prime, other):
    prime.load_state_dict(other.state_dict())


def _assigned(prime, other):
    for _ in range(3):  # later tensors could get the memory of earlier ones
        prime.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)


def _converted(prime, other):
    prime.double()
    prime.float()
    prime.expert_in.data = other.expert_in.data.clone()


def _out_of_sight(prime, _other):
    """As a CUDA graph that trains: nothing but the bytes tells."""
    prime.train()
    prime.expert_in.detach().numpy()[:] += 1
    prime.eval()


@pytest.mark.parametrize("routing", ["learned", "uniform"])
@pytest.mark.parametrize("change", [_in_place, _loaded, _assigned, _converted, _out_of_sight])
def test_changed_weights_are_stacked_again(change, routing, generator):
    config = PrimeConfig(**SMALL, routing=routing)
    prime, other = (random_prime(config, generator).float() for _ in range(2))
    z, logit = torch.randn(9, D, generator=generator), torch.randn(9, generator=generator)
    with torch.no_grad():
        before = prime(z, logit)
        change(prime, other)
        after = prime(z, logit)
    assert not torch.equal(before, after)
    assert torch.equal(after, prime(z, logit).detach()), "with gradients nothing is kept"
    assert torch.equal(copy.deepcopy(prime)(z, logit).detach(), after)
    with torch.inference_mode():
        assert torch.equal(prime(z, logit), after)


def test_gradients_in_evaluation_reach_the_experts(generator):
    prime = random_prime(PrimeConfig(**SMALL), generator)
    inputs = random_inputs(generator)
    with torch.no_grad():
        prime(**inputs)
    prime(**inputs).sum().backward()
    assert prime.expert_in.grad.abs().sum() > 0
    assert prime.router.grad.abs().sum() > 0
